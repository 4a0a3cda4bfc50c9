"""What does attention cost? `rotary_attention` against rotation and torch's kernel, on a GPU.

    python benchmarks/rotary_attention.py [--sweep] [--channels C]

Prints a table and appends its rows to benchmarks/results/rotary_attention.csv: 64 sequences of
width 768 in bfloat16, of 1 to 1,024 rows and of 1 to 213, without and with causality. With
--sweep it prints the times of the three kernels in many tilings instead, and records nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from didlm.kernels.attention import packed_attention
from didlm.kernels.rotary_attention import Rotation, rotary_angles, rotary_attention, rotate
from didlm.kernels.slots import Slots
from recording import record

if TYPE_CHECKING:
    from didlm.kernels.rotary_tiles_triton import Tiling

SEQUENCES, WIDTH = 64, 768
CALLS, REPEATS = 10, 7  # calls in one graph of kernels, and how often it runs


@dataclass(frozen=True)
class Batch:
    """Random rows, and the gradient of what becomes of them."""

    qkv: Tensor
    grad: Tensor
    rotation: Rotation
    offsets: Tensor
    longest: int

    @property
    def flops(self) -> float:
        """Of the forward pass; the backward pass has 2.5 times as many."""
        return 4 * WIDTH * float(self.offsets.diff().double().square().sum())


@dataclass(frozen=True)
class Row:
    """One measurement."""

    what: str
    gpu: str
    rows: int
    longest: int
    channels: int
    causal: bool
    forward_ms: float
    backward_ms: float


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--channels", type=int, default=64)
    arguments = parser.parse_args()
    batches = [draw(longest, arguments.channels) for longest in (1024, 213)]
    if arguments.sweep:
        for batch in batches:
            sweep(batch)
        return
    rows = [
        measure(what, batch, causal)
        for batch in batches
        for causal in (False, True)
        for what in ("rotate, packed_attention", "rotary_attention")
    ]
    show(rows)
    given = f" --channels {arguments.channels}" if arguments.channels != 64 else ""
    record("rotary_attention", rows, "python benchmarks/rotary_attention.py" + given, ["torch"])


def draw(longest: int, channels: int) -> Batch:
    """Sequences of 1 to `longest` rows."""
    torch.manual_seed(1)
    lengths = torch.randint(1, longest + 1, (SEQUENCES,))
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).cuda()
    position = torch.cat([torch.arange(n) for n in lengths.tolist()]).cuda()
    shape = WIDTH // channels, channels
    qkv = torch.randn(len(position), 3, *shape, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(len(position), *shape, device="cuda", dtype=torch.bfloat16)
    return Batch(qkv, grad, rotary_angles(position, channels), offsets, longest)


def separate(
    qkv: Tensor, rotation: Rotation, offsets: Tensor, longest: int, causal: bool
) -> Tensor:
    """The rotation, then torch's kernel."""
    query, key, value = qkv.unbind(1)
    query, key = rotate(query, rotation), rotate(key, rotation)
    return packed_attention(query, key, value, offsets, longest, causal)


def measure(what: str, batch: Batch, causal: bool) -> Row:
    """Time one way forward and, by difference, backward."""
    attention = rotary_attention if what == "rotary_attention" else separate
    qkv = batch.qkv.clone().requires_grad_()

    def forward() -> Tensor:
        return attention(qkv, batch.rotation, batch.offsets, batch.longest, causal)

    with torch.no_grad():
        ahead = milliseconds(forward)
    both = milliseconds(lambda: torch.autograd.grad(forward(), qkv, batch.grad))
    gpu, rows, channels = torch.cuda.get_device_name(), len(qkv), qkv.shape[-1]
    return Row(what, gpu, rows, batch.longest, channels, causal, ahead, both - ahead)


def milliseconds(call: Callable[[], object]) -> float:
    """Median time of a call on the device, without that of launching its kernels."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return sorted(times)[REPEATS // 2]


def sweep(batch: Batch) -> None:
    """Print the times of all tilings of each kernel, the fastest first."""
    from didlm.kernels import rotary_attention_backward_triton as backward
    from didlm.kernels import rotary_attention_triton as kernels
    from didlm.kernels.rotary_tiles_triton import TILINGS

    qkv, grad, rotation, offsets = batch.qkv, batch.grad, batch.rotation, batch.offsets
    gradient, slots = torch.empty_like(qkv), Slots(offsets, len(qkv))
    kernels.rotate_keys_(qkv, *rotation)
    usual = TILINGS[qkv.shape[-1]]
    mixed, log_sums = kernels.attended(qkv, *rotation, slots, False, usual.forward)
    rest = qkv, rotation, slots
    deltas = backward.fill_queries(gradient, grad, *rest, mixed, log_sums, False, usual.queries)

    def forward(tiling: Tiling) -> None:
        kernels.attended(qkv, *rotation, slots, False, tiling)

    def queries(tiling: Tiling) -> None:
        backward.fill_queries(gradient, grad, *rest, mixed, log_sums, False, tiling)

    def keys(tiling: Tiling) -> None:
        backward.fill_keys(gradient, grad, *rest, deltas, log_sums, False, tiling)

    alone = milliseconds(lambda: kernels.rotate_keys_(qkv, *rotation))
    print(f"{len(qkv):,} rows, {qkv.shape[-1]} channels; rotation of keys {alone:.4f} ms")
    for name, kernel, products in (
        ("forward", forward, 2),
        ("queries", queries, 3),
        ("keys", keys, 4),
    ):
        found = []
        for tiling in tilings(name):
            try:
                found.append((milliseconds(partial(kernel, tiling)), tiling))
            except Exception as error:  # too much shared memory, say
                print(f"{name} {tiling}: {type(error).__name__}: {str(error)[:80]}")
        for ms, tiling in sorted(found, key=lambda pair: pair[0]):
            rate = products / 2 * batch.flops / ms / 1e9
            print(f"{name:8} {ms:.4f} ms {rate:4.0f} TF/s  {tiling}", flush=True)


def tilings(kernel: str) -> list[Tiling]:
    """Those that could be fast: many programs side by side, or few that read little."""
    from didlm.kernels.rotary_tiles_triton import Tiling

    found = [
        Tiling(held, step, warps, stages)
        for held, warps in ((64, 4), (128, 4), (128, 8))
        for step in (32, 64, 128)
        for stages in (2, 3)
        if step < 128 or (kernel == "forward" and stages == 2)
    ]
    if kernel == "keys":  # as many registers as leave room for one more program
        limits = {(64, 32): 128, (64, 64): 168, (128, 32): 128}
        found += [
            replace(tiling, registers=limits[tiling.held, tiling.step])
            for tiling in found
            if (tiling.held, tiling.step) in limits
        ]
    return found


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title=f"{rows[0].gpu}, {SEQUENCES} sequences, {rows[0].channels} channels a head")
    for name in ("what", "rows", "longest", "causal", "forward ms", "backward ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.what,
            f"{row.rows:,}",
            f"{row.longest:,}",
            str(row.causal),
            f"{row.forward_ms:.3f}",
            f"{row.backward_ms:.3f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
