"""Work that nothing waits for until the end of the backward pass, beside what comes next.

Gradients of weights are such work: the backward pass goes on with the gradients of rows. On a
stream of their own they fill a GPU where the other kernels leave room.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PENDING = 2  # pieces of work at most: what they read must not be freed before they are done

_stream: torch.cuda.Stream | None = None  # not of a thread: autograd has threads of its own
_pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()


@contextmanager
def allowed(device: torch.device) -> Iterator[None]:
    """Let work be done aside, and wait for it at the end; in one thread at a time."""
    global _stream
    assert _stream is None
    _stream = torch.cuda.Stream(device)
    try:
        yield
        torch.cuda.current_stream(device).wait_stream(_stream)
    finally:
        _stream = None
        _pending.clear()


def aside(work: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """The result of some work on tensors; nobody may read it before `allowed` has ended."""
    if _stream is None:
        return work(*inputs)
    current = torch.cuda.current_stream(_stream.device)
    while len(_pending) >= PENDING:
        done, _ = _pending.popleft()
        current.wait_event(done)
    _stream.wait_stream(current)
    with torch.cuda.stream(_stream):
        result = work(*inputs)
        done = torch.cuda.Event()
        done.record()
    _pending.append((done, inputs))
    return result
