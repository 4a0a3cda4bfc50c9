"""Training time of 50 steps, and what of it the exact targets would be."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from didlm._inputs import IntArray
from didlm.alignment import insertion_targets_batch
from didlm.data.loader import Loader, budget_for
from didlm.deletion import delete_exactly
from didlm.packed import pack
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.loop import AHEAD, make_network
from didlm.train.meter import Meter
from didlm.train.prepare import Prepared, prepare
from didlm.train.settings import Settings
from didlm.train.state import State
from didlm.train.step import Outcome as Step
from didlm.train.step import take_step
from didlm.train.world import World

STEPS = 50
WARM_UP = 20  # steps in which kernels are built
WARM_UP_SECONDS = 10.0  # more on a GPU, for workers to start and most shapes to be captured


def speed(shop: Workshop, experiment: Experiment) -> Outcome:
    """Seconds for each method and size."""

    def cell(row: Row, column: str | int) -> Value:
        size = str(column).lower()
        found = shop.once(f"speed-{row.run}-{size}", lambda: timed(shop, row.run, size))
        figure = row.figure if row.figure in found else "seconds"
        return None if found[figure] is None else float(found[figure])

    return Outcome(filled(experiment, cell))


def timed(shop: Workshop, run: str, size: str) -> dict[str, Any]:
    """Take 50 steps of a run at another size, without validations and checkpoints."""
    size = shop.scale.presets.get(size, size)
    settings = shop.settings(run).changed({"preset": size, "snapshots": 0})
    shop.say(f"{run} at size {size}: {STEPS} steps")
    with shop.sources.advising(all_runs()[run]["data"]):
        prepared = prepare(settings)
    world = World.join(settings.device, settings.distribution)
    try:
        seconds, waiting = _steps(settings, prepared, world)
    finally:
        world.leave()
    aligned = prepared.method.aligned
    targets = target_seconds(settings.batch, prepared) if aligned else None
    return {"seconds": seconds, "waiting": 100 * waiting, "targets": targets}


def _steps(settings: Settings, prepared: Prepared, world: World) -> tuple[float, float]:
    """The time of 50 steps, and the share of it in which batches were waited for."""
    torch.manual_seed(settings.seed)
    network = make_network(settings, prepared).to(world.device)
    state = State.start(network, settings, world)
    budget = budget_for(prepared.train, settings.batch // settings.accumulate)
    workers = world.workers(settings.workers)
    loader = Loader(prepared.train, prepared.method, budget, settings.batch, settings.seed, workers)
    meter = Meter(loader, network.config, world, 0.0)
    batches = iter(loader)

    def take(steps: int, at_least: float = 0.0) -> float:
        """So many steps, and more until so much time has passed; returns the time."""
        unread: deque[Step] = deque()
        began, taken = time.perf_counter(), 0
        while taken < steps or time.perf_counter() - began < at_least:
            unread.append(take_step(state, next(batches), settings, world, meter.count))
            meter.took(unread[-1])
            taken += 1
            if len(unread) > AHEAD:  # as in training; else a GPU would have work for minutes
                unread.popleft().read()
        unread[-1].read()
        return time.perf_counter() - began

    take(WARM_UP)
    if world.device.type == "cuda":
        take(1, WARM_UP_SECONDS)
    meter.restart()
    return take(STEPS), meter.read()["waiting"]


def target_seconds(batch: int, prepared: Prepared) -> float:
    """What the exact targets of 50 steps take on one core."""
    rng, corpus = np.random.default_rng(0), prepared.train
    times = []
    for _ in range(STEPS + 1):
        texts = [corpus[int(rng.integers(len(corpus)))] for _ in range(batch)]
        times.append(alignment_seconds(texts, prepared.method.bos, rng))
    return sum(times[1:])  # the first compiles


def alignment_seconds(texts: Sequence[IntArray], bos: int, rng: np.random.Generator) -> float:
    """What the exact targets of texts take, with as many tokens deleted as in training."""
    x0 = pack(texts, bos)
    keep = np.ones(x0.rows, dtype=np.bool_)
    keep[~x0.is_bos.numpy()] = np.concatenate(
        [delete_exactly(len(text), int(rng.integers(1, len(text) + 1)), rng) for text in texts]
    )
    started = time.perf_counter()
    insertion_targets_batch(x0, keep)
    return time.perf_counter() - started
