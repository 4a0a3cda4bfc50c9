"""The backward pass of `rotary_attention` in Triton: imported only where it runs.

It goes through the scores twice, for the queries and for the keys and values, so that no two
programs add to one number: it is deterministic and needs no float32 copy of dq.

Legend: T rows, S sequences, H heads, C channels per head; Q and K rows of a tile.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from didlm.kernels.rotary_attention_triton import LOG2_E
from didlm.kernels.rotary_tiles_triton import (
    TILINGS,
    Tiling,
    launch,
    numbers,
    numbers_of,
    steps,
    store_tile,
    tile_of,
)
from didlm.kernels.slots import Slots
from didlm.kernels.slots_triton import placed


def backward(
    mixed_grad: Tensor,
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    slots: Slots,
    mixed: Tensor,
    log_sums: Tensor,
    causal: bool,
) -> Tensor:
    """The gradient of what `qkv` [T, 3, H, C] was before `forward`, from that of the mixtures."""
    gradient, tilings = torch.empty_like(qkv), TILINGS[qkv.shape[-1]]
    rotation = cosine, sine
    deltas = fill_queries(
        gradient, mixed_grad, qkv, rotation, slots, mixed, log_sums, causal, tilings.queries
    )
    fill_keys(gradient, mixed_grad, qkv, rotation, slots, deltas, log_sums, causal, tilings.keys)
    return gradient


def fill_queries(
    gradient: Tensor,
    mixed_grad: Tensor,
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    slots: Slots,
    mixed: Tensor,
    log_sums: Tensor,
    causal: bool,
    tiling: Tiling,
) -> Tensor:
    """Write the gradient of the queries; the products of mixtures and their gradients."""
    deltas = torch.empty_like(log_sums)
    if len(qkv):
        launch(
            _backward_queries, tiling, qkv, slots, causal,
            qkv, steps(qkv, tiling), *rotation,
            mixed_grad, mixed, log_sums, deltas, gradient, 1 / math.sqrt(qkv.shape[-1]),
        )  # fmt: skip
    return deltas


def fill_keys(
    gradient: Tensor,
    mixed_grad: Tensor,
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    slots: Slots,
    deltas: Tensor,
    log_sums: Tensor,
    causal: bool,
    tiling: Tiling,
) -> None:
    """Write the gradients of the keys and values."""
    if len(qkv):
        launch(
            _backward_keys, tiling, qkv, slots, causal,
            qkv, steps(qkv, tiling), steps(mixed_grad, tiling), *rotation,
            numbers(log_sums, tiling), numbers(deltas, tiling), gradient, 1 / LOG2_E,
        )  # fmt: skip


@triton.jit
def _store_turned_back(
    base,
    tile,
    cosine,
    sine,
    place,
    length,
    ROWS: tl.constexpr,
    STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write gradients [., C] of rotated rows as those of the rows themselves."""
    HALF: tl.constexpr = CHANNELS // 2
    inside = place[:, None] < length
    angle = place[:, None] * HALF + tl.arange(0, HALF)[None, :]
    cosines = tl.load(cosine + angle, mask=inside, other=0.0)
    sines = tl.load(sine + angle, mask=inside, other=0.0)
    one, two = tl.split(tl.permute(tl.reshape(tile, (ROWS, 2, HALF)), (0, 2, 1)))
    store_tile(base, one * cosines + two * sines, place, length, STRIDE, HALF)
    store_tile(base + HALF, two * cosines - one * sines, place, length, STRIDE, HALF)


@triton.jit
def _add_query_grad(
    query_grad,
    query,
    grad,
    log_sum,
    delta,
    others,
    begin,
    column,
    place,
    length,
    first,
    last,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """What the keys from `first` to `last` add to the gradient of the rotated queries of a tile."""
    for start in range(first, last, STEP):
        key = others.load([begin + start, WIDTH + column])
        value = others.load([begin + start, 2 * WIDTH + column])
        scores = tl.dot(query, tl.trans(key))
        weights_grad = tl.dot(grad, tl.trans(value))
        if MASKED:
            there = start + tl.arange(0, STEP)
            seen = there[None, :] < length
            if CAUSAL:
                seen = seen & (there[None, :] <= place[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        weights = tl.exp2(scores - log_sum[:, None])
        scores_grad = weights * (weights_grad - delta[:, None])
        query_grad = tl.dot(scores_grad.to(key.dtype), key, query_grad)
    return query_grad


@triton.jit(do_not_specialize=["rows", "sequences"])
def _backward_queries(
    qkv,
    others,
    cosine,
    sine,
    mixed_grad,
    mixed,
    log_sums,
    deltas,
    gradient,
    scale,
    table,
    offsets,
    rows,
    sequences,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HELD: tl.constexpr,
    STEP: tl.constexpr,
):
    """The gradient of the queries, and for the other half the deltas."""
    HALF: tl.constexpr = CHANNELS // 2
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    sequence, begin, length, start = placed(table, offsets, tl.program_id(0) // HEADS, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    column = head * CHANNELS
    place = start + tl.arange(0, HELD)
    query = tile_of(qkv + row * 3 * WIDTH + column, place, length, 3 * WIDTH, CHANNELS)
    grad = tile_of(mixed_grad + row * WIDTH + column, place, length, WIDTH, CHANNELS)
    mixture = tile_of(mixed + row * WIDTH + column, place, length, WIDTH, CHANNELS)
    delta = tl.sum(grad.to(tl.float32) * mixture.to(tl.float32), 1)
    here = numbers_of(head, sequence, begin, rows, sequences) + place
    tl.store(deltas + here, delta, mask=place < length)
    log_sum = tl.load(log_sums + here, mask=place < length, other=float("inf"))

    query_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    if CAUSAL:
        whole = start // STEP * STEP
        last = tl.minimum(start + HELD, length)
    else:
        whole = length // STEP * STEP
        last = length
    query_grad = _add_query_grad(
        query_grad, query, grad, log_sum, delta, others, begin, column, place, length,
        0, whole, WIDTH, STEP, False, CAUSAL,
    )  # fmt: skip
    query_grad = _add_query_grad(
        query_grad, query, grad, log_sum, delta, others, begin, column, place, length,
        whole, last, WIDTH, STEP, True, CAUSAL,
    )  # fmt: skip
    _store_turned_back(
        gradient + row * 3 * WIDTH + column, query_grad * scale,
        cosine + row * HALF, sine + row * HALF, place, length, HELD, 3 * WIDTH, CHANNELS,
    )  # fmt: skip


@triton.jit
def _add_key_grads(
    key_grad,
    value_grad,
    key,
    value,
    queries,
    grads,
    log_sums,
    deltas,
    begin,
    column,
    number,
    place,
    length,
    first,
    last,
    STEP: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """What the queries from `first` to `last` add to the gradients of a tile of keys and values.

    The scores stand here with the keys in the rows [K, Q], so that weights and their gradients are
    multiplied from where they are computed, in registers.
    """
    for start in range(first, last, STEP):
        query = queries.load([begin + start, column])
        log_sum = log_sums.load([number + start])
        scores = tl.dot(key, tl.trans(query))
        if MASKED:
            there = start + tl.arange(0, STEP)
            # A query past the end gives no key any weight.
            log_sum = tl.where(there < length, log_sum, float("inf"))
        weights = tl.exp2(scores - log_sum[None, :])
        if MASKED and CAUSAL:
            weights = tl.where(place[:, None] <= there[None, :], weights, 0.0)
        grad = grads.load([begin + start, column])
        value_grad = tl.dot(weights.to(grad.dtype), grad, value_grad)
        delta = deltas.load([number + start])
        if MASKED:
            delta = tl.where(there < length, delta, 0.0)  # nothing has been written there
        weights_grad = tl.dot(value, tl.trans(grad))
        scores_grad = weights * (weights_grad - delta[None, :])
        key_grad = tl.dot(scores_grad.to(query.dtype), query, key_grad)
    return key_grad, value_grad


@triton.jit(do_not_specialize=["rows", "sequences"])
def _backward_keys(
    qkv,
    queries,
    grads,
    cosine,
    sine,
    log_sums,
    deltas,
    gradient,
    scale,
    table,
    offsets,
    rows,
    sequences,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HELD: tl.constexpr,
    STEP: tl.constexpr,
):
    """The gradients of the keys and values."""
    HALF: tl.constexpr = CHANNELS // 2
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    sequence, begin, length, start = placed(table, offsets, tl.program_id(0) // HEADS, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    column = head * CHANNELS
    number = numbers_of(head, sequence, begin, rows, sequences)
    place = start + tl.arange(0, HELD)
    key = tile_of(qkv + row * 3 * WIDTH + WIDTH + column, place, length, 3 * WIDTH, CHANNELS)
    value = tile_of(qkv + row * 3 * WIDTH + 2 * WIDTH + column, place, length, 3 * WIDTH, CHANNELS)

    key_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    value_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    whole = length // STEP * STEP
    first = 0
    if CAUSAL:  # at the diagonal first
        first = tl.minimum(tl.cdiv(start + HELD, STEP) * STEP, whole)
        key_grad, value_grad = _add_key_grads(
            key_grad, value_grad, key, value, queries, grads, log_sums, deltas,
            begin, column, number, place, length, start // STEP * STEP, first, STEP, True, True,
        )  # fmt: skip
    key_grad, value_grad = _add_key_grads(
        key_grad, value_grad, key, value, queries, grads, log_sums, deltas,
        begin, column, number, place, length, first, whole, STEP, False, CAUSAL,
    )  # fmt: skip
    key_grad, value_grad = _add_key_grads(
        key_grad, value_grad, key, value, queries, grads, log_sums, deltas,
        begin, column, number, place, length, whole, length, STEP, True, CAUSAL,
    )  # fmt: skip

    gradient += row * 3 * WIDTH + column
    store_tile(gradient + 2 * WIDTH, value_grad, place, length, 3 * WIDTH, CHANNELS)
    _store_turned_back(
        gradient + WIDTH, key_grad * scale, cosine + row * HALF, sine + row * HALF,
        place, length, HELD, 3 * WIDTH, CHANNELS,
    )  # fmt: skip
