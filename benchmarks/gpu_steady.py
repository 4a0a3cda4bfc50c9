"""Does training on a GPU stay as it is? Many steps with a loader: step time, waiting and memory.

    python benchmarks/gpu_steady.py                 # 2,000 steps of stories
    python benchmarks/gpu_steady.py --fixed --steps 400

The settings of benchmarks/gpu_train.py with worker processes that make the batches; one row for
each hundred steps.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from didlm.data.loader import Loader, budget_for
from didlm.model.config import preset
from didlm.model.transformer import Network
from didlm.train.meter import Meter
from didlm.train.settings import Settings
from didlm.train.state import State
from didlm.train.step import take_step
from didlm.train.world import World
from gpu import DEVICE
from gpu_train import Case, texts, the_method
from recording import record

EVERY = 100
WARM_UP = 100  # steps in which graphs are captured and workers start


@dataclass(frozen=True)
class Row:
    """A hundred steps."""

    what: str
    method: str
    optimiser: str
    gpu: str
    workers: int
    step: int
    step_ms: float
    waiting: float  # share of the time in which the GPU had nothing to do
    loss: float
    allocated_gib: float  # now
    reserved_gib: float
    graphs: int  # in use
    captures: int  # so far


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--optimiser", default="adamw")
    options = parser.parse_args()
    case = Case("variable", "did", vocabulary=30_522)
    if options.fixed:
        case = Case("fixed", "did-fixed")
    for row in steady(case, options.steps, options.workers, options.optimiser):
        record("gpu_steady", [row], shlex.join(["python", *sys.argv]), ["torch", "triton"])
        print(row, flush=True)


def steady(case: Case, steps: int, workers: int, optimiser: str) -> Iterator[Row]:
    """The rows of one run, as they come."""
    corpus, method = texts(case), the_method(case)
    settings = Settings(
        batch=case.batch,
        optimiser=optimiser,
        learning_rate=1e-4,
        schedule="constant",
        precision="bf16",
        steps=10**6,
        device="cuda",
    )
    world = World(0, 1, DEVICE)
    workers = world.workers(workers)
    config = replace(
        preset(case.preset, case.vocabulary, method.heads),
        mean_length=corpus.mean_length,
        length_dispersion=corpus.length_dispersion,
    )
    torch.manual_seed(0)
    state = State.start(Network(config).to(DEVICE), settings, world)
    budget = budget_for(corpus, case.batch)
    loader = Loader(corpus, method, budget, case.batch, 0, workers=workers)
    meter = Meter(loader, config, world)
    batches, unread, before = iter(loader), [], 0.0
    for step in range(1, WARM_UP + steps + 1):
        outcome = take_step(state, next(batches), settings, world, meter.count)
        meter.took(outcome)
        unread.append(outcome)
        while len(unread) > 2:
            unread.pop(0).read()
        if step % EVERY == 0:
            loss = [outcome.read().loss for outcome in unread][-1]
            waiting = meter.read()["waiting"]
            now = time.perf_counter()
            if step > WARM_UP:
                yield Row(
                    case.what,
                    case.method,
                    optimiser,
                    torch.cuda.get_device_name(),
                    workers,
                    step,
                    step_ms=1000 * (now - before) / EVERY,
                    waiting=waiting,
                    loss=loss,
                    allocated_gib=torch.cuda.memory_allocated() / 2**30,
                    reserved_gib=torch.cuda.memory_reserved() / 2**30,
                    graphs=len(state.captured._graphs) if state.captured else 0,
                    captures=state.captured.captures if state.captured else 0,
                )
            before = now


if __name__ == "__main__":
    main()
