"""How fast are exact insertion targets? The windowed algorithm against the paper's, on one core.

    python benchmarks/alignment.py [--text FILE]

Prints a table, appends rows to benchmarks/results/alignment.csv and draws alignment.png beside it.
Without a text it reads the English of Python's own language reference, which every Python carries.
"""

import argparse
import csv
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
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


def main() -> None:
    """Measure, print, record, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--text", type=Path, help="a UTF-8 text of at least a million words")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words = read_words(arguments.text)
    rows: list[dict[str, object]] = []
    for length in LENGTHS:
        rows += measure(words, length)
    show(rows)
    record(rows, arguments.text)
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
    if len(words) <= max(LENGTHS):
        sys.exit(f"{path} has {len(words)} words; the benchmark needs more than {max(LENGTHS)}")
    return np.array([numbers.setdefault(word, len(numbers)) for word in words])


def measure(words: np.ndarray, length: int) -> list[dict[str, object]]:
    """Time both algorithms on 64 stretches of the text, at times spread evenly over (0, 1)."""
    x0, keep = corrupted(words, length)
    cells = window_cells(x0, keep)
    rows = [
        {
            "algorithm": "windowed",
            "length": length,
            "cells": cells,
            "table": BATCH * length**2 // 2,
            **timed(lambda: insertion_targets_batch(x0, keep), repeats=15),
        }
    ]
    if length <= 1024:  # beyond, the tables of the reference alone take gigabytes
        reference = timed(lambda: insertion_targets_batch_reference(x0, keep), repeats=3)
        rows.append({"algorithm": "reference", "length": length, **reference})
    return rows


def corrupted(words: np.ndarray, length: int) -> tuple[Packed, np.ndarray]:
    """A batch of texts, and the masks of what is left of them."""
    starts = np.linspace(0, len(words) - length, BATCH).astype(int)
    x0 = pack([words[start : start + length] for start in starts], bos=0)
    deleted = np.repeat((np.arange(BATCH) + 0.5) / BATCH, length + 1)
    keep = np.random.default_rng(0).random(x0.rows) >= deleted
    return x0, keep | x0.is_bos.numpy()


def timed(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and quartiles in milliseconds, after one call to warm up; peak memory so far."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ms": median, "ms_25": low, "ms_75": high, "peak_mib": peak}


def exponent(rows: list[dict[str, object]]) -> float:
    """The growth of time with length: the slope of a straight line through the logarithms."""
    windowed = [row for row in rows if row["algorithm"] == "windowed"]
    lengths, times = (
        np.log([float(str(row[key])) for row in windowed]) for key in ("length", "ms")
    )
    return float(np.polyfit(lengths, times, 1)[0])


def speedup(rows: list[dict[str, object]], length: int) -> float:
    """How many times faster the windowed algorithm is."""
    by_name = {row["algorithm"]: float(str(row["ms"])) for row in rows if row["length"] == length}
    return by_name["reference"] / by_name["windowed"]


def show(rows: list[dict[str, object]]) -> None:
    """Print the table."""
    table = Table(title=f"Exact insertion targets of {BATCH} texts, one core")
    for name in ("algorithm", "tokens each", "ms (median)", "quartiles", "cells", "full table"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row["algorithm"]),
            str(row["length"]),
            f"{row['ms']:.2f}",
            f"{row['ms_25']:.2f} - {row['ms_75']:.2f}",
            f"{row['cells']:,}" if "cells" in row else "",
            f"{row['table']:,}" if "table" in row else "",
        )
    console = Console()
    console.print(table)
    console.print(f"at 1024 tokens: {speedup(rows, 1024):.0f} times faster than the reference")
    console.print(f"time grows as length to the power {exponent(rows):.3f}")


def record(rows: list[dict[str, object]], text: Path | None) -> None:
    """Append the rows, with all that is needed to measure them again."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    where = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "cpu": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "text": text.name if text else "pydoc topics",
        "command": "python benchmarks/alignment.py" + (f" --text {text.name}" if text else ""),
    }
    fields = ("algorithm", "length", "ms", "ms_25", "ms_75", "peak_mib", "cells", "table")
    path = RESULTS / "alignment.csv"
    RESULTS.mkdir(exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*where, *fields])
        if new:
            writer.writeheader()
        for row in rows:
            values = {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()}
            writer.writerow(where | values)
    print(f"recorded in {path}")


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def draw(rows: list[dict[str, object]]) -> None:
    """Time against length, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, marker in (("reference", "s"), ("windowed", "o")):
        own = [row for row in rows if row["algorithm"] == name]
        axes.plot(
            [row["length"] for row in own], [row["ms"] for row in own], marker=marker, label=name
        )  # type: ignore[misc]
    axes.set(xscale="log", yscale="log", xlabel="tokens per text", ylabel="milliseconds")
    axes.set_title(f"Exact insertion targets of {BATCH} texts, one core")
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    path = RESULTS / "alignment.png"
    figure.savefig(path, dpi=150)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
