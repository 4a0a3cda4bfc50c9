"""What does the token loss cost? Chunks of rows against all logits at once, forward and backward.

    python benchmarks/token_loss.py [--rows N] [--chunk C]
    python benchmarks/token_loss.py --device cuda

Prints a table and appends its rows to benchmarks/results/token_loss.csv. Both twins work in float32
on all cores, with two targets in each row. The plain twin takes 5 GiB at 8,192 rows.

On a GPU, both twins work in bfloat16 on batches as training makes them, of about three targets in a
row, and the rows go to benchmarks/results/token_loss_cuda.csv. The plain twin takes 12 GiB.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from didlm.kernels.token_loss import CHUNK, token_loss, token_loss_plain
from recording import peak_mib, record, seconds

TWINS = {"chunked": token_loss, "plain": token_loss_plain}
VOCABULARY, PADDED, WIDTH = 50_257, 50_304, 768
ROWS = 8192
REPEATS = 3
# Rows, vocabulary, with its padding, and targets: two batches of training.
CUDA_SIZES = [(11_400, 50_257, 50_304, 35_000), (2_020, 30_522, 30_592, 6_200)]
CUDA_REPEATS = 30


@dataclass(frozen=True)
class Row:
    """One measurement of loss and both gradients."""

    twin: str
    rows: int
    padded_vocabulary: int
    width: int
    dtype: str
    chunk: int  # rows the twin works on at a time
    threads: int
    s: float  # median time
    s_25: float
    s_75: float
    mib: float  # memory the call took at its peak, both gradients included


@dataclass(frozen=True)
class CudaRow:
    """One measurement of loss and both gradients on a GPU."""

    gpu: str
    twin: str
    rows: int
    padded_vocabulary: int
    width: int
    targets: int
    dtype: str
    products_ms: float  # median time of the three matrix products alone, of all rows at once
    ms: float  # median time
    ms_25: float
    ms_75: float
    replay_ms: float  # median time of the same as a CUDA graph: without the host's part
    mib: float  # memory the call took at its peak, both gradients included


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", type=int, help=f"on the CPU: {ROWS} if not given")
    parser.add_argument("--chunk", type=int, help=f"on the CPU: {CHUNK} if not given")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        if arguments.rows or arguments.chunk:
            parser.error("rows and chunk are fixed on a GPU: leave them out")
        on_cuda = [measure_cuda(twin, *sizes) for sizes in CUDA_SIZES for twin in TWINS]
        show_cuda(on_cuda)
        command = "python benchmarks/token_loss.py --device cuda"
        record("token_loss_cuda", on_cuda, command, ["torch"])
        return
    chosen = {"rows": arguments.rows or ROWS, "chunk": arguments.chunk or CHUNK}
    rows = [measure(twin, **chosen) for twin in TWINS]
    show(rows)
    usual = {"rows": ROWS, "chunk": CHUNK}
    given = [f" --{name} {value}" for name, value in chosen.items() if value != usual[name]]
    record("token_loss", rows, "python benchmarks/token_loss.py" + "".join(given), ["torch"])


def measure(twin: str, rows: int, chunk: int) -> Row:
    """Time and memory of one twin on random states."""
    inputs = draw(rows)
    hidden, weight = inputs[:2]

    def call() -> None:
        hidden.grad = weight.grad = None
        loss, _ = TWINS[twin](*inputs, vocabulary=VOCABULARY, chunk=chunk)
        loss.backward()

    median, low, high = seconds(call, REPEATS)
    hidden.grad = weight.grad = None
    mib = peak_mib(call)
    at_once, threads = chunk if twin == "chunked" else rows, torch.get_num_threads()
    return Row(twin, rows, PADDED, WIDTH, "float32", at_once, threads, median, low, high, mib)


def measure_cuda(twin: str, rows: int, vocabulary: int, padded: int, targets: int) -> CudaRow:
    """Time and memory of one twin on random states, in bfloat16 on the GPU."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, WIDTH, generator=generator)
    weight = torch.randn(padded, WIDTH, generator=generator) * WIDTH**-0.5
    hidden, weight = (x.cuda().bfloat16().requires_grad_() for x in (hidden, weight))
    row = torch.randint(0, rows, (targets,), generator=generator).sort().values.cuda()
    token = torch.randint(0, vocabulary, (targets,), generator=generator).cuda()
    target = torch.rand(targets, generator=generator).cuda()

    def call() -> None:
        loss, _ = TWINS[twin](hidden, weight, row, token, target, vocabulary, is_sorted=True)
        torch.autograd.grad(loss, (hidden, weight))

    products_ms = milliseconds(products(hidden.detach(), weight.detach()), CUDA_REPEATS)[0]
    median, low, high = milliseconds(call, CUDA_REPEATS)
    replay_ms = milliseconds(captured(call), CUDA_REPEATS)[0]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    mib = (torch.cuda.max_memory_allocated() - before) / 2**20
    gpu = torch.cuda.get_device_name()
    sizes = rows, padded, WIDTH, targets
    return CudaRow(gpu, twin, *sizes, "bfloat16", products_ms, median, low, high, replay_ms, mib)


def products(states: Tensor, head: Tensor) -> Callable[[], None]:
    """The matrix products of the loss and its gradients, into memory that is already there."""
    logits, hidden_grad = states @ head.T, torch.empty_like(states)
    weight_grad = torch.empty_like(head, dtype=torch.float32)

    def call() -> None:
        torch.mm(states, head.T, out=logits)
        torch.mm(logits, head, out=hidden_grad)
        torch.mm(logits.T, states, out_dtype=torch.float32, out=weight_grad)

    return call


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """The same work as a CUDA graph; the call has been made before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def milliseconds(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median and quartiles of the time a call takes on the GPU, after five calls to warm up."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for _ in range(5):
        call()
    for start, end in events:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) for start, end in events]
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return median, low, high


def draw(rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """States, head, and two targets for every row."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, WIDTH, generator=generator)
    weight = torch.randn(PADDED, WIDTH, generator=generator) * WIDTH**-0.5
    row = torch.arange(rows).repeat_interleave(2)
    token = torch.randint(0, VOCABULARY, row.shape, generator=generator)
    target = torch.rand(len(row), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), row, token, target


def show(rows: list[Row]) -> None:
    """Print the table."""
    first = rows[0]
    table = Table(
        title=f"{first.rows:,} x {PADDED:,} x {WIDTH} in float32, {first.threads} threads"
    )
    for name in ("twin", "rows at once", "s", "25 - 75 %", "peak MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.twin,
            f"{row.chunk:,}",
            f"{row.s:.2f}",
            f"{row.s_25:.2f} - {row.s_75:.2f}",
            f"{row.mib:,.0f}",
        )
    Console(width=100).print(table)


def show_cuda(rows: list[CudaRow]) -> None:
    """Print the table of a GPU."""
    table = Table(title=f"width {WIDTH} in bfloat16 on {rows[0].gpu}")
    for name in (
        "rows",
        "vocabulary",
        "twin",
        "ms",
        "25 - 75 %",
        "as a graph",
        "products alone",
        "peak MiB",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.rows:,}",
            f"{row.padded_vocabulary:,}",
            row.twin,
            f"{row.ms:.2f}",
            f"{row.ms_25:.2f} - {row.ms_75:.2f}",
            f"{row.replay_ms:.2f}",
            f"{row.products_ms:.2f}",
            f"{row.mib:,.0f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
