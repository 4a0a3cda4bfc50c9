"""What a run tells its user: a live display or plain lines on the screen, metrics on disk."""

import json
import math
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

PLAIN_EVERY = 10.0  # seconds between two lines


class Reporter:
    """Shows and records the metrics of a run."""

    def __init__(
        self, folder: Path, steps: int, seconds: float = 0.0, silent: bool = False
    ) -> None:
        self._folder, self._silent = folder, silent
        self._seconds = seconds  # after which it ends, if not 0
        self._file: TextIO | None = None
        self._board: Any = None
        self.console = Console(file=sys.stderr, highlight=False, quiet=silent)
        self._live = (
            Progress(
                MofNCompleteColumn(),
                BarColumn(bar_width=10),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=self.console,
            )
            if self.console.is_terminal and not silent
            else None
        )
        self._task = self._live.add_task("training", total=steps) if self._live else None
        self._steps = steps
        self._first = 0
        self._started = self._last_line = time.perf_counter()
        self._bound = ""

    def __enter__(self) -> "Reporter":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        if self._board:
            self._board.close()
        if self._file:
            self._file.close()

    def open(self, first: int) -> None:
        """Begin to record, after so many steps."""
        self._first, self._started = first, time.perf_counter()
        if not self._silent:
            self._file = (self._folder / "metrics.jsonl").open("a", encoding="utf-8")
            self._board = _tensorboard(self._folder, first + 1)

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """A training step has been taken."""
        self._record("train", step, metrics)
        line = (  # it fits a terminal of 80 columns beside the bar
            f"loss {metrics['loss']:.1f}{self._bound}  "
            f"{metrics['tokens_per_second'] / 1000:.1f}k tokens/s  "
            f"wait {100 * metrics['waiting']:.0f}%  {metrics['memory_mib']:.0f} MiB"
        )
        if self._live and self._task is not None:
            self._live.update(self._task, completed=step, description=line)
            return
        now = time.perf_counter()
        if now - self._last_line >= PLAIN_EVERY or step == self._steps:
            self._last_line = now
            left = (now - self._started) / (step - self._first) * (self._steps - step)
            if self._seconds:
                left = min(left, self._seconds - metrics["seconds"])
            self.say(f"step {step}/{self._steps}  {line}  {left:.0f} s left")

    def validation(self, step: int, metrics: dict[str, float], sentence: str) -> None:
        """The model has been validated."""
        self._record("valid", step, metrics)
        what = sentence.split()[0]  # bound, or exact, or just a loss
        self._bound = f"  {what} {metrics['nats_per_document']:.1f}"
        self.say(f"step {step}: {sentence}")

    def say(self, sentence: str) -> None:
        """Print a line."""
        self.console.print(sentence, soft_wrap=True, markup=False)

    def _record(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        if self._file is None:
            return
        finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
        self._file.write(json.dumps({"kind": kind, "step": step, **finite}) + "\n")
        self._file.flush()
        if self._board:
            for name, value in metrics.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=first)
