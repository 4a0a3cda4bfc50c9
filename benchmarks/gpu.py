"""What benchmarks on a GPU share: the device, how it is timed, and what it can do at most."""

from collections.abc import Callable

import numpy as np
import torch

DEVICE = torch.device("cuda")
MEAN = 213.0  # tokens of a story; lengths are gamma distributed with this shape:
SHAPE = 5


def ceilings() -> tuple[float, float]:
    """TFLOP/s of bf16 products, and TB/s of copies, on this GPU in this run."""
    left, right = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in "ab")
    product = timed(lambda: left @ right, 20)
    source = torch.randn(2**28, device=DEVICE)
    target = torch.empty_like(source)
    copied = timed(lambda: target.copy_(source), 20)
    return 2 * 8192**3 / product / 1e9, 2 * source.nbytes / copied / 1e9


def timed(function: Callable[[], object], repeats: int) -> float:
    """The median time in milliseconds, after a warm-up."""
    for _ in range(4):
        function()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        torch.cuda.synchronize()
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


def replayed(function: Callable[[], None]) -> float:
    """The median time of a captured graph in milliseconds."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return timed(graph.replay, 10)
