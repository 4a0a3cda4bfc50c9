"""The Triton kernels of `rotary_attention`: imported only where they run.

Keys are rotated once, where they stand, by a kernel of their own: rotated where they are used, each
would be rotated by every tile of queries, and could not be copied straight to where the tensor
cores read. The other kernel gives every tile of one head of one sequence a program, which rotates
its queries, puts them back for the backward pass, and goes through the rows of the sequence.

The scores are kept in units of log 2, for exp2: the factor log2(e) / sqrt(C) is part of the rotated
queries, and log-sum-exps are to base 2.

Legend: T rows, S sequences, H heads, C channels per head; Q and K rows of a tile.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from didlm.kernels.rotary_tiles_triton import (
    TILINGS,
    Tiling,
    launch,
    numbers_of,
    steps,
    store_tile,
)
from didlm.kernels.slots import Slots
from didlm.kernels.slots_triton import placed

LOG2_E = math.log2(math.e)
ROTATED_ROWS, ROTATED_HEADS = 16, 8  # by one program: enough loads in flight, few angles read


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
    rotate_keys_(qkv, cosine, sine)
    return attended(qkv, cosine, sine, slots, causal, TILINGS[qkv.shape[-1]].forward)


def rotate_keys_(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate the keys where they stand."""
    rows, _, heads, channels = qkv.shape
    if rows:
        grid = triton.cdiv(rows, ROTATED_ROWS), triton.cdiv(heads, ROTATED_HEADS)
        with torch.cuda.device_of(qkv):
            _rotate_keys[grid](
                qkv, cosine, sine, rows, heads, channels, ROTATED_ROWS, ROTATED_HEADS
            )


def attended(
    qkv: Tensor, cosine: Tensor, sine: Tensor, slots: Slots, causal: bool, tiling: Tiling
) -> tuple[Tensor, Tensor]:
    """The mixtures [T, H, C], and the log-sum-exps of the scores where `numbers_of` says.

    Rotates the queries where they stand; they also become log2(e) / sqrt(C) times themselves.
    """
    rows, _, heads, channels = qkv.shape
    mixed = qkv.new_empty(rows, heads, channels)
    aligned = heads, slots.count(4), 4
    log_sums = qkv.new_empty(aligned, dtype=torch.float32)
    if rows:
        launch(
            _forward, tiling, qkv, slots, causal,
            qkv, cosine, sine, LOG2_E / math.sqrt(channels), steps(qkv, tiling), mixed, log_sums,
        )  # fmt: skip
    return mixed, log_sums


@triton.jit(do_not_specialize=["rows"])
def _rotate_keys(
    qkv,
    cosine,
    sine,
    rows,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Some rows of some heads."""
    HALF: tl.constexpr = CHANNELS // 2
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None, None]
    head = tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER)[None, :, None]
    channel = tl.arange(0, HALF)[None, None, :]
    cosines = tl.load(cosine + row * HALF + channel, mask=row < rows, other=0.0)
    sines = tl.load(sine + row * HALF + channel, mask=row < rows, other=0.0)
    inside = (row < rows) & (head < HEADS)
    source = qkv + row * (3 * HEADS * CHANNELS) + (HEADS + head) * CHANNELS + channel
    one = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    kind = qkv.dtype.element_ty
    tl.store(source, (one * cosines - two * sines).to(kind), mask=inside)
    tl.store(source + HALF, (one * sines + two * cosines).to(kind), mask=inside)


@triton.jit
def _rotated_queries(
    base, cosine, sine, scale, row, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr
):
    """The queries [Q, C] of a tile, which are rotated where they stand."""
    HALF: tl.constexpr = CHANNELS // 2
    channel = tl.arange(0, HALF)[None, :]
    angle = (row + place[:, None]) * HALF + channel
    there = place[:, None] < length
    cosines = tl.load(cosine + angle, mask=there, other=0.0) * scale
    sines = tl.load(sine + angle, mask=there, other=0.0) * scale
    source = base + place[:, None] * STRIDE + channel
    one = tl.load(source, mask=there, other=0.0).to(tl.float32)
    two = tl.load(source + HALF, mask=there, other=0.0).to(tl.float32)
    kind = base.dtype.element_ty
    first = (one * cosines - two * sines).to(kind)
    second = (one * sines + two * cosines).to(kind)
    tl.store(source, first, mask=there)
    tl.store(source + HALF, second, mask=there)
    side_by_side = tl.permute(tl.join(first, second), [0, 2, 1])  # [Q, 2, C / 2]
    return tl.reshape(side_by_side, [place.shape[0], CHANNELS])


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
    cosine,
    sine,
    scale,
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
    query = _rotated_queries(
        qkv + row * 3 * WIDTH + column, cosine, sine, scale, row, place, length,
        3 * WIDTH, CHANNELS,
    )  # fmt: skip

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

    here = numbers_of(head, sequence, begin, rows, sequences) + place
    tl.store(log_sums + here, largest + tl.log2(total), mask=place < length)
    mixture = mixture / total[:, None]
    store_tile(mixed + row * WIDTH + column, mixture, place, length, WIDTH, CHANNELS)
