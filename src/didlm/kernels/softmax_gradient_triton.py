"""The Triton kernels of `softmax_gradient`, in a file of their own: importing it needs Triton."""

import triton
import triton.language as tl
from triton import next_power_of_2

__all__ = ["next_power_of_2", "pool", "softmax_gradient"]


# A chunk's part of `starts` may begin anywhere: one build for all.
@triton.jit(do_not_specialize_on_alignment=["starts"])
def softmax_gradient(
    logits,
    starts,
    token,
    weight,
    pooled,
    log_prob,
    vocabulary,
    padded,
    gradient: tl.constexpr,
    LANES: tl.constexpr,
    TARGETS: tl.constexpr,
):
    """One row of logits becomes its gradient; `TARGETS` of its targets are looked at together."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * padded
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    eight = tl.arange(0, LANES)[:, None] * 8 + tl.arange(0, 8)[None, :]  # a lane has 8 columns
    each = tl.arange(0, TARGETS)
    if first < last:
        # Each lane keeps a maximum and a sum of its own, or they would meet at every turn. The
        # maximum starts finite: -inf less -inf is not a number.
        peak = tl.full([LANES], -3.4028234e38, tl.float32)
        total = tl.zeros([LANES], tl.float32)
        for start in range(0, padded, LANES * 8):
            column = start + eight
            # The load ends at `padded`, a round number: only so can it be 16 bytes wide.
            x = tl.load(logits + column, mask=column < padded, other=0.0).to(tl.float32)
            x = tl.where(column < vocabulary, x, -float("inf"))
            higher = tl.maximum(peak, tl.max(x, 1))
            total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
            peak = higher
        highest = tl.max(peak, 0)
        all_lanes = tl.sum(total * tl.exp(peak - highest), 0)
        log_total = tl.log(all_lanes)

        weights = tl.zeros([TARGETS], tl.float32)
        for start in range(first, last, TARGETS):
            target = start + each
            inside = target < last
            at = tl.load(token + target, mask=inside, other=0)
            # A token out of range makes the loss not a number, rather than harm other memory.
            valid = inside & (at >= 0) & (at < vocabulary)
            x = tl.load(logits + at, mask=valid, other=float("nan")).to(tl.float32)
            tl.store(log_prob + target, x - highest - log_total, mask=inside)
            weights += tl.load(weight + target, mask=inside, other=0.0)

        if gradient:
            row_total = tl.sum(weights, 0)
            factor = row_total / all_lanes
            tl.debug_barrier()  # the logits of the targets have been read
            for start in range(0, padded, LANES * 8):
                column = start + eight
                x = tl.load(logits + column, mask=column < padded, other=0.0).to(tl.float32)
                x = tl.where(column < vocabulary, x, -float("inf"))
                dense = (tl.exp(x - highest) * factor).to(logits.dtype.element_ty)
                tl.store(logits + column, dense, mask=column < padded)
            tl.debug_barrier()  # what now is written over has been written
            for start in range(first, last, TARGETS):
                target = start + each
                inside = target < last
                at = tl.load(token + target, mask=inside, other=0)
                valid = inside & (at >= 0) & (at < vocabulary)
                dense = row_total * tl.exp(tl.load(log_prob + target, mask=inside, other=0.0))
                # Targets of the same token all write the same number.
                value = dense - tl.load(pooled + target, mask=inside, other=0.0)
                tl.store(logits + at, value.to(logits.dtype.element_ty), mask=valid)
    elif gradient:
        nothing = tl.zeros([LANES, 8], logits.dtype.element_ty)
        for start in range(0, padded, LANES * 8):
            column = start + eight
            tl.store(logits + column, nothing, mask=column < padded)


# The numbers change with every batch: one build for all.
@triton.jit(do_not_specialize=["targets", "rows"])
def pool(
    row,
    token,
    weight,
    starts,
    pooled,
    targets,
    rows,
    TARGETS: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Sum, for `TARGETS` targets sorted by row, the weights of those of the same row and token."""
    begin = tl.program_id(0) * TARGETS
    target = begin + tl.arange(0, TARGETS)
    inside = target < targets
    row_1 = tl.load(row + target, mask=inside, other=-1)
    token_1 = tl.load(token + target, mask=inside, other=-1)
    # Their equals are all among the targets of the rows from the first one's to the last one's.
    lowest = tl.maximum(tl.load(row + begin).to(tl.int32), 0)
    highest = tl.load(row + tl.minimum(begin + TARGETS, targets) - 1).to(tl.int32)
    first = tl.load(starts + tl.minimum(lowest, rows - 1))
    last = tl.load(starts + tl.minimum(tl.maximum(highest, 0), rows - 1) + 1)
    total = tl.zeros([TARGETS], tl.float32)
    for start in range(first, last, OTHERS):
        other = start + tl.arange(0, OTHERS)
        there = other < last
        row_2 = tl.load(row + other, mask=there, other=-2)
        token_2 = tl.load(token + other, mask=there, other=-2)
        weight_2 = tl.load(weight + other, mask=there, other=0.0)
        same = (row_1[:, None] == row_2[None, :]) & (token_1[:, None] == token_2[None, :])
        total += tl.sum(tl.where(same, weight_2[None, :], 0.0), 1)
    tl.store(pooled + target, total, mask=inside)
