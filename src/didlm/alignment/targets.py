"""What the two target algorithms share: their inputs, checked, and their result."""

from dataclasses import dataclass

import numpy as np

from didlm._inputs import (
    BoolArray,
    Booleans,
    FloatArray,
    IntArray,
    Integers,
    booleans,
    integers,
    same_length,
    token_ids,
)
from didlm.given import alignment_labels, check_spans
from didlm.packed import Packed


@dataclass(frozen=True, eq=False)
class InsertionTargets:
    """The entries of r[gap, token] that can occur (Eq. insertion-target), by gap, then token.

    A ratio below 1e-308 may have been rounded to zero; its entry is listed all the same.

    For one text gaps run from 0 to n. For a batch they run through all its sequences: gap g is then
    row g of the packed x_t.
    """

    gap: IntArray
    token: IntArray
    ratio: FloatArray

    def dense(self, gaps: int, vocabulary: int) -> np.ndarray:
        """The full table [gaps, vocabulary], for tiny cases."""
        table = np.zeros((gaps, vocabulary))
        table[self.gap, self.token] = self.ratio
        return table


def read_inputs(x0: Integers, keep: Booleans, given: Integers | None) -> tuple[IntArray, BoolArray]:
    """Check a text and its mask; return its alignment labels and the mask.

    Raises:
        ValueError: saying what does not fit and where.
    """
    tokens = token_ids(x0, "x0")
    mask = booleans(keep, "keep")
    same_length(mask, "keep", tokens, "x0")
    spans = np.zeros_like(tokens) if given is None else integers(given, "given")
    same_length(spans, "given", tokens, "x0")
    check_spans(spans)
    lost = np.flatnonzero(~mask & (spans != 0))
    if lost.size:
        raise ValueError(f"the token at position {lost[0]} of x0 is given, but keep deletes it")
    return alignment_labels(tokens, spans), mask


def read_batch(x0: Packed, keep: Booleans) -> tuple[IntArray, BoolArray]:
    """Check a batch and its mask, one boolean per row; return its alignment labels and the mask."""
    mask = booleans(keep, "keep")
    x0.check_deletion(mask)
    return alignment_labels(x0.tokens.cpu().numpy(), x0.given.cpu().numpy()), mask
