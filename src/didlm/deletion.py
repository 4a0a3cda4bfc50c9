"""The forward process: every free token is deleted independently (Eq. transition-probability).

All functions return `keep`, one boolean per token of the text. BOS is not part of the text and
given tokens are always kept.
"""

import numpy as np

from didlm._inputs import BoolArray, Integers, integers
from didlm.given import check_spans


def delete_independently(
    length: int, survival: float, rng: np.random.Generator, given: Integers | None = None
) -> BoolArray:
    """Keep each free token with probability `survival`, which is `Schedule.survival(t)`."""
    if not 0 <= survival <= 1:
        raise ValueError(f"survival is a probability: got {survival}")
    return (rng.random(length) < survival) | ~_free(length, given)


def delete_exactly(
    length: int, count: int, rng: np.random.Generator, given: Integers | None = None
) -> BoolArray:
    """Delete `count` free tokens, every choice of them being equally likely."""
    free = np.flatnonzero(_free(length, given))
    if not 0 <= count <= free.size:
        raise ValueError(f"cannot delete {count} of {free.size} free tokens")
    keep = np.ones(length, dtype=np.bool_)
    keep[rng.choice(free, size=count, replace=False)] = False
    return keep


def delete_alike(
    length: int, count: int, rng: np.random.Generator, given: Integers | None = None
) -> BoolArray:
    """The same, but generators that start alike choose alike, in texts of other lengths too.

    Every free place draws a number, the first place the first, and those with the lowest go.
    """
    free = np.flatnonzero(_free(length, given))
    if not 0 <= count <= free.size:
        raise ValueError(f"cannot delete {count} of {free.size} free tokens")
    keep = np.ones(length, dtype=np.bool_)
    keep[free[np.argsort(rng.random(free.size), kind="stable")[:count]]] = False
    return keep


def _free(length: int, given: Integers | None) -> BoolArray:
    if length < 0:
        raise ValueError(f"a text cannot have {length} tokens")
    if given is None:
        return np.ones(length, dtype=np.bool_)
    spans = integers(given, "given")
    if spans.size != length:
        raise ValueError(f"given has {spans.size} entries, but the text has {length} tokens")
    check_spans(spans)
    free: BoolArray = spans == 0
    return free
