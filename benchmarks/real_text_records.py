"""Records of the comparison on real text: small JSON files, written whole, and the time there is.

What has a record is not done again: remove the file to do so.
"""

import json
import platform
import shlex
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

import torch

from didlm.files import write_text
from didlm.train.loop import Interrupted
from recording import commit, processor

Figures = dict[str, Any]


@dataclass(frozen=True)
class Records:
    """A folder of records, each with what is needed to take it again."""

    folder: Path
    device: str = "cpu"
    arguments: Sequence[str] = ()  # of the command

    def read(self, name: str) -> Figures | None:
        """A record, if it is there."""
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, name: str, figures: Figures) -> None:
        """Write a record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self._facts() | figures, indent=1, ensure_ascii=False)
        write_text(self.folder / f"{name}.json", text + "\n")

    def rows(self, name: str) -> list[Figures]:
        """The rows of a record that grows."""
        return list((self.read(name) or {}).get("rows", []))

    def append(self, name: str, row: Figures) -> None:
        """Add a row, which says itself where and when it was measured."""
        self.write(name, {"rows": [*self.rows(name), self._facts() | row]})

    def all(self, kind: str) -> dict[str, Figures]:
        """All records of a kind, by what comes after it in their names."""
        paths = sorted(self.folder.glob(f"{kind}-*.json"))
        found = {path.stem.removeprefix(f"{kind}-"): self.read(path.stem) for path in paths}
        return {name: record for name, record in found.items() if record is not None}

    def _facts(self) -> Figures:
        # Where files lie is nobody's business.
        plain = [PurePath(word).name if word.startswith("/") else word for word in self.arguments]
        on_gpu = self.device.startswith("cuda")
        return {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "device": torch.cuda.get_device_name(self.device) if on_gpu else processor(),
            "torch": version("torch"),
            "python": platform.python_version(),
            "command": shlex.join(["python", "benchmarks/real_text.py", *plain]),
        }


@dataclass(frozen=True)
class Task:
    """Something to do that is not broken off."""

    name: str
    seconds: float  # that it may take
    do: Callable[[], None]

    @property
    def kind(self) -> str:
        """What is done: the first word of the name."""
        return self.name.split()[0]


def work_through(tasks: Iterable[Task], seconds: float) -> bool:
    """Do tasks for which there is time; one that fails does not keep others from being done.

    Returns:
        Whether all have been done.
    """
    started, left, failed = time.perf_counter(), [], []
    for task in tasks:
        begun = time.perf_counter()
        if begun - started + task.seconds > seconds:
            left.append(task.name)
            continue
        print(f"{begun - started:6.1f} s: {task.name}", flush=True)
        try:
            task.do()
        except Interrupted:  # by somebody who wants all of it to stop
            raise
        except Exception:  # time on a GPU is dear: the rest goes on
            traceback.print_exc()
            failed.append(task.name)
    spent = time.perf_counter() - started
    print(f"{spent:6.1f} s: done; failed: {len(failed)}; left for the next call: {len(left)}")
    for what, names in (("failed", failed), ("left", left)):
        print("".join(f"  {what}: {name}\n" for name in names), end="")
    return not (failed or left)
