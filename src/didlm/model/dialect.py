"""How networks of public code bases differ from ours; `didlm.convert` reads their weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from didlm.packed import Packed


@dataclass(frozen=True)
class Dialect:
    """What a network does otherwise than ours; the defaults are ours. See docs/converting.md."""

    # RADD and ILM: norms, feed-forward and token head have biases.
    biases: bool = False
    # ILM: relu in the place of gelu.
    relu: bool = False
    # ILM: its published weights have no norm before the token head.
    final_norm: bool = True
    # ILM, DID: no head for rates. The logits of all tokens of all gaps are log scores themselves,
    # so the rate of a gap is the sum over its tokens.
    joint: bool = False
    # The ids that the network reads in the place of BOS; None is BOS itself. RADD: none at all;
    # ILM: [CLS] and [BOS], of which the former says whether the text is complete.
    leading: Sequence[int] | None = None
    # ILM: a small network of its own before the stop head.
    stop_tower: bool = False
    # ILM: a text is complete if that has at least this probability (0.9 there).
    stop_probability: float = 0.5
    # SEDD, and so perhaps DID: the network is told the total noise, not the chance of deletion.
    sigma: bool = False

    def __post_init__(self) -> None:
        if self.leading is not None:
            object.__setattr__(self, "leading", tuple(self.leading))  # JSON has lists
        if not 0 < self.stop_probability < 1:
            raise ValueError(
                f"the probability to stop from must be above 0 and below 1: "
                f"got {self.stop_probability}"
            )

    @property
    def stop_log_odds(self) -> float:
        """Above these a text is complete."""
        return math.log(self.stop_probability / (1 - self.stop_probability))


def replace_bos(x_t: Packed, leading: Sequence[int]) -> tuple[Packed, Tensor]:
    """The batch with other rows before the texts, and where each of its rows is now [T].

    The row of BOS becomes the last of the leading ones. If there are none it has no place: what
    stands for it there means nothing.
    """
    count = len(leading)
    offsets = pad((x_t.lengths + count).cumsum(0), (1, 0))
    shift = (offsets - x_t.offsets)[:-1][x_t.sequence] + count - 1
    place = torch.arange(x_t.rows, device=shift.device) + shift
    tokens = x_t.tokens.new_empty(int(x_t.rows + (count - 1) * len(x_t)))
    first = offsets[:-1, None] + torch.arange(count, device=shift.device)
    tokens[first] = torch.tensor(leading, dtype=tokens.dtype, device=tokens.device)
    tokens[place[~x_t.is_bos]] = x_t.tokens[~x_t.is_bos]
    nothing = torch.zeros_like(tokens)
    return Packed(tokens, offsets, nothing, nothing.bool()), place.clamp(min=0)
