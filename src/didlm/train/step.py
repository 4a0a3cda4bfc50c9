"""One optimiser step: gradients over all processes, clipped, applied, averaged."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from didlm.data.batch import Batch
from didlm.train.optimiser import learning_rate_factor
from didlm.train.settings import Settings
from didlm.train.state import State, autocast, seed_step
from didlm.train.world import World


@dataclass(frozen=True)
class Figures:
    """What a step tells."""

    loss: float  # nats per document
    gradient_norm: float
    learning_rate: float
    skipped: int  # steps so far whose loss or gradient was not finite


class Outcome:
    """The figures of a step that has been waited for."""

    known = True  # whether reading them means no waiting
    began: torch.cuda.Event | None = None  # on a GPU: when it turned to the step
    ended: torch.cuda.Event | None = None  # and when it was done

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def read(self) -> Figures:
        """The figures."""
        return self._figures


class Awaited(Outcome):
    """Those of a step that a GPU may still be working on."""

    def __init__(self, state: State, learning_rate: float, began: torch.cuda.Event) -> None:
        """Send for what the device has to tell of the step that it was given last."""
        assert state.update is not None
        self._progress, self._learning_rate = state.progress, learning_rate
        self._report = torch.empty(4, pin_memory=True)
        self._report.copy_(state.update.report, non_blocking=True)
        self.began, self.ended = began, torch.cuda.Event(enable_timing=True)
        self.ended.record()

    @property
    def known(self) -> bool:  # type: ignore[override]
        """Whether the step is done."""
        assert self.ended is not None
        return self.ended.query()

    def read(self) -> Figures:
        """The figures; those that are counted go to the progress of the run."""
        assert self.ended is not None
        self.ended.synchronize()
        loss, norm, skipped, bad = self._report.tolist()
        self._progress.skipped, self._progress.bad_in_a_row = int(skipped), int(bad)
        return Figures(loss, norm, self._learning_rate, int(skipped))


def take_step(
    state: State,
    batches: list[Batch],
    settings: Settings,
    world: World,
    count: Callable[[Batch], None] = lambda batch: None,
) -> Outcome:
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
    rate = settings.learning_rate * factor
    if state.update is None:
        return Outcome(_step_and_wait(state, batches, settings, world, count, rate))
    began = torch.cuda.Event(enable_timing=True)
    state.update.prepare(rate, step)
    if state.captured is not None and len(batches) == 1:
        count(batches[0])
        state.captured.learn(batches[0], began.record)
    else:
        began.record()
        loss = _gradients(state, batches, settings, world, count)
        state.update.apply(loss)
        state.network.zero_grad(set_to_none=True)
    state.progress.step += 1
    return Awaited(state, rate, began)


def _step_and_wait(
    state: State,
    batches: list[Batch],
    settings: Settings,
    world: World,
    count: Callable[[Batch], None],
    rate: float,
) -> Figures:
    """With torch's optimisers as they are, which must be told whether to take the step."""
    for optimiser in state.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate
    loss = float(_gradients(state, batches, settings, world, count))
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
    return Figures(loss, norm, rate, state.progress.skipped)


def _gradients(
    state: State,
    batches: list[Batch],
    settings: Settings,
    world: World,
    count: Callable[[Batch], None],
) -> Tensor:
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
    return world.total(total) / settings.batch
