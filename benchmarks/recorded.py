"""Reading what was recorded: the newest measurement of every case."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from recording import RESULTS

Recorded = dict[str, str]
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

    Whether the GPU waits is only measured now and then: the last answer of each case counts.
    """
    rows = [row for row in read("gpu_train") if row["compiled"] == "False"]
    rows = [row for row in rows if row.get("captured") == str(captured)]
    waiting = {
        _key(row, CASE): {"waiting": row["waiting"]} for row in rows if row.get("waiting", "")
    }
    return [row | waiting.get(_key(row, CASE), {}) for row in newest(rows, CASE)]


def _key(row: Recorded, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.get(column, "") for column in columns)


def number(row: Recorded, column: str) -> float | None:
    """A figure of a row, if it was measured."""
    value = row.get(column) or ""
    return float(value) if value else None
