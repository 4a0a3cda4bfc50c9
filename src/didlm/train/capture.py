"""Steps as captured graphs of kernels: the host starts one graph instead of a thousand kernels.

A graph does the same work on the same memory each time it is replayed, so batches are padded to a
few shapes (`didlm.data.padding`), each with a graph of its own. The memory in which they work is
shared: no two run at once, and nothing but weights, moments and figures outlives a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from didlm.data.batch import Batch
from didlm.data.padding import Shape, Shapes, padded
from didlm.packed import Packed
from didlm.threads import one_thread

ALIGNMENT = 16  # bytes, at which each tensor of a batch starts
WATCHED = 16  # steps before the first graph: they show how large batches are


class Captured:
    """Learns from batches: from the first few as usual, from all others by graphs."""

    def __init__(
        self, learn: Callable[[Batch], None], shapes: Shapes, device: torch.device
    ) -> None:
        """Begin.

        Args:
            learn: a whole step on the device, which must not wait for it; it is handed a batch
                there and leaves no gradients.
            shapes: that batches are padded to.
            device: a GPU.
        """
        self._learn, self._shapes, self._device = learn, shapes, device
        self._rooms: dict[Shape, Room] = {}
        self._graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._steps = 0  # without a graph
        self.captures = 0  # so far
        self._arrivals = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def forget(self) -> None:
        """Drop all graphs: weights or moments are elsewhere now."""
        self._graphs.clear()
        self._rooms.clear()

    def learn(self, batch: Batch, begin: Callable[[], None] = lambda: None) -> None:
        """One step.

        Args:
            batch: on the host.
            begin: called when the batch is there and the device has only to work.
        """
        shape = self._shapes.fitting(batch)
        with one_thread():
            room = self._lay_down(padded(batch, shape), shape)
        # Made anew, so that it remembers nothing of an earlier batch in the same place.
        here = replace(room.batch, x_t=replace(room.batch.x_t))
        if self._steps < WATCHED:  # which also builds kernels; a capture should not
            self._steps += 1
            begin()
            self._learn(here)
            if self._steps == WATCHED:  # what they worked in would stay beside the graphs' memory
                torch.cuda.empty_cache()
            return
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(here)
            self.captures += 1
        begin()
        self._graphs[shape].replay()

    def _lay_down(self, batch: Batch, shape: Shape) -> "Room":
        """Copy a batch to where those of its shape lie on the device."""
        if shape not in self._rooms:
            for other in [x for x in self._rooms if x.generation != shape.generation]:
                del self._rooms[other]
                self._graphs.pop(other, None)
            self._rooms[shape] = Room(batch, self._device, self._arrivals)
        self._rooms[shape].fill(batch)
        return self._rooms[shape]

    def _capture(self, batch: Batch) -> torch.cuda.CUDAGraph:
        if not self._graphs:  # the last of them took the memory along
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        # Relaxed: another shape may need a kernel that is not loaded yet.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="relaxed"
        ):
            self._learn(batch)
        return graph


class Room:
    """A batch whose tensors lie end to end on the device, so that one copy fills them all."""

    def __init__(self, batch: Batch, device: torch.device, arrivals: torch.cuda.Stream) -> None:
        """Room for batches of the same shape as this one, which come on a stream of their own."""
        sizes = [_aligned(tensor.nbytes) for tensor in _tensors(batch)]
        self._bytes = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
        self._arrivals = arrivals
        self.batch = _with_tensors(batch, self._views(self._bytes, batch))

    def fill(self, batch: Batch) -> None:
        """Copy a batch from the host, while the device still works on an earlier one."""
        pinned = torch.empty(self._bytes.shape, dtype=torch.uint8, pin_memory=True)
        for target, source in zip(self._views(pinned, batch), _tensors(batch), strict=True):
            target.copy_(source)
        with torch.cuda.stream(self._arrivals):
            arrived = pinned.to(self._bytes.device, non_blocking=True)
        current = torch.cuda.current_stream(self._bytes.device)
        current.wait_stream(self._arrivals)
        self._bytes.copy_(arrived)
        arrived.record_stream(current)

    def _views(self, memory: Tensor, batch: Batch) -> list[Tensor]:
        views, start = [], 0
        for tensor in _tensors(batch):
            part = memory[start : start + tensor.nbytes]
            views.append(part.view(tensor.dtype).view(tensor.shape))
            start += _aligned(tensor.nbytes)
        return views


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _names(part: Batch | Packed) -> list[str]:
    return [x.name for x in fields(part) if isinstance(getattr(part, x.name), Tensor)]


def _tensors(batch: Batch) -> list[Tensor]:
    return [getattr(part, name) for part in (batch.x_t, batch) for name in _names(part)]


def _with_tensors(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The same batch with other tensors, in the order of `_tensors`."""
    rest = iter(tensors)
    packed: dict[str, Any] = {name: next(rest) for name in _names(batch.x_t)}
    others: dict[str, Any] = {name: next(rest) for name in _names(batch)}
    return replace(batch, x_t=replace(batch.x_t, **packed), **others)
