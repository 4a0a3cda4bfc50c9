"""Tables of slots in Triton, and how other kernels read them: imported only where they run."""

import torch
import triton
import triton.language as tl
from torch import Tensor

EACH = 128  # slots of a program


def table(offsets: Tensor, slots: int, size: int) -> Tensor:
    """The sequence of each slot, in int32."""
    sequences = offsets.numel() - 1
    found = torch.empty(slots, dtype=torch.int32, device=offsets.device)
    if slots:
        with torch.cuda.device_of(offsets):
            _fill[(triton.cdiv(slots, EACH),)](
                offsets, found, slots, sequences, sequences.bit_length(), size, EACH
            )
    return found


@triton.jit
def placed(table, offsets, slot, SIZE: tl.constexpr):
    """The sequence of a slot, its first row, its length, and where in it the slot starts."""
    sequence = tl.load(table + slot)
    begin = tl.load(offsets + sequence).to(tl.int32)
    end = tl.load(offsets + sequence + 1).to(tl.int32)
    return sequence, begin, end - begin, (slot - begin // SIZE - sequence) * SIZE


@triton.jit(do_not_specialize=["slots", "sequences", "halvings"])
def _fill(offsets, found, slots, sequences, halvings, SIZE: tl.constexpr, EACH: tl.constexpr):
    """The last sequence that does not start after the slot, by bisection."""
    slot = tl.program_id(0) * EACH + tl.arange(0, EACH)
    low = tl.zeros_like(slot)
    high = low + sequences
    for _ in range(halvings):
        middle = (low + high) // 2
        first = (tl.load(offsets + middle) // SIZE).to(tl.int32) + middle
        inside = high - low > 1
        low = tl.where(inside & (first <= slot), middle, low)
        high = tl.where(inside & (first > slot), middle, high)
    tl.store(found + slot, low, mask=slot < slots)
