"""How fast are exact insertion targets? The windowed algorithm against the paper's, on one core.

    python benchmarks/alignment.py [--text FILE]

Prints a table, appends its rows to benchmarks/results/alignment.csv and draws alignment.png beside
it. Without a text it reads the English of Python's own language reference, which is always there.
"""

import argparse
import csv
import ctypes
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numba
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from didlm.alignment import insertion_targets_batch, insertion_targets_batch_reference
from didlm.alignment.windowed import window_cells
from didlm.packed import Packed, pack

RESULTS = Path(__file__).parent / "results"
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
    record(rows, path)
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

    targets(x0, keep)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        targets(x0, keep)
        times.append(1e3 * (time.perf_counter() - start))
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    mib = peak_mib(lambda: targets(x0, keep))
    return Row(algorithm, name, length, cells, median, low, high, mib)


def corrupted(tokens: np.ndarray, length: int) -> tuple[Packed, np.ndarray]:
    """A batch of texts, and the masks of what is left of them."""
    starts = np.linspace(0, len(tokens) - length, BATCH).astype(int)
    x0 = pack([tokens[start : start + length] for start in starts], bos=0)
    deleted = np.repeat((np.arange(BATCH) + 0.5) / BATCH, length + 1)
    keep = np.random.default_rng(0).random(x0.rows) >= deleted
    return x0, keep | x0.is_bos.numpy()


def peak_mib(call: Callable[[], object]) -> float:
    """How far a call raises the resident memory at its peak; not a number outside Linux."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed before must not hide the rise
        Path("/proc/self/clear_refs").write_text("5")  # start the peak afresh
    except (OSError, AttributeError):
        return float("nan")
    before = status_mib("VmRSS")
    call()
    return status_mib("VmHWM") - before


def status_mib(field: str) -> float:
    """One of the kernel's figures about this process."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) / 1024


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
    console.print(f"English, {BATCH} x 1024: {ratio:.0f} times faster than the reference")
    console.print(f"time grows with the length to the power {slope:.3f}")


def english(rows: list[Row]) -> list[Row]:
    """The rows measured on the text."""
    return [row for row in rows if row.tokens == "English words"]


def record(rows: list[Row], text: Path | None) -> None:
    """Append the rows, with all that is needed to measure them again."""
    where = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "command": "python benchmarks/alignment.py" + (f" --text {text.name}" if text else ""),
    }
    path = RESULTS / "alignment.csv"
    RESULTS.mkdir(exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*where, *asdict(rows[0])])
        if new:
            writer.writeheader()
        for row in rows:
            values = {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in asdict(row).items()}
            writer.writerow(where | values)
    print(f"recorded in {path}")


def commit() -> str:
    """The commit that is measured, marked if the package differs from it."""
    head = ["git", "rev-parse", "--short", "HEAD"]
    name = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    changed = ["git", "diff", "--quiet", "HEAD", "--", "src"]
    return name + ("-dirty" if subprocess.run(changed, check=False).returncode else "")


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


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
