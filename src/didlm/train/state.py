"""Everything that changes while a network is trained, and what of it a checkpoint holds."""

import contextlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from didlm.data.batch import Batch
from didlm.data.padding import Shapes
from didlm.kernels.here import has_triton
from didlm.loss import batch_loss
from didlm.model.transformer import Network
from didlm.pretrained import DTYPES
from didlm.train.capture import Captured
from didlm.train.checkpoint import Checkpoint, load_tensors
from didlm.train.optimiser import MovingAverage, make_optimisers
from didlm.train.settings import Settings
from didlm.train.update import Update
from didlm.train.world import World


@dataclass
class Progress:
    """How far a run has come, in numbers."""

    step: int = 0
    best: float | None = None  # nats per document of the best validation so far
    bad_in_a_row: int = 0  # steps that were skipped, since the last that was not
    skipped: int = 0
    flops: float = 0.0  # of all processes
    seconds: float = 0.0  # of training


class Costing(nn.Module):
    """The network and its loss as one module: what is spread over processes."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Batch, scale: float) -> Tensor:
        """The cost of a batch, in nats; its backward pass must begin with `scale`."""
        return batch_loss(self.network, batch, scale, promised=True).total


@dataclass
class State:
    """A network in training, on this process."""

    network: Network
    average: MovingAverage
    costing: nn.Module
    optimisers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler
    update: Update | None = None  # on a GPU, where nothing is to be waited for
    captured: Captured | None = None  # and steps may be graphs
    progress: Progress = field(default_factory=Progress)

    @staticmethod
    def start(network: Network, settings: Settings, world: World) -> "State":
        """The state before the first step."""
        if settings.freeze_embeddings:
            network.token_embedding.requires_grad_(False)
            network.token_head.requires_grad_(False)
        average = MovingAverage(network, settings.average)
        costing = world.spread(Costing(network), network)
        if world.sharded:
            world.spread(average.network, average.network)
        if settings.compile:
            network.compile()
        state = State(
            network=network,
            average=average,
            costing=costing,
            optimisers=make_optimisers(network, settings),
            scaler=torch.amp.GradScaler(world.device.type, enabled=settings.precision == "fp16"),
        )
        if world.device.type == "cuda" and not world.sharded and settings.precision != "fp16":
            state.update = Update(network, average, state.optimisers, settings)
            if _can_be_captured(network, settings, world):
                state._capture(settings, world)
        return state

    def _capture(self, settings: Settings, world: World) -> None:
        """From now on, take steps as graphs."""
        update, share = self.update, 1 / settings.batch
        assert update is not None

        def learn(batch: Batch) -> None:
            with autocast(settings, world.device):
                cost = self.costing(batch, share)
            (cost * share).backward()
            update.apply(cost.detach() * share)
            self.network.zero_grad(set_to_none=True)

        self.captured = Captured(learn, Shapes(settings.batch), world.device)

    def settle(self) -> None:
        """Write down how many steps optimisers and average have taken, if only a GPU counted."""
        if self.update is not None:
            self.average.steps = self.progress.step - self.progress.skipped
            self.update.settle(self.average.steps)

    def tensors(self) -> dict[str, Any]:
        """All tensors that a run needs to go on, by name."""
        self.settle()
        return {
            "network": self.network.state_dict(),
            "average": self.average.network.state_dict(),
            "optimisers": get_optimizer_state_dict(self.network, self.optimisers)["state"],
        }

    def numbers(self) -> dict[str, Any]:
        """Everything else."""
        self.settle()
        numbers = asdict(self.progress) | {"average_steps": self.average.steps}
        return numbers | {"scaler": self.scaler.state_dict()}

    def restore(self, checkpoint: Checkpoint, world: World) -> None:
        """Go back to where a checkpoint was written."""
        optimisers = get_optimizer_state_dict(self.network, self.optimisers)
        tensors = self.tensors() | {"optimisers": optimisers["state"]}
        load_tensors(checkpoint, tensors, world)
        self.network.load_state_dict(tensors["network"])
        self.average.network.load_state_dict(tensors["average"])
        set_optimizer_state_dict(self.network, self.optimisers, optim_state_dict=optimisers)
        numbers = dict(checkpoint.progress)
        self.average.steps = numbers.pop("average_steps")
        self.scaler.load_state_dict(numbers.pop("scaler"))
        self.progress = Progress(**numbers)
        if self.captured is not None:
            self.captured.forget()
        if self.update is not None:
            self.update.restart(self.progress.skipped, self.progress.bad_in_a_row)


def autocast(settings: Settings, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Where matrices are multiplied in the precision of the settings."""
    if settings.precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[settings.precision])


def _can_be_captured(network: Network, settings: Settings, world: World) -> bool:
    """Whether a step is the same kernels every time, and waits for none of them."""
    return (
        settings.capture
        and settings.precision == "bf16"
        and world.size == 1
        and settings.accumulate == 1
        and not settings.compile
        and not settings.checkpointing
        and network.config.dialect.leading is None
        and has_triton()
    )


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make what torch draws in a step, which is dropout, a function of the step alone.

    So there is no generator whose state would have to be kept.
    """
    (word,) = np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)
    torch.manual_seed(int(word) >> 1)
