"""The Triton kernels of `feed_forward`'s activation: imported only where they run."""

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZE = 2048  # numbers that a program has
SILU = "silu"


def forward(inner: Tensor, activation: str) -> Tensor:
    """The activated rows [T, F] of inner rows [T, F], or [T, 2 F] for 'silu', contiguous."""
    gated = activation == SILU
    rows, width = inner.shape
    width = width // 2 if gated else width
    activated = inner.new_empty(rows, width)
    if activated.numel():
        with torch.cuda.device_of(inner):
            _activate[(triton.cdiv(activated.numel(), SIZE),)](
                inner, activated, activated.numel(), width, SIZE, gated, num_warps=8
            )
    return activated


def backward(inner: Tensor, activated_grad: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The activated rows once more, and the gradient of the inner rows."""
    gated = activation == SILU
    activated, inner_grad = torch.empty_like(activated_grad), torch.empty_like(inner)
    count, width = activated.numel(), activated.shape[1]
    if count:
        with torch.cuda.device_of(inner):
            _activate_backward[(triton.cdiv(count, SIZE),)](
                inner, activated_grad, activated, inner_grad, count, width, SIZE, gated, num_warps=8
            )
    return activated, inner_grad


@triton.jit
def _gelu(x):
    """By tanh, and its derivative: x s(2 z) with the logistic function s and the usual cubic z."""
    square = x * x
    chance = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * square))
    slope = chance + x * chance * (1 - chance) * 1.5957691216057308 * (1 + 0.134145 * square)
    return x * chance, slope


@triton.jit
def _silu(x):
    chance = tl.sigmoid(x)
    return x * chance, chance * (1 + x * (1 - chance))


@triton.jit
def _activate(
    inner, activated, count, WIDTH: tl.constexpr, SIZE: tl.constexpr, GATED: tl.constexpr
):
    """One number after the other; gated rows have their two halves side by side."""
    each = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = each < count
    if GATED:
        place = each + each // WIDTH * WIDTH
        x = tl.load(inner + place, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(inner + place + WIDTH, mask=inside, other=0.0).to(tl.float32)
        result, _ = _silu(x)
        result *= other
    else:
        x = tl.load(inner + each, mask=inside, other=0.0).to(tl.float32)
        result, _ = _gelu(x)
    tl.store(activated + each, result.to(activated.dtype.element_ty), mask=inside)


@triton.jit
def _activate_backward(
    inner,
    activated_grad,
    activated,
    inner_grad,
    count,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    GATED: tl.constexpr,
):
    """The same way, with the gradients."""
    each = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = each < count
    kind = inner.dtype.element_ty
    grad = tl.load(activated_grad + each, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        place = each + each // WIDTH * WIDTH
        x = tl.load(inner + place, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(inner + place + WIDTH, mask=inside, other=0.0).to(tl.float32)
        result, slope = _silu(x)
        tl.store(inner_grad + place, (grad * other * slope).to(kind), mask=inside)
        tl.store(inner_grad + place + WIDTH, (grad * result).to(kind), mask=inside)
        result *= other
    else:
        x = tl.load(inner + each, mask=inside, other=0.0).to(tl.float32)
        result, slope = _gelu(x)
        tl.store(inner_grad + each, (grad * slope).to(kind), mask=inside)
    tl.store(activated + each, result.to(kind), mask=inside)
