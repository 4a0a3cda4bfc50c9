"""Marks in the place of blanks, for methods that write by replacing them (see `replace_marks`)."""

from dataclasses import replace

import numpy as np

from didlm.generate.template import CLOSED, NO_LIMIT, Start


def with_marks(start: Start, mark: int, length: int) -> Start:
    """A text of `length` tokens with a mark for every token that is to come.

    A row is open if it holds a mark; limits of blanks are kept by the number of their marks.

    Raises:
        ValueError: if it cannot be known how many tokens come into each blank.
    """
    sizes = _sizes(start, length)
    tokens, given, blank, spaced = [], [], [CLOSED], [False]
    for gap, number in enumerate(start.blank.tolist()):
        count = 0 if number == CLOSED else sizes[number]
        tokens += [mark] * count
        given += [0] * count
        blank += [number] * count
        spaced += [bool(start.spaced[gap])] * min(count, 1) + [False] * max(count - 1, 0)
        if gap < len(start.tokens):
            tokens.append(int(start.tokens[gap]))
            given.append(int(start.given[gap]))
            blank.append(CLOSED)
            spaced.append(False)
    return replace(
        start,
        tokens=np.array(tokens, dtype=np.int64),
        given=np.array(given, dtype=np.int64),
        blank=np.array(blank, dtype=np.int64),
        least=np.zeros_like(start.least),
        most=np.full_like(start.most, NO_LIMIT),
        spaced=np.array(spaced, dtype=np.bool_),
    )


def _sizes(start: Start, length: int) -> list[int]:
    """How many tokens each blank gets."""
    sizes = np.where(start.least == start.most, start.least, -1)
    open_ended = np.flatnonzero(sizes < 0)
    rest = length - len(start.tokens) - int(sizes[sizes > 0].sum())
    if len(open_ended) > 1 or (np.bincount(start.blank[start.blank >= 0]) > 1).any():
        raise ValueError(
            "this method must know how many tokens come into each blank but one: "
            "write [...5-5] for a blank of 5 tokens"
        )
    if len(open_ended) == 1:
        number = int(open_ended[0])
        if not start.least[number] <= rest <= start.most[number]:
            raise ValueError(
                f"all texts of this model have {length} tokens: {rest} are left for a blank of "
                f"{start.least[number]} to {start.most[number]}"
            )
        sizes[number] = rest
    elif rest != 0:
        raise ValueError(
            f"all texts of this model have {length} tokens: with its blanks filled the template "
            f"has {length - rest}"
        )
    return sizes.tolist()
