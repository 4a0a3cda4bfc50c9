"""The Triton kernel of `rows`: imported only where it runs."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def add_rows_(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values [R, D] to some rows of a contiguous table [T, D]."""
    width = table.shape[1]
    if len(rows):
        with torch.cuda.device_of(table):
            _add_rows[(len(rows),)](
                table, rows, values, width, triton.next_power_of_2(width), num_warps=4
            )


@triton.jit
def _add_rows(table, rows, values, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """One row; where several programs have the same, they all add zero."""
    number = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    here = table + tl.load(rows + number) * WIDTH + column
    added = tl.load(values + number * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.load(here, mask=inside, other=0.0).to(tl.float32) + added
    tl.store(here, total.to(table.dtype.element_ty), mask=inside)
