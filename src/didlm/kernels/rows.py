"""Some rows of a table, each of them once."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from didlm.kernels.here import runs_triton


def with_rows(table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The table [T, D] itself, and those of its rows [R, D] that are listed, none of them twice.

    Torch cannot know that none is: its gradient would sort them, or add atomically, to zeros, and
    add that to the gradient of the table. A row may be listed more often if its gradient is zero.
    """
    if torch.compiler.is_compiling():
        return table, table[rows]
    return _WithRows.apply(table, rows)  # type: ignore[no-untyped-call]


def add_rows_(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values [R, D] to rows of a table in place; no row is listed twice, or it gets zeros."""
    if runs_triton(table):
        from didlm.kernels import rows_triton

        rows_triton.add_rows_(table, rows, values.contiguous())
    else:
        table.index_add_(0, rows, values)


class _WithRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows)
        ctx.shape = table.shape
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, table_grad: Tensor | None, rows_grad: Tensor | None
    ) -> tuple[Tensor | None, None]:
        (rows,) = ctx.saved_tensors
        if rows_grad is None:
            return table_grad, None
        if table_grad is None:
            total = rows_grad.new_zeros(ctx.shape)
        else:
            total = table_grad.clone(memory_format=torch.contiguous_format)
        add_rows_(total, rows, rows_grad)
        return total, None
