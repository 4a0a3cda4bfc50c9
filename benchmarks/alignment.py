"""How fast are exact insertion targets? The windowed algorithm against the paper's, on one core.

    python benchmarks/alignment.py [--text FILE]

Prints a table, appends its rows to benchmarks/results/alignment.csv and draws alignment.png beside
it. Without a text it reads the English of Python's own language reference, which is always there.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from didlm.alignment import insertion_targets_batch, insertion_targets_batch_reference
from didlm.alignment.windowed import window_cells
from didlm.packed import Packed, pack
from recording import RESULTS, peak_mib, record, seconds

LENGTHS = (512, 1024, 2048, 4096, 8192)
BATCH = 64


@dataclass(frozen=True)
class Row:
    """One measurement: a batch of `BATCH` texts of `length` tokens."""

    algorithm: str
    tokens: str  # what the texts are made of
    length: int
    cells: int  # table cells the algorithm visits
    ms: float  # median time of the batch
    ms_25: float
    ms_75: float
    mib: float  # memory the call took at its peak


def main() -> None:
    """Measure, print, record, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=Path, help="an English text in UTF-8 to measure on")
    path = parser.parse_args().text
    torch.set_num_threads(1)
    words = read_words(path)
    letters = np.random.default_rng(0).integers(0, 4, 100_000)
    rows = [measure("windowed", "English words", words, length) for length in LENGTHS]
    rows += [measure("reference", "English words", words, length) for length in (512, 1024)]
    rows += [
        measure("windowed", "four letters", letters, 1024),
        measure("windowed", "one symbol", np.zeros_like(letters), 1024),
        measure("windowed", "one symbol", np.zeros_like(letters), 2048),
    ]
    show(rows)
    command = "python benchmarks/alignment.py" + (f" --text {path.name}" if path else "")
    record("alignment", rows, command, ["torch", "numba"])
    draw(rows)


def read_words(path: Path | None) -> np.ndarray:
    """Words and punctuation marks of a text, numbered."""
    if path is None:
        from pydoc_data.topics import topics

        text = "\n".join(topics.values())
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            sys.exit(f"cannot read {path}: {error}")
    numbers: dict[str, int] = {}
    words = re.findall(r"\w+|[^\w\s]", text)
    if len(words) < max(LENGTHS):
        sys.exit(f"{path} has {len(words)} words; the benchmark needs at least {max(LENGTHS)}")
    return np.array([numbers.setdefault(word, len(numbers)) for word in words])


def measure(algorithm: str, name: str, tokens: np.ndarray, length: int) -> Row:
    """Time one algorithm on stretches of a text, at times spread evenly over (0, 1)."""
    x0, keep = corrupted(tokens, length)
    if algorithm == "windowed":
        cells, repeats, targets = window_cells(x0, keep), 15, insertion_targets_batch
    else:
        kept = np.add.reduceat(keep, x0.offsets[:-1].numpy())
        # Two tables for the whole batch, as long as its longest x_0 and x_t.
        cells, repeats = 2 * BATCH * (length + 1) * int(kept.max()), 5
        targets = insertion_targets_batch_reference

    def call() -> object:
        return targets(x0, keep)

    median, low, high = (1e3 * time for time in seconds(call, repeats))
    return Row(algorithm, name, length, cells, median, low, high, peak_mib(call))


def corrupted(tokens: np.ndarray, length: int) -> tuple[Packed, np.ndarray]:
    """A batch of texts, and the masks of what is left of them."""
    starts = np.linspace(0, len(tokens) - length, BATCH).astype(int)
    x0 = pack([tokens[start : start + length] for start in starts], bos=0)
    deleted = np.repeat((np.arange(BATCH) + 0.5) / BATCH, length + 1)
    keep = np.random.default_rng(0).random(x0.rows) >= deleted
    return x0, keep | x0.is_bos.numpy()


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title=f"Exact insertion targets of {BATCH} texts, one core")
    for name in ("algorithm", "tokens", "length", "ms", "25 - 75 %", "cells", "peak MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.algorithm,
            row.tokens,
            str(row.length),
            f"{row.ms:.2f}",
            f"{row.ms_25:.1f} - {row.ms_75:.1f}",
            f"{row.cells:,}",
            f"{row.mib:.1f}",
        )
    console = Console(width=100)
    console.print(table)
    at_1024 = {row.algorithm: row.ms for row in english(rows) if row.length == 1024}
    ratio = at_1024["reference"] / at_1024["windowed"]
    windowed = [row for row in english(rows) if row.algorithm == "windowed"]
    lengths, times = (np.log([(row.length, row.ms) for row in windowed])).T
    slope = np.polyfit(lengths, times, 1)[0]
    console.print(
        f"English, {BATCH} x 1024: {ratio:.0f} times faster than the reference (goal: 300)"
    )
    console.print(f"time grows with the length to the power {slope:.3f} (goal: at most 1.15)")


def english(rows: list[Row]) -> list[Row]:
    """The rows measured on the text."""
    return [row for row in rows if row.tokens == "English words"]


def draw(rows: list[Row]) -> None:
    """Time against length, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, marker in (("reference", "s"), ("windowed", "o")):
        own = [row for row in english(rows) if row.algorithm == name]
        label = "the paper's programme in torch" if name == "reference" else "windowed"
        axes.plot([row.length for row in own], [row.ms for row in own], marker=marker, label=label)
    axes.set(xscale="log", yscale="log", xlabel="tokens per text", ylabel="milliseconds")
    axes.set_title(f"Exact insertion targets of {BATCH} English texts, one core")
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    path = RESULTS / "alignment.png"
    figure.savefig(path, dpi=150)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
