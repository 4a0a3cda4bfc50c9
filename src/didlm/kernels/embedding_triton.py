"""The Triton kernels of `embedding`: imported only where they run."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # of one program of the backward pass, which adds them up by flags


def forward(
    tokens: Tensor,
    table: Tensor,
    flags: Tensor | None,
    flag_table: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The embedded rows [T, D]."""
    width = table.shape[1]
    rows = torch.empty(len(tokens), width, dtype=dtype, device=table.device)
    if len(tokens):
        with torch.cuda.device_of(table):
            _embed[(len(tokens),)](
                tokens, table, flags, flag_table, rows, len(table),
                0 if flag_table is None else len(flag_table),
                width, triton.next_power_of_2(width), flags is not None, num_warps=4,
            )  # fmt: skip
    return rows


def backward(
    gradient: Tensor,
    tokens: Tensor,
    flags: Tensor | None,
    shape: torch.Size,
    flag_shape: torch.Size | None,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the two tables, in float32."""
    width = shape[1]
    of_tokens = gradient.new_zeros(shape, dtype=torch.float32)
    of_flags = None if flag_shape is None else gradient.new_zeros(flag_shape, dtype=torch.float32)
    if len(tokens):
        with torch.cuda.device_of(gradient):
            _embed_backward[(triton.cdiv(len(tokens), ROWS),)](
                gradient, tokens, flags, of_tokens, of_flags, len(tokens), shape[0],
                width, triton.next_power_of_2(width), ROWS, flags is not None, num_warps=4,
            )  # fmt: skip
    return of_tokens, of_flags


@triton.jit
def _embed(
    tokens,
    table,
    flags,
    flag_table,
    rows,
    symbols,
    kinds,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    FLAGS: tl.constexpr,
):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    token = tl.where(inside, tl.load(tokens + row), -1)
    known = (token >= 0) & (token < symbols)
    x = tl.load(table + token * WIDTH + column, mask=known, other=float("nan")).to(tl.float32)
    if FLAGS:
        flag = tl.where(inside, tl.load(flags + row), -1)
        known = (flag >= 0) & (flag < kinds)
        added = tl.load(flag_table + flag * WIDTH + column, mask=known, other=float("nan"))
        x += added.to(tl.float32)
    tl.store(rows + row * WIDTH + column, x.to(rows.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count"])
def _embed_backward(
    gradient,
    tokens,
    flags,
    of_tokens,
    of_flags,
    count,
    symbols,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    FLAGS: tl.constexpr,
):
    """Some rows. Of flags there are four: added up first, or all programs would meet there."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    last = tl.minimum(first + ROWS, count)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    zero = tl.zeros([BLOCK], tl.float32)
    one = tl.zeros([BLOCK], tl.float32)
    two = tl.zeros([BLOCK], tl.float32)
    three = tl.zeros([BLOCK], tl.float32)
    for row in range(first, last):
        grad = tl.load(gradient + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
        token = tl.where(inside, tl.load(tokens + row), -1)
        known = (token >= 0) & (token < symbols)
        tl.atomic_add(of_tokens + token * WIDTH + column, grad, mask=known, sem="relaxed")
        if FLAGS:
            flag = tl.load(flags + row)
            zero += tl.where(flag == 0, grad, 0.0)
            one += tl.where(flag == 1, grad, 0.0)
            two += tl.where(flag == 2, grad, 0.0)
            three += tl.where(flag == 3, grad, 0.0)
    if FLAGS:
        tl.atomic_add(of_flags + column, zero, mask=inside & (zero != 0), sem="relaxed")
        tl.atomic_add(of_flags + WIDTH + column, one, mask=inside & (one != 0), sem="relaxed")
        tl.atomic_add(of_flags + 2 * WIDTH + column, two, mask=inside & (two != 0), sem="relaxed")
        there = of_flags + 3 * WIDTH + column
        tl.atomic_add(there, three, mask=inside & (three != 0), sem="relaxed")
