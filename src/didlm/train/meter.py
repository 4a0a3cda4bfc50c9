"""Speed, waiting and memory of a run."""

import sys
import time

import torch

from didlm.data.batch import Batch
from didlm.data.loader import Loader
from didlm.model.config import ModelConfig
from didlm.model.flops import training_flops
from didlm.train.step import Outcome
from didlm.train.world import World


class Meter:
    """Tokens per second, share of the time spent waiting for data, FLOPs, seconds, and memory.

    Seconds count from the end of the first step: until then processes start and kernels are built,
    which takes the longer the less of it has been done before.

    Args:
        loader: of the batches.
        config: of the network.
        world: the processes.
        flops: of the steps before.
        seconds: that those took.
    """

    def __init__(
        self,
        loader: Loader,
        config: ModelConfig,
        world: World,
        flops: float = 0.0,
        seconds: float = 0.0,
    ) -> None:
        self._loader, self._config, self._world = loader, config, world
        self._flops_before, self._flops = flops, 0.0
        self._seconds = seconds
        self._since: float | None = None  # when training went on
        self._last: torch.cuda.Event | None = None  # when a GPU was done with the last step
        self._clear()

    def pause(self) -> None:
        """Something else than training begins, such as a validation."""
        self._seconds, self._since = self.seconds(), None

    def restart(self) -> None:
        """Training goes on, and is measured afresh: what has passed meanwhile is no waiting."""
        self._last, self._since = None, time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._tokens = 0
        # Between two steps of a GPU: when it was done with one, and when it turned to the next.
        self._pauses: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._started, self._waited = time.perf_counter(), self._loader.waited

    def count(self, batch: Batch) -> None:
        """A batch is about to be learnt from."""
        self._tokens += batch.x_t.rows
        self._flops += training_flops(self._config, batch)

    def took(self, outcome: Outcome) -> None:
        """A step has been taken, or given to a GPU to take."""
        if self._since is None:
            self._since = time.perf_counter()
        if self._last is not None and outcome.began is not None:
            self._pauses.append((self._last, outcome.began))
        self._last = outcome.ended

    def flops(self) -> float:
        """Of all steps so far, over all processes, which must all ask."""
        here = torch.tensor(self._flops, dtype=torch.float64)
        return self._flops_before + float(self._world.total(here))

    def seconds(self) -> float:
        """What training has taken so far, on this process, without its start and validations."""
        now = time.perf_counter()
        return self._seconds + (0.0 if self._since is None else now - self._since)

    def read(self) -> dict[str, float]:
        """The figures since the last reading, over all processes, which must all ask."""
        seconds = time.perf_counter() - self._started
        waited = self._loader.waited - self._waited
        if self._pauses:  # a GPU works while the next batch is waited for
            self._pauses[-1][1].synchronize()
            waited = sum(ended.elapsed_time(began) for ended, began in self._pauses) / 1000
        tokens = self._world.total(torch.tensor(self._tokens, dtype=torch.float64))
        result = {
            "tokens_per_second": float(tokens) / seconds,
            "waiting": waited / seconds,
            "flops": self.flops(),
            "seconds": self.seconds(),
            "memory_mib": _memory_mib(self._world.device),
        }
        self._clear()
        return result


def _memory_mib(device: torch.device) -> float:
    """The most memory used so far, on the device that trains."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
