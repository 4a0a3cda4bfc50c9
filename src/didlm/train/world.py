"""The processes of a run: one, or as many as torchrun has started.

Every process holds the whole network (DDP) or a part of it (FSDP2) and takes its share of every
batch. What it does with the others is all in this file.
"""

import contextlib
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from didlm.model.transformer import Network
from didlm.pretrained import check_device

# While the first process prepares data or validates, the others wait for it.
PATIENCE = timedelta(hours=2)
MOST_WORKERS = 8  # for one GPU: more have nothing to do


@dataclass(frozen=True)
class World:
    """The processes, and which of them this one is."""

    rank: int
    size: int
    device: torch.device
    sharded: bool = False

    @staticmethod
    def join(device: str, distribution: str) -> "World":
        """Meet the other processes, if torchrun has started any.

        Raises:
            ValueError: if this machine has no such device.
        """
        size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        together = size > 1 or distribution == "fsdp"  # which a single process can do too
        if together and device == "cuda":
            device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        found = check_device(device)
        if found.type == "cuda" and found.index is not None:
            torch.cuda.set_device(found)  # streams and events are those of the current device
        if together:
            backend = "cpu:gloo,cuda:nccl" if found.type == "cuda" else "gloo"
            alone = {"store": HashStore(), "rank": 0, "world_size": 1}
            dist.init_process_group(
                backend, timeout=PATIENCE, **cast(Any, {} if size > 1 else alone)
            )
        world = World(rank, size, found, distribution == "fsdp")
        world.wait()  # or one that fails at once would be gone before another has met it
        return world

    def leave(self) -> None:
        """Take leave of the others."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks, validates and writes files."""
        return self.rank == 0

    def workers(self, wanted: int) -> int:
        """How many processes make batches for this one, if that is left open (-1).

        A GPU is never to wait for them; a CPU has nothing else to do them with.
        """
        if wanted >= 0:
            return wanted
        if self.device.type == "cpu":
            return 0
        here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        return max(1, min(MOST_WORKERS, _cores() // here - 1))

    def most(self, *values: float) -> list[float]:
        """The largest of each value over all processes."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return [float(value) for value in tensor]

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.all_reduce(torch.zeros(1))  # a barrier of nccl would wait on the device

    def gather(self, value: Any) -> list[Any]:
        """What each process says."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def spread(self, module: nn.Module, network: Network) -> nn.Module:
        """A module over all processes, in which gradients are averaged over them.

        Args:
            module: what is called in training.
            network: the network in it, or the module itself.
        """
        if self.sharded:
            mesh = init_device_mesh(self.device.type, (self.size,))
            for block in network.blocks:
                fully_shard(block, mesh=mesh)
            return cast(nn.Module, fully_shard(module, mesh=mesh))
        return DistributedDataParallel(module) if self.size > 1 else module

    def averaging(self, module: nn.Module, now: bool) -> contextlib.AbstractContextManager[None]:
        """Whether the backward passes inside average gradients: once a step is enough."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(now)
        elif isinstance(module, DistributedDataParallel) and not now:
            return cast(contextlib.AbstractContextManager[None], module.no_sync())
        return contextlib.nullcontext()

    def whole(self, network: Network) -> Network:
        """The network itself, or one in one piece if its parts are here and there.

        All processes must ask; with parts, only the first gets the weights.
        """
        if not self.sharded:
            return network
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(network, options=options)
        whole = Network(network.config)
        if self.first:
            whole.load_state_dict(state)
        return whole.to(self.device).eval()


def _cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
