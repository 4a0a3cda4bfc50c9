"""Being asked to stop: SIGTERM and Ctrl-C end a run after the step in which they come."""

import signal
import threading
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Inside, the first signal is remembered, and the second has its usual effect.

    Only the main thread is told of signals: in another, all of them have their usual effect.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None: one that was not set from Python, and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
