"""Runs of n tokens: how many differ, and how many a model has copied from its training texts.

A run is known by a hash of 64 bits. Among a billion runs two share one with a chance of about 3 in
100, and then a single run is miscounted: nothing that shows in a figure.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from didlm._inputs import Integers

TOKENS_AT_A_TIME = 2**20


def gram_hashes(texts: Sequence[Integers], n: int) -> np.ndarray:
    """A hash of every run of n tokens of every text; no run goes over the end of a text.

    Raises:
        ValueError: if n is not positive.
    """
    if n < 1:
        raise ValueError(f"a run has at least one token: got n = {n}")
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.concatenate([np.empty(0, np.int64), *(np.asarray(t, np.int64) for t in texts)])
    count = len(tokens) - n + 1
    if count < 1:
        return np.empty(0, np.uint64)
    hashes = np.zeros(count, np.uint64)
    for place in range(n):
        hashes = _mix(hashes + tokens[place : place + count].astype(np.uint64))
    end_of_text = np.repeat(np.cumsum(lengths), lengths)[:count]
    return hashes[np.arange(count) + n <= end_of_text]


def distinct_n(texts: Sequence[Integers], n: int) -> float | None:
    """The share of distinct runs of n tokens among all of them; None if there are none."""
    hashes = gram_hashes(texts, n)
    return len(np.unique(hashes)) / len(hashes) if len(hashes) else None


def copied_share(
    samples: Sequence[Integers], training: Sequence[Integers], n: int = 13
) -> float | None:
    """The share of the samples' runs of n tokens that occur in the training texts.

    Args:
        samples: the tokens of what a model has written.
        training: the tokens of what it has learnt from.
        n: how many tokens in a row count as copied; shorter runs are phrases that anyone uses.

    Returns:
        The share, or None if no sample has n tokens.
    """
    written, times = np.unique(gram_hashes(samples, n), return_counts=True)
    if not len(written):
        return None
    copied = np.zeros(len(written), np.bool_)
    for part in _parts(training):
        # Looking up the many among the few is quicker than sorting the many.
        hashes = gram_hashes(part, n)
        place = np.searchsorted(written, hashes).clip(max=len(written) - 1)
        copied[place[written[place] == hashes]] = True
    return float(times[copied].sum() / times.sum())


def _parts(texts: Sequence[Integers]) -> Iterator[list[Integers]]:
    """The texts, some at a time, so that memory stays small however many there are."""
    part: list[Integers] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text)
        if size >= TOKENS_AT_A_TIME:
            yield part
            part, size = [], 0
    yield part


def _mix(values: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64 (the finaliser of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
