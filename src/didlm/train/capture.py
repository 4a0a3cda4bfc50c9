"""Steps as captured graphs of kernels: the host starts one graph instead of a thousand kernels.

A graph does the same work on the same memory each time it is replayed, so batches are padded to a
few shapes (`didlm.data.padding`), each with a graph of its own. The memory in which they work is
shared: no two run at once, and nothing but weights, moments and figures outlives a step.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from didlm.data.batch import Batch
from didlm.data.padding import Shape, Shapes, padded


class Captured:
    """Learns from batches: the first of a shape as usual, further ones by a graph."""

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
        self._seen: dict[Shape, Batch] = {}  # the batch whose memory the graph of a shape reads
        self._graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def learn(self, batch: Batch) -> None:
        """One step."""
        shape = self._shapes.fitting(batch)
        batch = padded(batch, shape)
        if shape not in self._seen:  # builds kernels, which a capture cannot
            for other in [x for x in self._seen if x.outgrown(shape)]:
                del self._seen[other]
                self._graphs.pop(other, None)
            self._seen[shape] = batch.to(self._device)
            self._learn(self._seen[shape])
            return
        _copy(batch, self._seen[shape])
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(self._seen[shape])
        self._graphs[shape].replay()

    def _capture(self, batch: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        # The loader's threads may use the device meanwhile: only this one must not wait for it.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            # Made anew, so that it remembers nothing of an earlier batch.
            self._learn(replace(batch, x_t=replace(batch.x_t)))
        return graph


def _tensors(batch: Batch) -> list[Tensor]:
    packed = batch.x_t
    return [
        packed.tokens,
        packed.offsets,
        packed.given,
        packed.open,
        *(
            x
            for x in (getattr(batch, field.name) for field in fields(batch))
            if isinstance(x, Tensor)
        ),
    ]


def _copy(source: Batch, target: Batch) -> None:
    """From the host to where a graph reads; from pinned memory, so that nobody waits."""
    for one, other in zip(_tensors(source), _tensors(target), strict=True):
        other.copy_(one.pin_memory() if one.device.type == "cpu" else one, non_blocking=True)
