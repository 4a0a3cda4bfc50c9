"""Reading what was recorded: the newest measurement of every case."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from recording import RESULTS

Recorded = dict[str, str]
SETTING = ("method", "preset", "batch", "context")
LONG_RUNS = {
    "fixed": ("did-fixed", "small", "64", "1024"),
    "variable": ("did", "small", "64", "1024"),
}
CASE = ("what", "method", "preset", "batch", "context", "vocabulary", "gpu")


def read(name: str) -> list[Recorded]:
    """All rows of results/<name>.csv, oldest first; none if there is no such file."""
    path: Path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def newest(rows: Iterable[Recorded], columns: Sequence[str]) -> list[Recorded]:
    """The last row of every case: rows are of one case if they agree in these columns."""
    last: dict[tuple[str, ...], Recorded] = {}
    for row in rows:
        key = _key(row, columns)
        last.pop(key, None)  # so that the order is that of the newest
        last[key] = row
    return list(last.values())


def training_steps(captured: bool = True) -> list[Recorded]:
    """The newest measurements of training steps, as graphs or without; never of compiled ones.

    Whether the GPU waits is measured in long runs, of the paper's two settings.
    """
    rows = [row for row in read("gpu_train") if row["compiled"] == "False"]
    rows = newest([row for row in rows if row.get("captured") == str(captured)], CASE)
    waits = {what: waiting(what) for what in LONG_RUNS}
    return [
        row | {"waiting": waits[row["what"]] if _key(row, SETTING) in LONG_RUNS.values() else ""}
        for row in rows
    ]


def waiting(what: str) -> str:
    """The share of time that the GPU waits, in the median hundred steps of the last long run."""
    run: list[Recorded] = []
    for row in read("gpu_steady"):
        if row["what"] == what:
            run = [*run, row] if run and int(row["step"]) > int(run[-1]["step"]) else [row]
    return str(median(float(row["waiting"]) for row in run)) if run else ""


def _key(row: Recorded, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.get(column, "") for column in columns)


def number(row: Recorded, column: str) -> float | None:
    """A figure of a row, if it was measured."""
    value = row.get(column) or ""
    return float(value) if value else None
