"""Some rows of a table, each of them once."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def unique_rows(table: Tensor, rows: Tensor) -> Tensor:
    """The rows [R, D] of a table [T, D] of which none is asked for twice.

    Torch cannot know that: its gradient sorts the rows, or adds to them atomically. A row may be
    asked for more often if it is a dummy, whose gradient is zero.
    """
    if torch.compiler.is_compiling():
        return table[rows]
    return _UniqueRows.apply(table, rows)  # type: ignore[no-untyped-call]


class _UniqueRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.size = len(table)
        return table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        zeros = gradient.new_zeros(ctx.size, *gradient.shape[1:])
        return zeros.index_copy_(0, rows, gradient), None
