"""Counting and finding occurrences: small, exact, for people and tests rather than for training."""

import numpy as np

from didlm._inputs import BoolArray, Integers, integers


def count_occurrences(x_t: Integers, x_0: Integers) -> int:
    """N(x_t, x_0): in how many ways x_t is a subsequence of x_0, exactly (Eq. prefix-count).

    Labels of given tokens (see `didlm.given.alignment_labels`) may stand among the ids.
    """
    kept = integers(x_t, "x_t").tolist()
    counts = [1] + [0] * len(kept)  # counts[i] = N(x_t[:i], what was read of x_0)
    for symbol in integers(x_0, "x_0").tolist():
        for i in range(len(kept), 0, -1):
            if kept[i - 1] == symbol:
                counts[i] += counts[i - 1]
    return counts[-1]


def leftmost_occurrence(x_t: Integers, x_0: Integers) -> BoolArray:
    """A mask over x_0 that keeps exactly x_t: what `insertion_targets` asks for.

    The targets depend on x_t alone, so any occurrence gives the same ones.

    Raises:
        ValueError: if x_t is not a subsequence of x_0, naming the first token without a place.
    """
    kept, whole = integers(x_t, "x_t"), integers(x_0, "x_0")
    keep = np.zeros(whole.size, dtype=np.bool_)
    j = 0
    for k, symbol in enumerate(kept.tolist()):
        found = np.flatnonzero(whole[j:] == symbol)
        if not found.size:
            raise ValueError(
                f"x_t is not contained in x_0: its token {symbol} at position {k} "
                f"does not occur from position {j} of x_0 on"
            )
        j += int(found[0])
        keep[j] = True
        j += 1
    return keep
