"""Weights in 16 bits beside their originals, so that a step need not round them anew.

Who changes weights in training (`didlm.train.update`) may give them twins, and then keeps both in
step. All others find none, and round. If somebody else changes the weight with torch, its twin is
found to be old, and not used.
"""

import torch
from torch import Tensor


def give_twin(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in 16 bits that `in_16_bits` finds from now on; whoever asks for it keeps it true."""
    twin = weight.detach().to(dtype)
    weight.twin = twin  # type: ignore[attr-defined]
    confirm_twin(weight)
    return twin


def confirm_twin(weight: Tensor) -> None:
    """The twin of a weight is what it should be, after both have been changed."""
    weight.twin_of = weight._version  # type: ignore[attr-defined]


def in_16_bits(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in a dtype: its twin, if it has one of that which is not old."""
    twin: Tensor | None = getattr(weight, "twin", None)
    if twin is not None and twin.dtype == dtype and weight.twin_of == weight._version:  # type: ignore[attr-defined]
        return twin
    return weight.to(dtype)
