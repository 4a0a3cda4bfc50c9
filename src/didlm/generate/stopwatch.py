"""Where the time goes: a clock that runs only while something is being done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Step = TypeVar("Step")


class Stopwatch:
    """Adds up the seconds of what runs under it, the work that it gives to a GPU included.

    A GPU works on while Python has moved on: marks are left in its queue, and read when somebody
    asks, so that nobody waits for it before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds = 0.0
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def seconds(self) -> float:
        """So far."""
        for began, ended in self._marks:
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1000
        self._marks.clear()
        return self._seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        if self.device.type != "cuda":
            began = time.perf_counter()
            try:
                yield
            finally:
                self._seconds += time.perf_counter() - began
            return
        with torch.cuda.device(self.device):
            mark, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            mark.record()
            try:
                yield
            finally:
                end.record()
                self._marks.append((mark, end))

    def each(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps; their own time counts, that of whoever looks at them does not."""
        while True:
            with self.running():
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step
