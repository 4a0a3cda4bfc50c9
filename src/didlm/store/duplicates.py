"""How many documents occur more than once."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

AT_ONCE = 1 << 22  # hashes held in memory, about
_ROWS = 1 << 18  # read at a time


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
    different = sum(_count_different(tables, low, high - 1) for low, high in pairwise(bounds))
    return documents - different


def _count_different(tables: Sequence[Path], low: int, high: int) -> int:
    """How many different hashes there are from `low` to `high`."""
    held = [np.empty(0, np.uint64)]
    for hashes in _hashes(tables):
        held.append(hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high))])
        if sum(map(len, held[1:])) > AT_ONCE:  # one text, over and over
            held = [_different(held)]
    return len(_different(held))


def _different(parts: list[np.ndarray]) -> np.ndarray:
    """Each hash once. Sorted in place: np.unique would take several times the memory."""
    hashes = np.concatenate(parts)
    parts.clear()
    hashes.sort()
    new = np.ones(len(hashes), np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
    return hashes[new]


def _hashes(tables: Sequence[Path]) -> Iterator[np.ndarray]:
    # Not mapped into memory: what is mapped and has been read would count as held.
    for table in tables:
        with table.open("rb") as file:
            np.lib.format.read_magic(file)
            _, _, dtype = np.lib.format.read_array_header_1_0(file)
            while len(rows := np.fromfile(file, dtype, _ROWS)):
                yield rows["hash"].copy()
