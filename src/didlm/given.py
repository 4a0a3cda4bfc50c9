"""Given text: a prompt, a suffix or spans that are never deleted and align only with themselves.

`given` holds one integer per token: 0 for a free token, else the number of the span it belongs to.
"""

import numpy as np

from didlm._inputs import BoolArray, IntArray


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
