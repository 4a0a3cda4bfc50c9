"""Where the time goes: a clock that runs only while something is being done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Step = TypeVar("Step")


class Stopwatch:
    """Adds up the seconds of what runs under it, the work that it gives to a GPU included."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self._gpu = device if device.type == "cuda" else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        began = self._now()
        try:
            yield
        finally:
            self.seconds += self._now() - began

    def each(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps; their own time counts, that of whoever looks at them does not."""
        while True:
            with self.running():
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step

    def _now(self) -> float:
        if self._gpu is not None:  # it works on while Python has moved on
            torch.cuda.synchronize(self._gpu)
        return time.perf_counter()
