"""Attention with rotary positions within each sequence of a packed batch: one function, two paths.

Legend: T rows, S sequences, H heads, C channels per head.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from didlm.kernels.attention import attention_plain, packed_attention

Rotation = tuple[Tensor, Tensor]  # cosines and sines [T, 1, C / 2]
CHANNELS = (32, 64, 128)  # per head, for which there are kernels


def rotary_attention(
    qkv: Tensor, rotation: Rotation, offsets: Tensor, longest: int, causal: bool = False
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
    """
    fits = qkv.dtype in (torch.bfloat16, torch.float16) and qkv.shape[-1] in CHANNELS
    # A compiler fuses the rotation itself; with these kernels it divided the network in two.
    if qkv.is_cuda and fits and not torch.compiler.is_compiling() and _can_run(qkv.device):
        cosine, sine = (x.detach().float().contiguous() for x in rotation)
        mixed, _, _ = _forward(qkv.contiguous(), cosine, sine, offsets.contiguous(), causal)
        return mixed
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
def _can_run(device: torch.device) -> bool:
    """Whether Triton is there, and the device has the copy engine that the kernels use."""
    if torch.version.cuda is None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


# Operators of their own, so that compilers and graphs of kernels take them as they are.


@torch.library.custom_op("didlm::rotary_attention", mutates_args=())
def _forward(
    qkv: Tensor, cosine: Tensor, sine: Tensor, offsets: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The mixtures [T, H, C]; for `_backward`, log-sum-exps and what is rotated [T, 2, H, C]."""
    from didlm.kernels import rotary_attention_triton

    return rotary_attention_triton.forward(qkv, cosine, sine, offsets, causal)


@_forward.register_fake
def _(
    qkv: Tensor, cosine: Tensor, sine: Tensor, offsets: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, _, heads, channels = qkv.shape
    aligned = heads, rows // 4 + offsets.shape[0] - 1, 4
    log_sums = qkv.new_empty(aligned, dtype=torch.float32)
    return qkv.new_empty(rows, heads, channels), log_sums, qkv.new_empty(rows, 2, heads, channels)


@torch.library.custom_op("didlm::rotary_attention_backward", mutates_args=())
def _backward(
    mixed_grad: Tensor,
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    offsets: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    turned: Tensor,
    causal: bool,
) -> Tensor:
    """The gradient of `qkv` [T, 3, H, C]."""
    from didlm.kernels import rotary_attention_triton

    return rotary_attention_triton.backward(
        mixed_grad.contiguous(), qkv, cosine, sine, offsets, mixed, log_sums, turned, causal
    )


@_backward.register_fake
def _(mixed_grad: Tensor, qkv: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(qkv)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.causal = inputs
    mixed, log_sums, turned = output
    ctx.save_for_backward(*tensors, mixed, log_sums, turned)
    ctx.mark_non_differentiable(log_sums, turned)
    ctx.set_materialize_grads(False)  # no zeros in the place of gradients that are not used


def _gradients(ctx: Any, mixed_grad: Tensor | None, *unused: None) -> tuple[Tensor | None, ...]:
    if mixed_grad is None:
        return None, None, None, None, None
    gradient = _backward(mixed_grad, *ctx.saved_tensors, ctx.causal)
    return gradient, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_save)
