"""What the device at hand can do: which of two twins is to run."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

NARROW = (torch.bfloat16, torch.float16)


@cache
def has_triton() -> bool:
    """Whether kernels can be built: torch brings Triton along for GPUs, not for CPUs."""
    return find_spec("triton") is not None


def runs_triton(tensor: Tensor) -> bool:
    """Whether a kernel of our own is to work on a tensor.

    A compiler does better with operations that it can look into.
    """
    return not torch.compiler.is_compiling() and tensor.is_cuda and has_triton()


def narrow_dtype(tensor: Tensor) -> torch.dtype | None:
    """The 16-bit dtype in which a tensor would be multiplied by a matrix, or None if wider."""
    dtype = tensor.dtype
    if torch.is_autocast_enabled(tensor.device.type) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(tensor.device.type)
    return dtype if dtype in NARROW else None
