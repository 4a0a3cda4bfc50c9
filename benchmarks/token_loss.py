"""What does the token loss cost? Chunks of rows against all logits at once, forward and backward.

    python benchmarks/token_loss.py [--rows N] [--chunk C]

Prints a table and appends its rows to benchmarks/results/token_loss.csv. Both twins work in float32
on all cores, with two targets in each row. The plain twin takes 5 GiB at 8,192 rows.
"""

import argparse
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from didlm.kernels.token_loss import CHUNK, token_loss, token_loss_plain
from recording import peak_mib, record, seconds

TWINS = {"chunked": token_loss, "plain": token_loss_plain}
VOCABULARY, PADDED, WIDTH = 50_257, 50_304, 768
REPEATS = 3


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


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=CHUNK)
    arguments = parser.parse_args()
    rows = [measure(twin, arguments.rows, arguments.chunk) for twin in TWINS]
    show(rows)
    options = {"rows": (arguments.rows, 8192), "chunk": (arguments.chunk, CHUNK)}
    given = [f" --{name} {value}" for name, (value, usual) in options.items() if value != usual]
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


if __name__ == "__main__":
    main()
