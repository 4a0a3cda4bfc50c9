"""How far the preparing of a store has come: a bar on a terminal, else a line now and then."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_EVERY = 10.0  # seconds between two lines
WORTH_A_LINE = 1 << 22  # bytes of all sources: with fewer, it is over before one has read it


class Meter:
    """Shows how much of the sources has been read, on stderr."""

    def __init__(self, total: int | None, shown: bool) -> None:
        """Begin to measure.

        Args:
            total: bytes of all sources; None if that is not known.
            shown: whether to say anything.
        """
        console = Console(file=sys.stderr, highlight=False)
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"), TimeRemainingColumn())
        self._console = console if shown else None
        self._live = Progress(*columns, console=console) if shown and console.is_terminal else None
        self._task = self._live.add_task("reading", total=total) if self._live else None
        self._total = total
        self._started = self._last = time.perf_counter()

    def __enter__(self) -> "Meter":
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

    def say(self, what: str) -> None:
        """Say what is going on."""
        if self._live and self._task is not None:
            self._live.update(self._task, description=what)
        elif self._console and (self._total is None or self._total >= WORTH_A_LINE):
            self._console.print(what)

    def update(self, done: int, text: int, documents: int, tokens: int) -> None:
        """Note how far it is.

        Args:
            done: bytes of the sources that have been read.
            text: bytes of text in them.
            documents: how many there were.
            tokens: how many they have.
        """
        if not self._console:
            return
        now = time.perf_counter()
        speed = text / 1e6 / max(now - self._started, 1e-9)
        figures = f"{documents:,} documents, {tokens:,} tokens, {speed:.1f} MB/s"
        if self._live and self._task is not None:
            self._live.update(self._task, completed=done, description=figures)
        elif now - self._last >= PLAIN_EVERY:
            self._last = now
            of = f" of {self._total / 1e6:,.0f}" if self._total else ""
            self._console.print(f"{done / 1e6:,.0f}{of} MB read: {figures}")

    def restart(self) -> None:
        """Measure the speed from now on."""
        self._started = self._last = time.perf_counter()
