"""A linear layer in 16 bits whose weights are in float32, and get their gradient in float32.

Under autocast the gradient of the weights is rounded to 16 bits, then cast to float32: this spares
the rounding and the pass over memory.

Legend: T rows, A inputs, B outputs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear as linear_plain

from didlm.kernels.here import narrow_dtype
from didlm.kernels.twins import in_16_bits

__all__ = ["linear", "linear_plain", "weight_gradient"]


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows [T, A] -> [T, B], in the dtype in which matrices are multiplied.

    Args:
        rows: what comes in.
        weight: [B, A].
        bias: [B].
    """
    dtype = narrow_dtype(rows)
    is_plain = dtype is None or not rows.is_cuda or torch.compiler.is_compiling()
    if is_plain or weight.dtype != torch.float32:
        return linear_plain(rows, weight, bias)
    return _Linear.apply(rows.to(dtype), weight, bias)  # type: ignore[no-untyped-call]


def weight_gradient(outputs_grad: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """That of the weights of a linear layer, multiplied in 16 bits and added in float32."""
    if dtype == outputs_grad.dtype or not inputs.is_cuda:
        return (outputs_grad.T @ inputs).to(dtype)
    return torch.mm(outputs_grad.T, inputs, out_dtype=dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        narrow = in_16_bits(weight, rows.dtype)
        ctx.save_for_backward(rows, narrow)
        ctx.dtype = weight.dtype
        return linear_plain(rows, narrow, None if bias is None else bias.to(rows.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, narrow = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            gradient @ narrow if needs_rows else None,
            weight_gradient(gradient, rows, ctx.dtype) if needs_weight else None,
            gradient.sum(0, dtype=ctx.dtype) if needs_bias else None,
        )
