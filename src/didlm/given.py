"""Given text: a prompt, a suffix or spans that are never deleted and align only with themselves.

`given` holds one integer per token: 0 for a free token, else the number of the span it belongs to.
"""

from dataclasses import dataclass

import numpy as np

from didlm._inputs import BoolArray, IntArray


@dataclass(frozen=True)
class GivenText:
    """What of a text is given: spans (0 for free tokens), and whether its ends are closed too."""

    spans: np.ndarray
    starts_closed: bool = False  # nothing may be inserted before the text: a prompt
    ends_closed: bool = False  # nothing may be inserted after it: a suffix


def check_spans(given: np.ndarray, name: str = "given") -> None:
    """Refuse negative span numbers, and numbers that occur in more than one run.

    Raises:
        ValueError: naming the number and the position.
    """
    if given.size and given.min() < 0:
        at = int(given.argmin())
        raise ValueError(f"{name}[{at}] is {given[at]}; it must be 0 or the number of a span")
    starts = np.flatnonzero((given != 0) & (given != np.r_[0, given[:-1]]))
    numbers, first = np.unique(given[starts], return_index=True)
    if len(numbers) < len(starts):
        again = starts[np.setdiff1d(np.arange(len(starts)), first)[0]]
        raise ValueError(
            f"span {given[again]} of {name} starts a second time at position {again}; "
            "a span is contiguous, so give each its own number"
        )


def alignment_labels(tokens: IntArray, given: np.ndarray) -> IntArray:
    """The tokens, with every given one renamed to a negative number that occurs nowhere else.

    A symbol that occurs once in x_0 can only align with itself, so after this renaming no algorithm
    needs to know about given text: it falls apart into independent segments (Eq. given-segments).
    """
    return np.where(given != 0, -np.cumsum(given != 0), tokens)


def open_gaps(given: np.ndarray) -> BoolArray:
    """Whether each gap may receive tokens: n + 1 gaps of a text whose tokens carry `given`.

    A gap is closed if and only if the tokens on both its sides belong to one span.
    """
    inside = (given[:-1] != 0) & (given[:-1] == given[1:])
    return np.r_[True, ~inside, True] if given.size else np.array([True])


def nothing_given(length: int) -> GivenText:
    """All of a text is free."""
    return GivenText(np.zeros(length, dtype=np.int64))


def given_prefix(length: int, given: int) -> GivenText:
    """The first `given` tokens are a prompt."""
    spans = np.zeros(length, dtype=np.int64)
    spans[:given] = 1
    return GivenText(spans, starts_closed=given > 0)


def given_suffix(length: int, given: int) -> GivenText:
    """The last `given` tokens are a suffix."""
    spans = np.zeros(length, dtype=np.int64)
    spans[length - given :] = 1
    return GivenText(spans, ends_closed=given > 0)


def chosen_given(
    length: int, given: GivenText | None, share: float, rng: np.random.Generator
) -> GivenText:
    """What is given of an example: what came with it, else something in a share of the cases."""
    if given is not None:
        return given
    wanted = rng.random() < share and length > 0
    return random_given(length, rng) if wanted else nothing_given(length)


def random_given(length: int, rng: np.random.Generator) -> GivenText:
    """A random prefix, suffix, both, up to three spans with blanks all around, or short blanks."""
    kind = rng.integers(5)
    if kind == 0:
        return given_prefix(length, int(rng.integers(1, length + 1)))
    if kind == 1:
        return given_suffix(length, int(rng.integers(1, length + 1)))
    spans = np.zeros(length, dtype=np.int64)
    if kind == 2:
        first, last = np.sort(rng.integers(0, length + 1, 2))
        spans[:first], spans[last:] = 1, 2
        return GivenText(spans, starts_closed=first > 0, ends_closed=last < length)
    count = int(rng.integers(1, 4))
    if kind == 3:
        return short_blanks(length, count, rng)
    cuts = np.sort(rng.integers(0, length + 1, 2 * count)).reshape(count, 2)
    for number, (first, last) in enumerate(cuts, start=1):
        spans[first:last] = number
    return GivenText(spans)


def short_blanks(length: int, count: int, rng: np.random.Generator) -> GivenText:
    """All but a few words or sentences: `count` blanks of 1 to 31 tokens, short ones oftener."""
    free = np.zeros(length, dtype=np.bool_)
    for first in rng.integers(length, size=count):
        free[first : first + int(2 ** (5 * rng.random()))] = True
    begins = ~free & np.r_[True, free[:-1]]
    spans = np.where(free, 0, np.cumsum(begins))
    return GivenText(spans, starts_closed=bool(spans[0]), ends_closed=bool(spans[-1]))
