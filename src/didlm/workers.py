"""Worker processes that end with their parent, however it ends."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from multiprocessing.context import BaseContext
from typing import Any

_expected: set[str] = set()  # modules that workers will need


def expect_workers(*modules: str) -> None:
    """Say which modules the workers of a pool to come need, before there is any pool."""
    _expected.update(modules)


def start_workers(
    count: int, initialise: Callable[..., None], *arguments: Any, imports: Sequence[str] = ()
) -> ProcessPoolExecutor:
    """A pool of processes, each of which calls `initialise` once, with these arguments.

    A forked process may not use CUDA or the threads of its parent. These are forks of a process
    that starts clean and imports the modules they need, once for all of them: that is most of what
    starting them takes.

    Args:
        count: of processes.
        initialise: what each calls first.
        arguments: what it is called with.
        imports: modules that they need besides. Only the first pool of a program is asked: what
            later ones need must have been expected by then.
    """
    context: BaseContext = get_context("spawn")
    if "forkserver" in get_all_start_methods():  # all but Windows
        context = get_context("forkserver")
        expect_workers(initialise.__module__, *imports)
        context.set_forkserver_preload(sorted(_expected))
    return ProcessPoolExecutor(count, context, _start, (initialise, arguments))


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
