"""The feed-forward layer of a block: wide inside, and only its input kept for the backward pass.

Ordinary autograd keeps the inner rows before the activation and after it: eight times the width of
the network, almost half of all that a block keeps. On a GPU in 16 bits the latter are made again
where the backward pass reads the former anyway (`activation_triton`), and the gradients of the
weights are added up and left in float32.

Legend: T rows, D width, F inner width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, linear, relu, silu

from didlm.kernels.here import narrow_dtype, runs_triton
from didlm.kernels.linear import weight_gradient
from didlm.kernels.twins import in_16_bits

FUSED = ("gelu", "silu")


def feed_forward(
    rows: Tensor,
    inward: Tensor,
    outward: Tensor,
    activation: str,
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Rows [T, D] -> [T, D].

    Args:
        rows: what comes in.
        inward: weights [F, D]; [2 F, D] for 'silu'.
        outward: weights [D, F].
        activation: 'gelu' (by tanh), 'relu', or 'silu', which gates the other half of the inside.
        biases: of the two layers, [F] and [D].
    """
    dtype = narrow_dtype(rows)
    if dtype is None or biases or activation not in FUSED or not runs_triton(rows):
        return feed_forward_plain(rows, inward, outward, activation, biases)
    return _FeedForward.apply(rows.to(dtype), inward, outward, activation)  # type: ignore[no-untyped-call]


def feed_forward_plain(
    rows: Tensor,
    inward: Tensor,
    outward: Tensor,
    activation: str,
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The same, operation by operation."""
    bias_in, bias_out = biases or (None, None)
    inner = linear(rows, inward, bias_in)
    if activation == "silu":
        left, right = inner.chunk(2, -1)
        inner = silu(left) * right
    elif activation == "relu":
        inner = relu(inner)
    else:
        inner = gelu(inner, approximate="tanh")
    return linear(inner, outward, bias_out)


class _FeedForward(torch.autograd.Function):
    """In 16 bits; rows before the activation are kept, those after it are not."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, inward: Tensor, outward: Tensor, activation: str) -> Tensor:
        from didlm.kernels import activation_triton

        narrow_in, narrow_out = (in_16_bits(weight, rows.dtype) for weight in (inward, outward))
        inner = rows @ narrow_in.T
        result = activation_triton.forward(inner, activation) @ narrow_out.T
        ctx.save_for_backward(rows, inner, narrow_in, narrow_out)
        ctx.activation, ctx.dtypes = activation, (inward.dtype, outward.dtype)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from didlm.kernels import activation_triton

        rows, inner, inward, outward = ctx.saved_tensors
        activated, inner_grad = activation_triton.backward(
            inner, gradient @ outward, ctx.activation
        )
        needs_rows, needs_in, needs_out, _ = ctx.needs_input_grad
        type_in, type_out = ctx.dtypes
        return (
            inner_grad @ inward if needs_rows else None,
            weight_gradient(inner_grad, rows, type_in) if needs_in else None,
            weight_gradient(gradient, activated, type_out) if needs_out else None,
            None,
        )
