"""Threads of torch on the host."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch do work on the host that is too small for more threads in one.

    It divides all that has more than 32,768 numbers among as many threads as there are cores. Where
    other processes use these cores, waiting for the last of the threads takes many times longer
    than the work: 4 to 8 ms instead of 0.4 for one batch.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
