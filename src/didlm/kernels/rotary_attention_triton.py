"""The Triton kernels of `rotary_attention`: imported only where they run.

Queries and keys are rotated once, where they stand, by a kernel of their own, and kept so for the
backward pass: rotated where they are used, every key would be rotated by every tile of queries, and
neither could be copied straight to where the tensor cores read. The other kernels then give every
tile of one head of one sequence a program, which goes through the other rows of the sequence.

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

from didlm.kernels.slots import Slots
from didlm.kernels.slots_triton import placed

LOG2_E = math.log2(math.e)
ROTATED_ROWS, ROTATED_HEADS = 16, 8  # by one program: enough loads in flight, few angles read


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts its work.

    Registers matter for how many programs a multiprocessor holds, and nothing but other programs
    hides the time that one waits.
    """

    held: int  # rows of the tile of a program
    step: int  # rows it goes through at a time
    warps: int
    stages: int  # copies in flight
    registers: int | None = None  # at most so many


@dataclass(frozen=True)
class Tilings:
    """The tilings of the three kernels."""

    forward: Tiling
    queries: Tiling
    keys: Tiling


# By channels per head. Of a tile of 64 rows several programs fit a multiprocessor side by side.
# Those of 64 channels are the fastest of a sweep on an H200, the others a guess from an earlier
# version of the kernels.
TILINGS = {
    32: Tilings(Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3)),
    64: Tilings(Tiling(64, 64, 4, 2), Tiling(64, 32, 4, 3), Tiling(64, 32, 4, 3, registers=128)),
    128: Tilings(Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 2)),
}


def forward(
    qkv: Tensor, cosine: Tensor, sine: Tensor, slots: Slots, causal: bool
) -> tuple[Tensor, Tensor]:
    """The mixtures [T, H, C], and for `backward` the log-sum-exps; queries and keys are rotated.

    Args:
        qkv: [T, 3, H, C], contiguous; see `rotate_`.
        cosine: [T, 1, C / 2] float32, contiguous.
        sine: the same.
        slots: of the batch.
        causal: whether a row sees only the rows before it and itself.
    """
    rotate_(qkv, cosine, sine)
    return attended(qkv, slots, causal, TILINGS[qkv.shape[-1]].forward)


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


def rotate_(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate queries and keys where they stand; the queries also become log2(e) / sqrt(C) times."""
    rows, _, heads, channels = qkv.shape
    if rows:
        grid = triton.cdiv(rows, ROTATED_ROWS), triton.cdiv(2 * heads, ROTATED_HEADS)
        scale = LOG2_E / math.sqrt(channels)
        with torch.cuda.device_of(qkv):
            _rotate[grid](
                qkv, cosine, sine, scale, rows, heads, channels, ROTATED_ROWS, ROTATED_HEADS
            )


def attended(qkv: Tensor, slots: Slots, causal: bool, tiling: Tiling) -> tuple[Tensor, Tensor]:
    """The mixtures [T, H, C], and the log-sum-exps of the scores where `_numbers_of` says."""
    rows, _, heads, channels = qkv.shape
    mixed = qkv.new_empty(rows, heads, channels)
    aligned = heads, slots.count(4), 4
    log_sums = qkv.new_empty(aligned, dtype=torch.float32)
    if rows:
        _launch(
            _forward, tiling, qkv, slots, causal,
            qkv, _steps(qkv, tiling), mixed, log_sums,
        )  # fmt: skip
    return mixed, log_sums


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
        _launch(
            _backward_queries, tiling, qkv, slots, causal,
            qkv, _steps(qkv, tiling), *rotation,
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
        _launch(
            _backward_keys, tiling, qkv, slots, causal,
            qkv, _steps(qkv, tiling), _steps(mixed_grad, tiling), *rotation,
            _numbers(log_sums, tiling), _numbers(deltas, tiling), gradient, 1 / LOG2_E,
        )  # fmt: skip


def _launch(
    kernel: Any, tiling: Tiling, qkv: Tensor, slots: Slots, causal: bool, *arguments: Any
) -> None:
    """One program for each head of each slot."""
    rows, _, heads, channels = qkv.shape
    with torch.cuda.device_of(qkv):
        kernel[(slots.count(tiling.held) * heads,)](
            *arguments,
            slots.table(tiling.held),
            slots.offsets,
            rows,
            slots.offsets.numel() - 1,
            heads,
            channels,
            causal,
            tiling.held,
            tiling.step,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
            maxnreg=tiling.registers,
        )


def _steps(rows: Tensor, tiling: Tiling) -> TensorDescriptor:
    """For copies of some rows of one head at a time.

    They run past the end of a sequence, into the next or, at the very end, zeros: what comes from
    there gets no weight, which is enough as long as it is finite.
    """
    return TensorDescriptor.from_tensor(rows.flatten(1), [tiling.step, rows.shape[-1]])


def _numbers(numbers: Tensor, tiling: Tiling) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(numbers.flatten(), [tiling.step])


@triton.jit
def _numbers_of(head, sequence, begin, rows, sequences):
    """Where the numbers of the rows of a sequence start: at a multiple of 16 bytes.

    The copy engine wants that. They lie in [H, T // 4 + S, 4], in slots of 4.
    """
    return (head * (rows // 4 + sequences) + begin // 4 + sequence) * 4


@triton.jit
def _tile(base, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Rows [., C] of one head, counted from the first row of the sequence, at `base`."""
    pointers = base + place[:, None] * STRIDE + tl.arange(0, CHANNELS)[None, :]
    return tl.load(pointers, mask=place[:, None] < length, other=0.0)


@triton.jit
def _store_tile(base, tile, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    pointers = base + place[:, None] * STRIDE + tl.arange(0, CHANNELS)[None, :]
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=place[:, None] < length)


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
    _store_tile(base, one * cosines + two * sines, place, length, STRIDE, HALF)
    _store_tile(base + HALF, two * cosines - one * sines, place, length, STRIDE, HALF)


@triton.jit(do_not_specialize=["rows"])
def _rotate(
    qkv,
    cosine,
    sine,
    scale,
    rows,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Queries and keys are alike, 2 H heads side by side; only the queries are scaled."""
    HALF: tl.constexpr = CHANNELS // 2
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None, None]
    head = tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER)[None, :, None]
    channel = tl.arange(0, HALF)[None, None, :]
    cosines = tl.load(cosine + row * HALF + channel, mask=row < rows, other=0.0)
    sines = tl.load(sine + row * HALF + channel, mask=row < rows, other=0.0)
    inside = (row < rows) & (head < 2 * HEADS)
    source = qkv + row * (3 * HEADS * CHANNELS) + head * CHANNELS + channel
    one = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    factor = tl.where(head < HEADS, scale, 1.0)
    kind = qkv.dtype.element_ty
    tl.store(source, ((one * cosines - two * sines) * factor).to(kind), mask=inside)
    tl.store(source + HALF, ((one * sines + two * cosines) * factor).to(kind), mask=inside)


@triton.jit
def _attend(
    total,
    largest,
    mixture,
    query,
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
    """Let the queries of a tile see the keys from `first` to `last`."""
    for start in range(first, last, STEP):
        key = others.load([begin + start, WIDTH + column])
        scores = tl.dot(query, tl.trans(key))
        if MASKED:
            there = start + tl.arange(0, STEP)
            seen = there[None, :] < length
            if CAUSAL:
                seen = seen & (there[None, :] <= place[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        value = others.load([begin + start, 2 * WIDTH + column])
        mixture = tl.dot(weights.to(value.dtype), value, mixture * shrink[:, None])
        largest = larger
    return total, largest, mixture


@triton.jit(do_not_specialize=["rows", "sequences"])
def _forward(
    qkv,
    others,
    mixed,
    log_sums,
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
    """The mixtures and log-sum-exps; `others` are the rows of `qkv`, for copies."""
    WIDTH: tl.constexpr = HEADS * CHANNELS
    head = tl.program_id(0) % HEADS
    sequence, begin, length, start = placed(table, offsets, tl.program_id(0) // HEADS, HELD)
    if start >= length:
        return
    row = begin.to(tl.int64)
    column = head * CHANNELS
    place = start + tl.arange(0, HELD)
    query = _tile(qkv + row * 3 * WIDTH + column, place, length, 3 * WIDTH, CHANNELS)

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
    total, largest, mixture = _attend(
        total, largest, mixture, query, others, begin, column, place, length, 0, whole,
        WIDTH, STEP, False, CAUSAL,
    )  # fmt: skip
    total, largest, mixture = _attend(
        total, largest, mixture, query, others, begin, column, place, length, whole, last,
        WIDTH, STEP, True, CAUSAL,
    )  # fmt: skip

    here = _numbers_of(head, sequence, begin, rows, sequences) + place
    tl.store(log_sums + here, largest + tl.log2(total), mask=place < length)
    mixture = mixture / total[:, None]
    _store_tile(mixed + row * WIDTH + column, mixture, place, length, WIDTH, CHANNELS)


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
    query = _tile(qkv + row * 3 * WIDTH + column, place, length, 3 * WIDTH, CHANNELS)
    grad = _tile(mixed_grad + row * WIDTH + column, place, length, WIDTH, CHANNELS)
    mixture = _tile(mixed + row * WIDTH + column, place, length, WIDTH, CHANNELS)
    delta = tl.sum(grad.to(tl.float32) * mixture.to(tl.float32), 1)
    here = _numbers_of(head, sequence, begin, rows, sequences) + place
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
    number = _numbers_of(head, sequence, begin, rows, sequences)
    place = start + tl.arange(0, HELD)
    key = _tile(qkv + row * 3 * WIDTH + WIDTH + column, place, length, 3 * WIDTH, CHANNELS)
    value = _tile(qkv + row * 3 * WIDTH + 2 * WIDTH + column, place, length, 3 * WIDTH, CHANNELS)

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
    _store_tile(gradient + 2 * WIDTH, value_grad, place, length, 3 * WIDTH, CHANNELS)
    _store_turned_back(
        gradient + WIDTH, key_grad * scale, cosine + row * HALF, sine + row * HALF,
        place, length, HELD, 3 * WIDTH, CHANNELS,
    )  # fmt: skip
