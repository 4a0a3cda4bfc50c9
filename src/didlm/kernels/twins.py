"""Weights in 16 bits beside their originals, so that a step need not round them anew.

Who changes weights in training (`didlm.train.update`) may give them twins, and then keeps both in
step. All others find none, and round.
"""

import torch
from torch import Tensor


def give_twin(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in 16 bits that `in_16_bits` finds from now on; whoever asks for it keeps it true."""
    twin = weight.detach().to(dtype)
    weight.twin = twin  # type: ignore[attr-defined]
    return twin


def in_16_bits(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in a dtype: its twin, if it has one of that."""
    twin: Tensor | None = getattr(weight, "twin", None)
    return twin if twin is not None and twin.dtype == dtype else weight.to(dtype)
