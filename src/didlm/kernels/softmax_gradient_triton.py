"""The Triton kernels of `softmax_gradient`, in a file of their own: importing it needs Triton."""

import triton
import triton.language as tl
from triton import next_power_of_2

__all__ = ["arrange", "multiply", "next_power_of_2", "softmax_gradient"]


# A chunk's part of `starts` may begin anywhere: one build for all.
@triton.jit(do_not_specialize_on_alignment=["starts"])
def softmax_gradient(
    logits,
    starts,
    token,
    weight,
    pooled,
    log_prob,
    cost,
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
            # The load ends at `padded`, a round number: only so can it be 16 bytes wide. What it
            # brings is wanted once more; what the second one brings and writes is not.
            x = tl.load(
                logits + column, mask=column < padded, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            x = tl.where(column < vocabulary, x, -float("inf"))
            higher = tl.maximum(peak, tl.max(x, 1))
            total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
            peak = higher
        highest = tl.max(peak, 0)
        all_lanes = tl.sum(total * tl.exp(peak - highest), 0)
        log_total = tl.log(all_lanes)

        weights = tl.zeros([TARGETS], tl.float32)
        costs = tl.zeros([TARGETS], tl.float32)
        for start in range(first, last, TARGETS):
            target = start + each
            inside = target < last
            at = tl.load(token + target, mask=inside, other=0)
            # A token out of range makes the loss not a number, rather than harm other memory.
            valid = inside & (at >= 0) & (at < vocabulary)
            x = tl.load(logits + at, mask=valid, other=float("nan")).to(tl.float32)
            x = x - highest - log_total
            tl.store(log_prob + target, x, mask=inside)
            wanted = tl.load(weight + target, mask=inside, other=0.0)
            weights += wanted
            costs -= tl.where(wanted == 0.0, 0.0, wanted * x)  # nothing times infinity is nothing
        tl.store(cost + row, tl.sum(costs, 0))

        if gradient:
            row_total = tl.sum(weights, 0)
            factor = row_total / all_lanes
            tl.debug_barrier()  # the logits of the targets have been read
            for start in range(0, padded, LANES * 8):
                column = start + eight
                x = tl.load(
                    logits + column, mask=column < padded, other=0.0, eviction_policy="evict_first"
                ).to(tl.float32)
                x = tl.where(column < vocabulary, x, -float("inf"))
                dense = (tl.exp(x - highest) * factor).to(logits.dtype.element_ty)
                tl.store(
                    logits + column, dense, mask=column < padded, eviction_policy="evict_first"
                )
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
    else:
        tl.store(cost + row, 0.0)
        if gradient:
            nothing = tl.zeros([LANES, 8], logits.dtype.element_ty)
            for start in range(0, padded, LANES * 8):
                column = start + eight
                tl.store(logits + column, nothing, mask=column < padded)


# The numbers change with every batch: one build for all.
@triton.jit(do_not_specialize=["targets", "rows", "halvings"])
def arrange(
    row,
    token,
    weight,
    starts,
    pooled,
    targets,
    rows,
    halvings,
    SIZE: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """For `SIZE` rows, where their targets start; for `SIZE` targets, the weights of their equals.

    Equal are targets of the same row and token. The targets are sorted by row.
    """
    each = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(starts + each, _first_from(row, targets, halvings, each), mask=each <= rows)

    inside = each < targets
    row_1 = tl.load(row + each, mask=inside, other=-1).to(tl.int32)
    token_1 = tl.load(token + each, mask=inside, other=-1)
    # Their equals are all among the targets of the rows from the first one's to the last one's.
    first = tl.min(tl.where(inside, _first_from(row, targets, halvings, row_1), targets), 0)
    last = tl.max(tl.where(inside, _first_from(row, targets, halvings, row_1 + 1), 0), 0)
    total = tl.zeros([SIZE], tl.float32)
    for start in range(first, last, OTHERS):
        other = start + tl.arange(0, OTHERS)
        there = other < last
        row_2 = tl.load(row + other, mask=there, other=-2).to(tl.int32)
        token_2 = tl.load(token + other, mask=there, other=-2)
        weight_2 = tl.load(weight + other, mask=there, other=0.0)
        same = (row_1[:, None] == row_2[None, :]) & (token_1[:, None] == token_2[None, :])
        total += tl.sum(tl.where(same, weight_2[None, :], 0.0), 1)
    tl.store(pooled + each, total, mask=inside)


@triton.jit
def _first_from(row, targets, halvings, value):
    """The first target whose row is at least `value`, for each of several values, by bisection."""
    low = tl.zeros_like(value)
    high = low + targets
    for _ in range(halvings):
        middle = (low + high) // 2
        less = tl.load(row + middle, mask=low < high, other=0) < value
        found = low < high
        low = tl.where(found & less, middle + 1, low)
        high = tl.where(found & (less == 0), middle, high)
    return low


@triton.jit
def multiply(values, factor, products, count, SIZE: tl.constexpr):
    """Multiply all values by one factor in float32."""
    each = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = each < count
    value = tl.load(values + each, mask=inside).to(tl.float32) * tl.load(factor)
    tl.store(products + each, value.to(products.dtype.element_ty), mask=inside)
