"""How the kernels of `rotary_attention` cut their work, and reach the rows of a tile."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from didlm.kernels.slots import Slots


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


def launch(
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


def steps(rows: Tensor, tiling: Tiling) -> TensorDescriptor:
    """For copies of some rows of one head at a time.

    They run past the end of a sequence, into the next or, at the very end, zeros: what comes from
    there gets no weight, which is enough as long as it is finite.
    """
    return TensorDescriptor.from_tensor(rows.flatten(1), [tiling.step, rows.shape[-1]])


def numbers(of_rows: Tensor, tiling: Tiling) -> TensorDescriptor:
    """For copies of the numbers of some rows of one head at a time."""
    return TensorDescriptor.from_tensor(of_rows.flatten(), [tiling.step])


@triton.jit
def numbers_of(head, sequence, begin, rows, sequences):
    """Where the numbers of the rows of a sequence start: at a multiple of 16 bytes.

    The copy engine wants that. They lie in [H, T // 4 + S, 4], in slots of 4.
    """
    return (head * (rows // 4 + sequences) + begin // 4 + sequence) * 4


@triton.jit
def tile_of(base, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Rows [., C] of one head, counted from the first row of the sequence, at `base`."""
    pointers = base + place[:, None] * STRIDE + tl.arange(0, CHANNELS)[None, :]
    return tl.load(pointers, mask=place[:, None] < length, other=0.0)


@triton.jit
def store_tile(base, tile, place, length, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """The same way back."""
    pointers = base + place[:, None] * STRIDE + tl.arange(0, CHANNELS)[None, :]
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=place[:, None] < length)
