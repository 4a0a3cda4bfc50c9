"""The two ends of a residual connection in one pass: add a branch, then normalise and modulate.

    summed = hidden + (1 + gate) * branch
    normed = norm(summed) * weight * (1 + scale) + shift

Gate, scale and shift are those of the sequence that a row belongs to, and only there where the
network knows time. Apart, these are up to ten passes over the hidden states of all rows, and as
many in the backward pass with sums over the rows of every sequence: on a GPU in 16 bits one kernel
does each of them (`add_norm_triton`).

Legend: T rows, S sequences, D width.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm, rms_norm

from didlm.kernels.here import narrow_dtype, runs_triton
from didlm.kernels.slots import Slots

LAYER_EPSILON = 1e-5
RMS_EPSILON = torch.finfo(torch.float32).eps  # the same in all dtypes: it is part of the function
WIDEST = 8192  # a row is held in registers


@dataclass(frozen=True, eq=False)
class Branch:
    """What is still to be added to the hidden states."""

    rows: Tensor  # [T, D]
    gate: Tensor | None = None  # [S, D] one is added to it


@dataclass(frozen=True, eq=False)
class Modulation:
    """What the time of a sequence does to its normed rows."""

    scale: Tensor  # [S, D] one is added to it
    shift: Tensor  # [S, D]


@dataclass(frozen=True, eq=False)
class Layout:
    """Which rows belong together."""

    sequence: Tensor  # [T] the sequence of each row
    offsets: Tensor  # [S + 1] where each starts, and the end

    @cached_property
    def slots(self) -> Slots:
        """For programs that have rows of one sequence only."""
        return Slots(self.offsets, self.sequence.numel())


def add_norm(
    hidden: Tensor,
    branch: Branch | None,
    kind: str,
    weight: Tensor,
    bias: Tensor | None,
    modulation: Modulation | None,
    layout: Layout,
) -> tuple[Tensor, Tensor]:
    """The sum [T, D], and its norm [T, D] in the dtype in which matrices are multiplied.

    Args:
        hidden: the states before [T, D].
        branch: what is to be added to them; without, the sum is `hidden` itself.
        kind: 'layer' or 'rms'.
        weight: of the norm [D].
        bias: of the norm [D].
        modulation: of the normed rows.
        layout: of the batch.
    """
    dtype = narrow_dtype(hidden)
    fits = bias is None and len(weight) <= WIDEST and (branch is None or branch.rows.dtype == dtype)
    if dtype is None or not fits or not runs_triton(hidden):
        return add_norm_plain(hidden, branch, kind, weight, bias, modulation, layout)
    return _AddNorm.apply(  # type: ignore[no-untyped-call]
        hidden.contiguous(),
        branch.rows.contiguous() if branch else None,
        branch.gate if branch else None,
        weight,
        modulation.scale if modulation else None,
        modulation.shift if modulation else None,
        layout,
        kind,
        dtype,
    )


def add_norm_plain(
    hidden: Tensor,
    branch: Branch | None,
    kind: str,
    weight: Tensor,
    bias: Tensor | None,
    modulation: Modulation | None,
    layout: Layout,
) -> tuple[Tensor, Tensor]:
    """The same, operation by operation."""
    summed = add(hidden, branch, layout)
    shape, weight = weight.shape, weight.to(summed.dtype)
    if kind == "layer":
        bias = None if bias is None else bias.to(summed.dtype)
        normed = layer_norm(summed, shape, weight, bias, LAYER_EPSILON)
    else:
        normed = rms_norm(summed, shape, weight, RMS_EPSILON)
    if modulation is not None:
        normed = normed * (1 + modulation.scale)[layout.sequence]
        normed = normed + modulation.shift[layout.sequence]
    return summed, normed


def add(hidden: Tensor, branch: Branch | None, layout: Layout) -> Tensor:
    """The hidden states with what was still to be added."""
    if branch is None:
        return hidden
    if branch.gate is None:
        return hidden + branch.rows
    return hidden + (1 + branch.gate)[layout.sequence] * branch.rows


class _AddNorm(torch.autograd.Function):
    """The kernels, which keep the sums: they are there anyway, for the next layer."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        branch: Tensor | None,
        gate: Tensor | None,
        weight: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        layout: Layout,
        kind: str,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        from didlm.kernels import add_norm_triton

        centred = kind == "layer"
        epsilon = LAYER_EPSILON if centred else RMS_EPSILON
        summed, normed, mean, inverse = add_norm_triton.forward(
            hidden, branch, gate, weight, scale, shift, layout.sequence, centred, epsilon, dtype
        )
        gated = branch if gate is not None else None
        ctx.save_for_backward(summed, mean, inverse, gated, gate, weight, scale)
        ctx.slots = layout.slots
        ctx.centred, ctx.has_branch, ctx.dtype = centred, branch is not None, dtype
        return (hidden.view_as(hidden) if branch is None else summed), normed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, summed_grad: Tensor | None, normed_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        from didlm.kernels import add_norm_triton

        summed, mean, inverse, branch, gate, weight, scale = ctx.saved_tensors
        if normed_grad is None:
            normed_grad = torch.zeros_like(summed, dtype=ctx.dtype)
        gradients = add_norm_triton.backward(
            None if summed_grad is None else summed_grad.contiguous(),
            normed_grad.contiguous(),
            summed,
            mean,
            inverse,
            branch,
            gate,
            weight,
            scale,
            ctx.slots,
            ctx.centred,
            ctx.has_branch,
        )
        return *gradients, None, None, None
