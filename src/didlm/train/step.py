"""One optimiser step: gradients over all processes, clipped, applied, averaged."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor

from didlm.data.batch import Batch
from didlm.pretrained import DTYPES
from didlm.train.optimiser import learning_rate_factor
from didlm.train.settings import Settings
from didlm.train.state import State, seed_step
from didlm.train.world import World


@dataclass(frozen=True)
class Figures:
    """What a step tells."""

    loss: float  # nats per document
    gradient_norm: float
    learning_rate: float
    skipped: int  # steps so far whose loss or gradient was not finite


def take_step(
    state: State,
    batches: list[Batch],
    settings: Settings,
    world: World,
    count: Callable[[Batch], None] = lambda batch: None,
) -> Figures:
    """Learn from the batches of one step; all processes must.

    Args:
        state: what is trained; it is changed.
        batches: this process's share of the examples of the step.
        settings: of the run.
        world: the processes.
        count: told of every batch, for the meter.
    """
    step = state.progress.step
    seed_step(settings.seed, step, world.rank)
    factor = learning_rate_factor(
        settings.schedule,
        step,
        settings.steps,
        min(settings.warmup, settings.steps // 2),
        settings.decay,
    )
    for optimiser in state.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * factor
    loss = _gradients(state, batches, settings, world, count)
    for optimiser in state.optimisers:
        state.scaler.unscale_(optimiser)
    norm_tensor = torch.nn.utils.clip_grad_norm_(state.network.parameters(), settings.clip)
    norm = float(norm_tensor.full_tensor() if isinstance(norm_tensor, DTensor) else norm_tensor)
    if math.isfinite(loss) and math.isfinite(norm):
        for optimiser in state.optimisers:
            state.scaler.step(optimiser)
        state.average.update(state.network)
        state.progress.bad_in_a_row = 0
    else:
        state.progress.bad_in_a_row += 1
        state.progress.skipped += 1
    state.scaler.update()
    state.network.zero_grad(set_to_none=True)
    state.progress.step += 1
    return Figures(loss, norm, settings.learning_rate * factor, state.progress.skipped)


def _gradients(
    state: State,
    batches: list[Batch],
    settings: Settings,
    world: World,
    count: Callable[[Batch], None],
) -> float:
    """Those of a step, over all processes; its loss in nats per document.

    Divided by the number of documents of a step, which is always the same: else documents that
    share their batch with few others, the long ones, would count for more.
    """
    # Where a batch did not hold all, there are more; all processes must have as many.
    most = int(world.most(len(batches))[0])
    batches = batches + [batches[0].silenced()] * (most - len(batches))
    share = world.size / settings.batch  # gradients are averaged over processes
    total = torch.zeros((), device=world.device)
    for number, batch in enumerate(batches, start=1):
        count(batch)
        with world.averaging(state.costing, now=number == most):
            with autocast(settings, world.device):
                cost = state.costing(batch.to(world.device), state.scaler.get_scale() * share)
            state.scaler.scale(cost * share).backward()
        total += cost.detach()
    return float(world.total(total)) / settings.batch


def autocast(settings: Settings, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Where matrices are multiplied in the precision of the settings."""
    if settings.precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[settings.precision])
