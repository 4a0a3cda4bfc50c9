"""The Triton kernels of `add_norm`: imported only where they run.

Forward, a program has a row. Backward, it has a few rows of one sequence, so that it can add up on
the way what they say about scale, shift and gate; what all programs found is added by a second,
small kernel. No two programs add to one number: the sums are the same every time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from didlm.kernels.slots import Slots
from didlm.kernels.slots_triton import placed

# Rows of one program of the backward pass, and how many of them it reads ahead. Many cost less, few
# are done sooner: for batches of fewer rows than `ENOUGH`. The fastest of a sweep on an H200.
MANY, FEW, ENOUGH = (16, 1), (8, 3), 16_384
COLUMNS, SLOTS = 64, 32  # that one program of the small kernel adds up at a time


def forward(
    hidden: Tensor,
    branch: Tensor | None,
    gate: Tensor | None,
    weight: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    sequence: Tensor,
    centred: bool,
    epsilon: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum and norm [T, D], and for the backward pass means and inverse deviations [T].

    The sum is `hidden` itself where there is no branch.
    """
    rows, width = hidden.shape
    assert scale is None or shift is None or scale.stride() == shift.stride()
    summed = hidden if branch is None else torch.empty_like(hidden)
    normed = torch.empty_like(hidden, dtype=dtype)
    mean, inverse = torch.empty(2, rows, dtype=torch.float32, device=hidden.device)
    if rows:
        with torch.cuda.device_of(hidden):
            _add_norm[(rows,)](
                hidden, branch, gate, weight, scale, shift, sequence,
                summed, normed, mean, inverse, _stride(gate), _stride(scale), epsilon,
                width, triton.next_power_of_2(width), branch is not None, gate is not None,
                scale is not None, centred, num_warps=_warps(width),
            )  # fmt: skip
    return summed, normed, mean, inverse


def backward(
    summed_grad: Tensor | None,
    normed_grad: Tensor,
    summed: Tensor,
    mean: Tensor,
    inverse: Tensor,
    branch: Tensor | None,
    gate: Tensor | None,
    weight: Tensor,
    scale: Tensor | None,
    slots: Slots,
    centred: bool,
    has_branch: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of hidden states, branch, gate, weight, scale and shift; None without such."""
    (rows, width), sequences = summed.shape, slots.offsets.numel() - 1
    share, ahead = MANY if rows >= ENOUGH else FEW
    timed = scale is not None or gate is not None
    count = slots.count(share) if timed else triton.cdiv(rows, share)
    table = slots.table(share) if timed else None
    hidden_grad = torch.empty_like(summed)
    # Without a gate the branch has the gradient of the sum, and need not get a copy of its own.
    apart = has_branch and (gate is not None or summed.dtype != normed_grad.dtype)
    branch_grad = torch.empty_like(normed_grad) if apart else None
    # Of products with the normed rows, of gradients, of products with the branch.
    kinds = 1 + (scale is not None) + (gate is not None)
    sums = torch.empty(count, kinds, width, dtype=torch.float32, device=summed.device)
    with torch.cuda.device_of(summed):
        if count:
            _add_norm_backward[(count,)](
                summed_grad, normed_grad, summed, mean, inverse, branch, gate, weight, scale,
                table, slots.offsets, hidden_grad, branch_grad, sums, _stride(gate),
                _stride(scale), rows, width, triton.next_power_of_2(width), share, ahead, kinds,
                summed_grad is not None, apart, gate is not None, scale is not None, centred,
                num_warps=1 if width <= 1024 else 4,  # sums within a warp wait for no other
            )  # fmt: skip
        if has_branch and not apart:
            branch_grad = hidden_grad
        if not timed:
            weight_grad = (sums.new_ones(count) @ sums.view(count, width)).to(weight.dtype)
            return hidden_grad, branch_grad, None, weight_grad, None, None
        like = (scale if scale is not None else gate).dtype  # type: ignore[union-attr]
        of_sequences = torch.empty(3, sequences, width, dtype=like, device=summed.device)
        weight_sums = torch.empty(sequences, width, dtype=torch.float32, device=summed.device)
        if sequences:
            _add_slots[(sequences, triton.cdiv(width, COLUMNS))](
                sums, weight, scale, slots.offsets, of_sequences, weight_sums, _stride(scale),
                sequences, width, COLUMNS, share, SLOTS, kinds, gate is not None, scale is not None,
                num_warps=4,
            )  # fmt: skip
    scale_grad, shift_grad, gate_grad = of_sequences
    return (
        hidden_grad,
        branch_grad,
        None if gate is None else gate_grad,
        weight_sums.sum(0).to(weight.dtype),
        None if scale is None else scale_grad,
        None if scale is None else shift_grad,
    )


def _stride(values: Tensor | None) -> int:
    """From one sequence to the next: scale, shift and gate are columns of one table."""
    assert values is None or values.stride(-1) == 1
    return 0 if values is None else values.stride(0)


def _warps(width: int) -> int:
    return 4 if width <= 1024 else 8


@triton.jit
def _add_norm(
    hidden,
    branch,
    gate,
    weight,
    scale,
    shift,
    sequence,
    summed,
    normed,
    mean,
    inverse,
    gate_stride,
    scale_stride,
    epsilon,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BRANCH: tl.constexpr,
    GATED: tl.constexpr,
    MODULATED: tl.constexpr,
    CENTRED: tl.constexpr,
):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    here = row * WIDTH + column
    x = tl.load(hidden + here, mask=inside, other=0.0).to(tl.float32)
    if GATED or MODULATED:
        mine = tl.load(sequence + row)
    if BRANCH:
        added = tl.load(branch + here, mask=inside, other=0.0).to(tl.float32)
        if GATED:
            gates = tl.load(gate + mine * gate_stride + column, mask=inside, other=0.0)
            added *= 1 + gates.to(tl.float32)
        rounded = (x + added).to(summed.dtype.element_ty)
        tl.store(summed + here, rounded, mask=inside)
        x = rounded.to(tl.float32)  # as the backward pass will find it
    if CENTRED:
        centre = tl.sum(x, 0) / WIDTH
        tl.store(mean + row, centre)
        x = tl.where(inside, x - centre, 0.0)
    factor = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    tl.store(inverse + row, factor)
    x *= factor
    x *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if MODULATED:
        there = mine * scale_stride + column
        x *= 1 + tl.load(scale + there, mask=inside, other=0.0).to(tl.float32)
        x += tl.load(shift + there, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + here, x.to(normed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _add_norm_backward(
    summed_grad,
    normed_grad,
    summed,
    mean,
    inverse,
    branch,
    gate,
    weight,
    scale,
    table,
    offsets,
    hidden_grad,
    branch_grad,
    sums,
    gate_stride,
    scale_stride,
    rows,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    AHEAD: tl.constexpr,
    KINDS: tl.constexpr,
    SUMMED: tl.constexpr,
    BRANCH: tl.constexpr,
    GATED: tl.constexpr,
    MODULATED: tl.constexpr,
    CENTRED: tl.constexpr,
):
    """The rows of one slot: of one sequence, if they must be."""
    slot = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    first = slot.to(tl.int64) * ROWS
    last = tl.minimum(first + ROWS, rows)
    if GATED or MODULATED:
        sequence, begin, length, start = placed(table, offsets, slot, ROWS)
        sequence = sequence.to(tl.int64)  # times the width it may be large
        first = begin.to(tl.int64) + start
        last = tl.minimum(first + ROWS, begin + length)
    if MODULATED:
        there = sequence * scale_stride + column
        factor *= 1 + tl.load(scale + there, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        there = sequence * gate_stride + column
        open = 1 + tl.load(gate + there, mask=inside, other=0.0).to(tl.float32)
    by_unit = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    by_branch = tl.zeros([BLOCK], tl.float32)
    for row in tl.range(first, last, num_stages=AHEAD):
        here = row * WIDTH + column
        grad = tl.load(normed_grad + here, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(summed + here, mask=inside, other=0.0).to(tl.float32)
        spread = tl.load(inverse + row)
        if CENTRED:
            x = tl.where(inside, x - tl.load(mean + row), 0.0)
        x *= spread
        by_unit += grad * x
        if MODULATED:
            plain += grad
        grad *= factor
        result = grad - x * (tl.sum(grad * x, 0) / WIDTH)
        if CENTRED:
            result -= tl.sum(grad, 0) / WIDTH
        result *= spread
        if SUMMED:
            result += tl.load(summed_grad + here, mask=inside, other=0.0).to(tl.float32)
        tl.store(hidden_grad + here, result.to(hidden_grad.dtype.element_ty), mask=inside)
        if BRANCH:
            if GATED:
                added = tl.load(branch + here, mask=inside, other=0.0).to(tl.float32)
                by_branch += result * added
                result *= open
            tl.store(branch_grad + here, result.to(branch_grad.dtype.element_ty), mask=inside)
    sums += slot.to(tl.int64) * KINDS * WIDTH + column
    tl.store(sums, by_unit, mask=inside)
    if MODULATED:
        tl.store(sums + WIDTH, plain, mask=inside)
    if GATED:
        tl.store(sums + (KINDS - 1) * WIDTH, by_branch, mask=inside)


@triton.jit(do_not_specialize=["sequences"])
def _add_slots(
    sums,
    weight,
    scale,
    offsets,
    of_sequences,
    weight_sums,
    scale_stride,
    sequences,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    KINDS: tl.constexpr,
    GATED: tl.constexpr,
    MODULATED: tl.constexpr,
):
    """Some columns of one sequence: gradients of scale, shift, gate, and a part of the weight's."""
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    by_unit = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    by_branch = tl.zeros([BLOCK], tl.float32)
    # The slots of this sequence.
    first = tl.load(offsets + sequence) // ROWS + sequence
    last = tl.load(offsets + sequence + 1) // ROWS + sequence + 1
    for start in range(first, last, SLOTS):
        slot = (start + tl.arange(0, SLOTS))[:, None]
        there = (slot < last) & inside[None, :]
        here = sums + slot.to(tl.int64) * KINDS * WIDTH + column[None, :]
        by_unit += tl.sum(tl.load(here, mask=there, other=0.0), 0)
        if MODULATED:
            plain += tl.sum(tl.load(here + WIDTH, mask=there, other=0.0), 0)
        if GATED:
            by_branch += tl.sum(tl.load(here + (KINDS - 1) * WIDTH, mask=there, other=0.0), 0)
    target = of_sequences + sequence * WIDTH + column
    kind = of_sequences.dtype.element_ty
    table = sequences * WIDTH
    total = by_unit
    if MODULATED:
        weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        there = sequence * scale_stride + column
        total *= 1 + tl.load(scale + there, mask=inside, other=0.0).to(tl.float32)
        tl.store(target, (by_unit * weights).to(kind), mask=inside)
        tl.store(target + table, plain.to(kind), mask=inside)
    if GATED:
        tl.store(target + 2 * table, by_branch.to(kind), mask=inside)
    tl.store(weight_sums + sequence * WIDTH + column, total, mask=inside)
