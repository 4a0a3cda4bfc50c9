"""The Triton kernels of `rotary_attention`: imported only where they run.

A program takes a tile of rows of one sequence and one head, and goes through the other rows of the
sequence. What it goes through must lie in memory ready to be multiplied, or the copies could not
run ahead of the matrix products: so the keys are rotated once before, and the backward pass leaves
the rotated queries behind for its second half. What a program holds it rotates itself.

The scores are kept in units of log 2, for exp2: the factor log2(e) / sqrt(C) is part of the rotated
queries, and log-sum-exps are to base 2.

The backward pass goes through the scores twice, for the queries and for the keys and values, so
that no two programs add to one number: it is deterministic and needs no float32 copy of dq.

Legend: T rows, S sequences, H heads, C channels per head; Q and K rows of a tile.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)
ROTATED_ROWS = 64  # of the keys, by one program


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts its work: rows held, rows taken per step, warps, and copies in flight."""

    held: int
    step: int
    warps: int
    stages: int
    described: bool = False
    registers: int | None = None


@dataclass(frozen=True)
class Tilings:
    """The tilings of the three kernels."""

    forward: Tiling
    queries: Tiling
    keys: Tiling


TILINGS = {
    32: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 3)),
    64: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 3)),
    128: Tilings(Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 2), Tiling(128, 64, 8, 2)),
}


def forward(
    qkv: Tensor, cosine: Tensor, sine: Tensor, offsets: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The mixtures [T, H, C], the log-sum-exps of the scores [H, T] and the rotated keys [T, H, C].

    Args:
        qkv: [T, 3, H, C], contiguous.
        cosine: [T, 1, C / 2] float32, contiguous.
        sine: the same.
        offsets: [S + 1].
        causal: whether a row sees only the rows before it and itself.
    """
    keys = rotated_keys(qkv, cosine, sine)
    tiling = TILINGS[qkv.shape[-1]].forward
    mixed, log_sums = mixtures(qkv, cosine, sine, offsets, keys, causal, tiling)
    return mixed, log_sums, keys


def backward(
    mixed_grad: Tensor,
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    offsets: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    keys: Tensor,
    causal: bool,
) -> Tensor:
    """The gradient of `qkv` [T, 3, H, C], from that of the mixtures; the rest is `forward`'s."""
    gradient, tilings = torch.empty_like(qkv), TILINGS[qkv.shape[-1]]
    queries, deltas = add_query_gradient(
        gradient, mixed_grad, qkv, cosine, sine, offsets, mixed, log_sums, keys, causal, tilings.queries
    )
    add_key_gradients(
        gradient, mixed_grad, qkv, cosine, sine, offsets, log_sums, keys, queries, deltas, causal, tilings.keys
    )
    return gradient


def rotated_keys(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The rotated keys [T, H, C]."""
    rows, _, heads, channels = qkv.shape
    keys = qkv.new_empty(rows, heads, channels)
    if rows:
        with torch.cuda.device_of(qkv):
            _rotate_keys[(triton.cdiv(rows, ROTATED_ROWS) * heads,)](
                qkv, cosine, sine, keys, rows, heads, channels, ROTATED_ROWS
            )
    return keys


def mixtures(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    offsets: Tensor,
    keys: Tensor,
    causal: bool,
    tiling: Tiling,
) -> tuple[Tensor, Tensor]:
    """The mixtures [T, H, C] and the log-sum-exps [H, T]."""
    rows, _, heads, channels = qkv.shape
    mixed, log_sums = torch.empty_like(keys), keys.new_empty(heads, rows, dtype=torch.float32)
    _launch(
        _forward, tiling, offsets, qkv, causal,
        qkv, _described(keys, tiling), _described(qkv, tiling), cosine, sine, offsets,
        mixed, log_sums, LOG2_E / math.sqrt(channels),
    )  # fmt: skip
    return mixed, log_sums


def add_query_gradient(
    gradient: Tensor,
    mixed_grad: Tensor,
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    offsets: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    keys: Tensor,
    causal: bool,
    tiling: Tiling,
) -> tuple[Tensor, Tensor]:
    """Fill in the part of the queries; the rotated queries [T, H, C] and the deltas [H, T]."""
    channels = qkv.shape[-1]
    queries, deltas = torch.empty_like(keys), torch.empty_like(log_sums)
    _launch(
        _backward_queries, tiling, offsets, qkv, causal,
        mixed_grad, qkv, _described(keys, tiling), _described(qkv, tiling), cosine, sine, offsets,
        mixed, log_sums, queries, deltas, gradient,
        LOG2_E / math.sqrt(channels), 1 / math.sqrt(channels),
    )  # fmt: skip
    return queries, deltas


def add_key_gradients(
    gradient: Tensor,
    mixed_grad: Tensor,
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    offsets: Tensor,
    log_sums: Tensor,
    keys: Tensor,
    queries: Tensor,
    deltas: Tensor,
    causal: bool,
    tiling: Tiling,
) -> None:
    """Fill in the parts of the keys and values."""
    _launch(
        _backward_keys, tiling, offsets, qkv, causal,
        _described(mixed_grad, tiling), qkv, keys, _described(queries, tiling), cosine, sine,
        offsets, log_sums, deltas, gradient, 1 / LOG2_E,
    )  # fmt: skip


def _launch(kernel: Any, tiling: Tiling, offsets: Tensor, qkv: Tensor, causal: bool, *arguments: Any) -> None:
    """One program for each head of each slot; `_locate` says which tile a slot is."""
    rows, _, heads, channels = qkv.shape
    sequences = offsets.numel() - 1
    if not rows:
        return
    with torch.cuda.device_of(qkv):
        kernel[((rows // tiling.held + sequences) * heads,)](
            *arguments,
            rows,
            sequences,
            heads,
            channels,
            causal,
            tiling.held,
            tiling.step,
            tiling.described,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
            maxnreg=tiling.registers,
        )


def _described(rows: Tensor, tiling: Tiling):
    if not tiling.described:
        return rows
    channels = rows.shape[-1]
    return TensorDescriptor.from_tensor(rows.flatten(1), [tiling.step, channels])


@triton.jit
def _locate(offsets, slot, sequences, BLOCK: tl.constexpr):
    """The first row and the length of the sequence of a slot, and where in it the tile starts.

    Sequence s has the slots from offsets[s] // BLOCK + s to offsets[s + 1] // BLOCK + s, both
    included: enough for its tiles, and at most one too many, which starts past its end. That needs
    no sums over the sequences before, and the number of slots is known without their lengths.
    """
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(offsets + middle).to(tl.int32) // BLOCK + middle
        if first <= slot:
            low = middle
        else:
            high = middle
    begin = tl.load(offsets + low).to(tl.int32)
    end = tl.load(offsets + low + 1).to(tl.int32)
    return begin, end - begin, (slot - begin // BLOCK - low) * BLOCK


@triton.jit
def _tile(base, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, MASKED: tl.constexpr):
    """Rows [., C] of one head, from the first row of the sequence at `base`."""
    pointers = base + place[:, None] * STRIDE + tl.arange(0, CHANNELS)[None, :]
    if MASKED:
        return tl.load(pointers, mask=place[:, None] < length, other=0.0)
    return tl.load(pointers)


@triton.jit
def _step(
    source,
    row,
    column,
    start,
    length,
    STEP: tl.constexpr,
    STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    MASKED: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """Rows [., C] of one head from `start` on in the sequence that begins at `row`."""
    if DESCRIBED:
        return source.load([row.to(tl.int32) + start, column])
    else:
        return _tile(source + row * STRIDE + column, start + tl.arange(0, STEP), length, STRIDE, CHANNELS, MASKED)


@triton.jit
def _angles(cosine, sine, place, length, HALF: tl.constexpr):
    """Cosines and sines [., C / 2] of rows, from the first row of the sequence."""
    where = place[:, None] * HALF + tl.arange(0, HALF)[None, :]
    inside = place[:, None] < length
    return tl.load(cosine + where, mask=inside, other=1.0), tl.load(
        sine + where, mask=inside, other=0.0
    )


@triton.jit
def _rotated(
    base, cosines, sines, place, length, STRIDE: tl.constexpr, HALF: tl.constexpr
):
    """Both halves [., C / 2] of rows, rotated, in float32."""
    pointers = base + place[:, None] * STRIDE + tl.arange(0, HALF)[None, :]
    inside = place[:, None] < length
    first = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(pointers + HALF, mask=inside, other=0.0).to(tl.float32)
    return first * cosines - second * sines, first * sines + second * cosines


@triton.jit
def _joined(first, second, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Two halves side by side [., C]."""
    return tl.reshape(tl.permute(tl.join(first, second), (0, 2, 1)), (ROWS, CHANNELS))


@triton.jit
def _store_turned_back(
    base,
    vectors,
    cosines,
    sines,
    place,
    length,
    ROWS: tl.constexpr,
    STRIDE: tl.constexpr,
    HALF: tl.constexpr,
):
    """Write gradients [., C] of rotated rows as those of the rows themselves."""
    first, second = tl.split(tl.permute(tl.reshape(vectors, (ROWS, 2, HALF)), (0, 2, 1)))
    pointers = base + place[:, None] * STRIDE + tl.arange(0, HALF)[None, :]
    inside = place[:, None] < length
    kind = base.dtype.element_ty
    tl.store(pointers, (first * cosines + second * sines).to(kind), mask=inside)
    tl.store(pointers + HALF, (second * cosines - first * sines).to(kind), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _rotate_keys(
    qkv, cosine, sine, keys, rows, HEADS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr
):
    HALF: tl.constexpr = CHANNELS // 2
    head = tl.program_id(0) % HEADS
    start = (tl.program_id(0) // HEADS).to(tl.int64) * ROWS
    place = tl.arange(0, ROWS)
    left = rows - start
    cosines, sines = _angles(cosine + start * HALF, sine + start * HALF, place, left, HALF)
    source = qkv + start * (3 * HEADS * CHANNELS) + (HEADS + head) * CHANNELS
    first, second = _rotated(source, cosines, sines, place, left, 3 * HEADS * CHANNELS, HALF)
    pointers = keys + start * (HEADS * CHANNELS) + head * CHANNELS
    pointers += place[:, None] * (HEADS * CHANNELS) + tl.arange(0, HALF)[None, :]
    inside = place[:, None] < left
    tl.store(pointers, first.to(keys.dtype.element_ty), mask=inside)
    tl.store(pointers + HALF, second.to(keys.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    query,
    total,
    largest,
    mixture,
    keys,
    values,
    row,
    key_column,
    value_column,
    place,
    length,
    first,
    last,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STEP: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """Let the queries of a tile see the keys from `first` to `last`."""
    for start in range(first, last, STEP):
        there = start + tl.arange(0, STEP)
        key = _step(keys, row, key_column, start, length, STEP, HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        scores = tl.dot(query, tl.trans(key))
        if MASKED:
            seen = there[None, :] < length
            if CAUSAL:
                seen = seen & (there[None, :] <= place[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        value = _step(values, row, value_column, start, length, STEP, 3 * HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        mixture = tl.dot(weights.to(value.dtype), value, mixture * shrink[:, None])
        largest = larger
    return total, largest, mixture


@triton.jit(do_not_specialize=["rows", "sequences"])
def _forward(
    qkv,
    keys,
    values,
    cosine,
    sine,
    offsets,
    mixed,
    log_sums,
    scale,
    rows,
    sequences,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HELD: tl.constexpr,
    STEP: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    HALF: tl.constexpr = CHANNELS // 2
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    begin, length, start = _locate(offsets, tl.program_id(0) // HEADS, sequences, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    place = start + tl.arange(0, HELD)
    qkv += row * 3 * WIDTH + head * CHANNELS
    cosines, sines = _angles(cosine + row * HALF, sine + row * HALF, place, length, HALF)
    one, two = _rotated(qkv, cosines, sines, place, length, 3 * WIDTH, HALF)
    kind = mixed.dtype.element_ty
    query = _joined((one * scale).to(kind), (two * scale).to(kind), HELD, CHANNELS)

    total = tl.zeros([HELD], tl.float32)
    largest = tl.full([HELD], -float("inf"), tl.float32)
    mixture = tl.zeros([HELD, CHANNELS], tl.float32)
    # Keys that all queries see need no mask: only the last tile, or those at the diagonal, do.
    if CAUSAL:
        whole = start // STEP * STEP
        last = tl.minimum(start + HELD, length)
    else:
        whole = length // STEP * STEP
        last = length
    column = head * CHANNELS
    total, largest, mixture = _attend(
        query, total, largest, mixture, keys, values, row, column, 2 * WIDTH + column, place, length, 0, whole,
        HEADS, CHANNELS, STEP, False, CAUSAL, DESCRIBED,
    )  # fmt: skip
    total, largest, mixture = _attend(
        query, total, largest, mixture, keys, values, row, column, 2 * WIDTH + column, place, length, whole, last,
        HEADS, CHANNELS, STEP, True, CAUSAL, DESCRIBED,
    )  # fmt: skip

    inside = place < length
    tl.store(log_sums + head.to(tl.int64) * rows + row + place, largest + tl.log2(total), mask=inside)
    pointers = mixed + row * WIDTH + head * CHANNELS
    pointers += place[:, None] * WIDTH + tl.arange(0, CHANNELS)[None, :]
    tl.store(pointers, (mixture / total[:, None]).to(kind), mask=inside[:, None])


@triton.jit
def _add_query_grad(
    query_grad,
    query,
    mixed_grad,
    log_sum,
    delta,
    keys,
    values,
    row,
    key_column,
    value_column,
    place,
    length,
    first,
    last,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STEP: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """What the keys from `first` to `last` add to the gradient of the rotated queries of a tile."""
    for start in range(first, last, STEP):
        there = start + tl.arange(0, STEP)
        key = _step(keys, row, key_column, start, length, STEP, HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        value = _step(values, row, value_column, start, length, STEP, 3 * HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        scores = tl.dot(query, tl.trans(key))
        weights_grad = tl.dot(mixed_grad, tl.trans(value))
        if MASKED:
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
    mixed_grad,
    qkv,
    keys,
    values,
    cosine,
    sine,
    offsets,
    mixed,
    log_sums,
    queries,
    deltas,
    gradient,
    scale,
    grad_scale,
    rows,
    sequences,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HELD: tl.constexpr,
    STEP: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """The gradient of the queries; leaves the rotated queries and the deltas for the other half."""
    HALF: tl.constexpr = CHANNELS // 2
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    begin, length, start = _locate(offsets, tl.program_id(0) // HEADS, sequences, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    place = start + tl.arange(0, HELD)
    inside = place < length
    channel = tl.arange(0, CHANNELS)
    here = row * WIDTH + head * CHANNELS
    kind = queries.dtype.element_ty

    qkv += row * 3 * WIDTH + head * CHANNELS
    cosines, sines = _angles(cosine + row * HALF, sine + row * HALF, place, length, HALF)
    one, two = _rotated(qkv, cosines, sines, place, length, 3 * WIDTH, HALF)
    query = _joined((one * scale).to(kind), (two * scale).to(kind), HELD, CHANNELS)
    pointers = queries + here + place[:, None] * WIDTH + channel[None, :]
    tl.store(pointers, query, mask=inside[:, None])

    grad = _tile(mixed_grad + here, place, length, WIDTH, CHANNELS, True)
    mixture = _tile(mixed + here, place, length, WIDTH, CHANNELS, True)
    delta = tl.sum(grad.to(tl.float32) * mixture.to(tl.float32), 1)
    of_row = head.to(tl.int64) * rows + row + place
    tl.store(deltas + of_row, delta, mask=inside)
    log_sum = tl.load(log_sums + of_row, mask=inside, other=float("inf"))

    query_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    if CAUSAL:
        whole = start // STEP * STEP
        last = tl.minimum(start + HELD, length)
    else:
        whole = length // STEP * STEP
        last = length
    column = head * CHANNELS
    query_grad = _add_query_grad(
        query_grad, query, grad, log_sum, delta, keys, values, row, column, 2 * WIDTH + column, place, length, 0, whole,
        HEADS, CHANNELS, STEP, False, CAUSAL, DESCRIBED,
    )  # fmt: skip
    query_grad = _add_query_grad(
        query_grad, query, grad, log_sum, delta, keys, values, row, column, 2 * WIDTH + column, place, length, whole, last,
        HEADS, CHANNELS, STEP, True, CAUSAL, DESCRIBED,
    )  # fmt: skip
    # Read again: kept through the loop, they would take registers that it needs.
    cosines, sines = _angles(cosine + row * HALF, sine + row * HALF, place, length, HALF)
    _store_turned_back(
        gradient + row * 3 * WIDTH + head * CHANNELS,
        query_grad * grad_scale, cosines, sines, place, length, HELD, 3 * WIDTH, HALF,
    )  # fmt: skip


@triton.jit
def _add_key_grads(
    key_grad,
    value_grad,
    key,
    value,
    queries,
    mixed_grad,
    log_sums,
    deltas,
    row,
    column,
    place,
    length,
    first,
    last,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STEP: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """What the queries from `first` to `last` add to the gradients of the keys and values of a tile.

    The scores stand here with the keys in the rows [K, Q], so that weights and their gradients are
    multiplied from where they are computed, in registers.
    """
    for start in range(first, last, STEP):
        there = start + tl.arange(0, STEP)
        query = _step(queries, row, column, start, length, STEP, HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        grad = _step(mixed_grad, row, column, start, length, STEP, HEADS * CHANNELS, CHANNELS, MASKED, DESCRIBED)
        if MASKED:  # a query past the end gives no key any weight
            log_sum = tl.load(log_sums + there, mask=there < length, other=float("inf"))
            delta = tl.load(deltas + there, mask=there < length, other=0.0)
        else:
            log_sum = tl.load(log_sums + there)
            delta = tl.load(deltas + there)
        scores = tl.dot(key, tl.trans(query))
        weights = tl.exp2(scores - log_sum[None, :])
        if MASKED and CAUSAL:
            weights = tl.where(place[:, None] <= there[None, :], weights, 0.0)
        weights_grad = tl.dot(value, tl.trans(grad))
        value_grad = tl.dot(weights.to(grad.dtype), grad, value_grad)
        scores_grad = weights * (weights_grad - delta[None, :])
        key_grad = tl.dot(scores_grad.to(query.dtype), query, key_grad)
    return key_grad, value_grad


@triton.jit(do_not_specialize=["rows", "sequences"])
def _backward_keys(
    mixed_grad,
    qkv,
    keys,
    queries,
    cosine,
    sine,
    offsets,
    log_sums,
    deltas,
    gradient,
    grad_scale,
    rows,
    sequences,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HELD: tl.constexpr,
    STEP: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """The gradients of the keys and values."""
    HALF: tl.constexpr = CHANNELS // 2
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    begin, length, start = _locate(offsets, tl.program_id(0) // HEADS, sequences, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    place = start + tl.arange(0, HELD)
    here = row * WIDTH + head * CHANNELS
    there = row * 3 * WIDTH + head * CHANNELS
    key = _tile(keys + here, place, length, WIDTH, CHANNELS, True)
    value = _tile(qkv + there + 2 * WIDTH, place, length, 3 * WIDTH, CHANNELS, True)
    column = head * CHANNELS
    log_sums += head.to(tl.int64) * rows + row
    deltas += head.to(tl.int64) * rows + row

    key_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    value_grad = tl.zeros([HELD, CHANNELS], tl.float32)
    whole = length // STEP * STEP
    first = 0
    if CAUSAL:  # at the diagonal first
        first = tl.minimum(tl.cdiv(start + HELD, STEP) * STEP, whole)
        key_grad, value_grad = _add_key_grads(
            key_grad, value_grad, key, value, queries, mixed_grad, log_sums, deltas, row, column, place, length,
            start // STEP * STEP, first, HEADS, CHANNELS, STEP, True, True, DESCRIBED,
        )  # fmt: skip
    key_grad, value_grad = _add_key_grads(
        key_grad, value_grad, key, value, queries, mixed_grad, log_sums, deltas, row, column, place, length,
        first, whole, HEADS, CHANNELS, STEP, False, CAUSAL, DESCRIBED,
    )  # fmt: skip
    key_grad, value_grad = _add_key_grads(
        key_grad, value_grad, key, value, queries, mixed_grad, log_sums, deltas, row, column, place, length,
        whole, length, HEADS, CHANNELS, STEP, True, CAUSAL, DESCRIBED,
    )  # fmt: skip

    pointers = gradient + there + 2 * WIDTH + place[:, None] * (3 * WIDTH)
    pointers += tl.arange(0, CHANNELS)[None, :]
    kind = gradient.dtype.element_ty
    tl.store(pointers, value_grad.to(kind), mask=place[:, None] < length)
    cosines, sines = _angles(cosine + row * HALF, sine + row * HALF, place, length, HALF)
    _store_turned_back(
        gradient + there + WIDTH, key_grad * grad_scale, cosines, sines, place, length,
        HELD, 3 * WIDTH, HALF,
    )  # fmt: skip
