"""Figures in files, each with its origin: when it was found, by which version, on what hardware."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from didlm.files import write_text

Origin = dict[str, Any]
UNKNOWN: Origin = {"date": "unknown", "versions": {"commit": "unknown"}, "hardware": {}}
PARTS = {"figure", "made"}  # of a file; older ones are the figure alone


def now() -> str:
    """The date of a figure that is found now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_figure(file: Path, figure: Any, origin: Origin) -> None:
    """Keep a figure, whatever it is, with its origin."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps({"figure": figure, "made": origin}) + "\n")


def read_figure(file: Path) -> tuple[Any, Origin]:
    """A figure and its origin, which of files of older versions is unknown."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(kept, dict) and kept.keys() == PARTS:
        return kept["figure"], kept["made"]
    return kept, UNKNOWN


def different(origins: Iterable[Origin]) -> list[Origin]:
    """Those that differ in more than the date, each with its first date and, as `until`, its last.

    The first is that of the oldest figure.
    """
    found: list[Origin] = []
    for origin in sorted(origins, key=lambda each: str(each["date"])):
        same = [each for each in found if _place(each) == _place(origin)]
        if not same:
            found.append(dict(origin))
        elif origin["date"] != same[0]["date"]:
            same[0]["until"] = origin["date"]
    return found


def _place(origin: Origin) -> tuple[Any, Any]:
    return origin["versions"], origin["hardware"]
