"""A matrix product and the backward pass of GELU in one Triton kernel, for GPUs that copy tiles.

The gradient of the activated rows is a product, and all that is wanted of it is its product with
the slope of the activation: here it never leaves the chip. That spares writing and reading the
widest rows of a network once each. Two programs share a multiprocessor, so that one multiplies
while the other reads and writes.

Legend: T rows, D width, F inner width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from didlm.kernels.activation_triton import gelu

ROWS, COLUMNS, DEPTH = 128, 128, 64  # of a tile: powers of two
WARPS, STAGES = 8, 3
GRAIN = 16  # bytes: what a row of a matrix must be a multiple of to be copied in tiles


def fits(gradient: Tensor, outward: Tensor) -> bool:
    """Whether the kernel can work on matrices of these shapes, on this device."""
    if not gradient.is_cuda or torch.version.cuda is None:
        return False
    is_new = torch.cuda.get_device_capability(gradient.device) >= (9, 0)
    return is_new and all(size * gradient.element_size() % GRAIN == 0 for size in outward.shape)


def backward(gradient: Tensor, outward: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """The activated rows [T, F] once more, and the gradient of the inner rows.

    Args:
        gradient: of what comes out of the layer [T, D].
        outward: the weights through which it does [D, F].
        inner: the rows before the activation [T, F].
    """
    activated, inner_grad = torch.empty_like(inner), torch.empty_like(inner)
    (rows, width), columns = gradient.shape, inner.shape[1]
    if inner.numel():
        half = [ROWS, COLUMNS // 2]
        tiles = triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS)
        _backward[(tiles[0] * tiles[1],)](
            TensorDescriptor.from_tensor(gradient.contiguous(), [ROWS, DEPTH]),
            TensorDescriptor.from_tensor(outward.contiguous(), [DEPTH, COLUMNS]),
            *(TensorDescriptor.from_tensor(x, half) for x in (inner, activated, inner_grad)),
            width, tiles[1], ROWS, COLUMNS, DEPTH, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    return activated, inner_grad


@triton.jit
def _backward(
    gradient,
    outward,
    inner,
    activated,
    inner_grad,
    WIDTH: tl.constexpr,
    ACROSS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile; those of the same rows come after each other, and find them in the cache."""
    row = tl.program_id(0) // ACROSS * ROWS
    column = tl.program_id(0) % ACROSS * COLUMNS
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for depth in range(0, WIDTH, DEPTH):
        sums = tl.dot(gradient.load([row, depth]), outward.load([depth, column]), sums)
    # Half by half, or the numbers would not fit into the registers of two programs.
    HALF: tl.constexpr = COLUMNS // 2
    left, right = tl.split(tl.permute(tl.reshape(sums, (ROWS, 2, HALF)), (0, 2, 1)))
    _activate(left, inner, activated, inner_grad, row, column)
    _activate(right, inner, activated, inner_grad, row, column + HALF)


@triton.jit
def _activate(grad, inner, activated, inner_grad, row, column):
    kind: tl.constexpr = inner.dtype
    result, slope = gelu(inner.load([row, column]).to(tl.float32))
    activated.store([row, column], result.to(kind))
    inner_grad.store([row, column], (grad * slope).to(kind))
