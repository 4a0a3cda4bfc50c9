"""A stable hash of every document: it finds duplicates and decides about validation."""

import hashlib
from typing import Any

import numpy as np


def document_hash(text: str) -> int:
    """64 bits that depend on nothing but the text: the first 8 bytes of its SHA-256."""
    return first_bits(hashlib.sha256(text.encode("utf-8", "surrogatepass")))


def first_bits(digest: Any) -> int:
    """The 64 bits of a SHA-256 that was fed piece by piece."""
    return int.from_bytes(digest.digest()[:8], "big")


def is_held_out(hashes: np.ndarray, fraction: float) -> np.ndarray:
    """Whether the document of each hash belongs to validation, for about such a share of them."""
    # 53 bits are what a float holds exactly, so the quotient stays below 1.
    return (hashes >> np.uint64(11)) / 2**53 < fraction
