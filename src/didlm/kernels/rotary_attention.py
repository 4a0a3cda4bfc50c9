"""Attention with rotary positions within each sequence of a packed batch: one function, two paths.

Legend: T rows, S sequences, H heads, C channels per head.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from didlm.kernels.attention import attention_plain, packed_attention
from didlm.kernels.here import NARROW, runs_triton
from didlm.kernels.slots import Slots

Rotation = tuple[Tensor, Tensor]  # cosines and sines [T, 1, C / 2]
CHANNELS = (32, 64, 128)  # per head, for which there are kernels


def rotary_attention(
    qkv: Tensor,
    rotation: Rotation,
    offsets: Tensor,
    longest: int,
    causal: bool = False,
    overwrite: bool = False,
    slots: Slots | None = None,
) -> Tensor:
    """Softmax attention among the rows of each sequence [T, H, C], queries and keys rotated.

    On Hopper and later in 16 bits these are kernels of its own, if Triton is there and the heads
    have one of their sizes; elsewhere the rotation, then `packed_attention`.

    Args:
        qkv: queries, keys and values [T, 3, H, C].
        rotation: of every row, from `rotary_angles`; no gradient flows there.
        offsets: [S + 1] where each sequence starts, and the end, which is T.
        longest: no sequence has more rows than this.
        causal: whether a row sees only the rows before it and itself.
        overwrite: whether `qkv` is needed no more, and may be rotated where it stands.
        slots: of the batch, if they are at hand; found anew otherwise.
    """
    fits = qkv.dtype in NARROW and qkv.shape[-1] in CHANNELS
    if fits and runs_triton(qkv) and _has_copy_engine(qkv.device):
        cosine, sine = (x.detach().float().contiguous() for x in rotation)
        own = qkv.contiguous() if overwrite else qkv.clone(memory_format=torch.contiguous_format)
        slots = slots or Slots(offsets.contiguous(), len(qkv))
        return _RotaryAttention.apply(own, cosine, sine, slots, causal)  # type: ignore[no-untyped-call]
    query, key, value = qkv.unbind(1)
    query, key = rotate(query, rotation), rotate(key, rotation)
    return packed_attention(query, key, value, offsets, longest, causal)


def rotary_attention_plain(
    qkv: Tensor, rotation: Rotation, offsets: Tensor, longest: int, causal: bool = False
) -> Tensor:
    """The same, one sequence after the other, on any device in any dtype."""
    query, key, value = qkv.unbind(1)
    query, key = rotate(query, rotation), rotate(key, rotation)
    return attention_plain(query, key, value, offsets, longest, causal)


def rotary_angles(position: Tensor, channels: int) -> Rotation:
    """Cosines and sines [T, 1, C / 2] of the rotary position embedding."""
    steps = torch.arange(0, channels, 2, device=position.device, dtype=torch.float32)
    angle = position[:, None, None].float() * 10_000 ** (-steps / channels)
    return angle.cos(), angle.sin()


def rotate(vectors: Tensor, rotation: Rotation) -> Tensor:
    """Turn each pair of channels [T, H, C] by its angle."""
    cosine, sine = (x.to(vectors.dtype) for x in rotation)
    first, second = vectors.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


@cache
def _has_copy_engine(device: torch.device) -> bool:
    """Whether the device has what the kernels copy with."""
    if torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


class _RotaryAttention(torch.autograd.Function):
    """The kernels; queries and keys are rotated where they stand, and kept so."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cosine: Tensor, sine: Tensor, slots: Slots, causal: bool
    ) -> Tensor:
        from didlm.kernels import rotary_attention_triton

        mixed, log_sums = rotary_attention_triton.forward(qkv, cosine, sine, slots, causal)
        ctx.save_for_backward(qkv.detach(), cosine, sine, mixed, log_sums)
        ctx.causal, ctx.slots = causal, slots
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad: Tensor) -> tuple[Tensor | None, ...]:
        from didlm.kernels import rotary_attention_backward_triton

        qkv, cosine, sine, mixed, log_sums = ctx.saved_tensors
        gradient = rotary_attention_backward_triton.backward(
            mixed_grad.contiguous(), qkv, cosine, sine, ctx.slots, mixed, log_sums, ctx.causal
        )
        return gradient, None, None, None, None
