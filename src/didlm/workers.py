"""Worker processes that end with their parent, however it ends."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from typing import Any


def start_workers(
    count: int, initialise: Callable[..., None], *arguments: Any
) -> ProcessPoolExecutor:
    """A pool of processes, each of which calls `initialise` once, with these arguments.

    A forked process may not use CUDA or the threads of its parent; these are spawned, and start
    clean.
    """
    return ProcessPoolExecutor(count, get_context("spawn"), _start, (initialise, arguments))


def _start(initialise: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches every process of a terminal: what to do about it is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initialise(*arguments)


def _end_with_parent() -> None:
    """A parent that is killed cannot say goodbye, and its workers would wait for work forever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
