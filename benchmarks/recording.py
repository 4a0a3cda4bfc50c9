"""Taking measurements, and noting with them what is needed to take them again."""

import csv
import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def seconds(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median and quartiles of the time a call takes, after one call to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return median, low, high


def peak_mib(call: Callable[[], object]) -> float:
    """How far a call raises the resident memory at its peak; not a number outside Linux."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed before must not hide the rise
        Path("/proc/self/clear_refs").write_text("5")  # start the peak afresh
    except (OSError, AttributeError):
        return float("nan")
    before = _status_mib("VmRSS")
    call()
    return _status_mib("VmHWM") - before


def record(name: str, rows: Sequence[Any], command: str, packages: Sequence[str]) -> None:
    """Append dataclasses to results/<name>.csv, with all that is needed to measure them again.

    Args:
        name: of the benchmark.
        rows: measurements, instances of one dataclass.
        command: that makes them again.
        packages: whose versions matter.
    """
    where = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": processor(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "command": command,
    }
    path = RESULTS / f"{name}.csv"
    RESULTS.mkdir(exist_ok=True)
    before: list[dict[str, str]] = []
    columns = [*where, *asdict(rows[0])]
    if path.exists():
        with path.open(newline="") as file:
            before = list(csv.DictReader(file))
        # Earlier rows may lack columns, or have some that are measured no more.
        columns = [*dict.fromkeys([*before[0], *columns])] if before else columns
    beside = path.with_suffix(".csv.new")
    with beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(before)
        for row in rows:
            values = {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in asdict(row).items()}
            writer.writerow(where | values)
    beside.replace(path)
    print(f"recorded in {path}")


def commit() -> str:
    """The commit that is measured, marked if the package differs from it.

    Where the history did not come along, the variable BENCHMARK_COMMIT says it.
    """
    if named := os.environ.get("BENCHMARK_COMMIT"):
        return named
    name = _git("rev-parse", "--short", "HEAD")
    return name + ("-dirty" if _git("status", "--porcelain", "--", "src") else "")


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def _git(*arguments: str) -> str:
    root = Path(__file__).parents[1]
    call = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return call.stdout.strip()


def _status_mib(field: str) -> float:
    """One of the kernel's figures about this process."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) / 1024
