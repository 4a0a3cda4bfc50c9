"""How many documents occur more than once."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

AT_ONCE = 1 << 22  # hashes held in memory, about


def count_duplicates(tables: Sequence[Path], documents: int) -> int:
    """How many documents have a hash that occurred before.

    There are as many passes as keep what is held small: each is about a range of hashes, and
    hashes are spread evenly.

    Args:
        tables: the files of documents of a store.
        documents: how many documents they have in all.
    """
    passes = max(1, -(-documents // AT_ONCE))
    bounds = [2**64 * number // passes for number in range(passes + 1)]
    different = 0
    for low, high in pairwise(bounds):
        seen = np.empty(0, np.uint64)
        for table in tables:
            rows = np.load(table, mmap_mode="r")
            for first in range(0, len(rows), AT_ONCE):
                hashes = np.array(rows["hash"][first : first + AT_ONCE])
                inside = hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))]
                seen = np.unique(np.concatenate([seen, inside]))
        different += len(seen)
    return documents - different
