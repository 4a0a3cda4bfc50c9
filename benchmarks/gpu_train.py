"""Training speed on one GPU: whole optimiser steps, where their time goes, and the chip's limits.

    python benchmarks/gpu_train.py                  # the two settings of the paper, all methods
    python benchmarks/gpu_train.py --growth         # over batch, context and vocabulary too

Random Zipf tokens, the `small` model, batch 64 x 1024, bf16, AdamW with clipping and a moving
average of the weights: one step of `didlm train`. Batches come ready made, so that the GPU is what
is measured; how long making them takes on one core is a column of its own.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from didlm.data.batch import Batch
from didlm.data.corpus import Corpus
from didlm.data.loader import Loader, budget_for
from didlm.data.tokenizer import Tokenizer
from didlm.methods.did import DID, FixedDID
from didlm.methods.method import Method
from didlm.methods.radd import RADD
from didlm.methods.registry import find_method
from didlm.model.config import preset
from didlm.model.flops import training_flops
from didlm.model.transformer import Network
from didlm.train.settings import Settings
from didlm.train.state import State, autocast
from didlm.train.step import take_step
from didlm.train.world import World
from recording import record

DEVICE = torch.device("cuda")
MEAN = 213  # tokens of a story


@dataclass(frozen=True)
class Case:
    """What is trained on."""

    what: str  # fixed or variable length
    method: str
    preset: str = "small"
    batch: int = 64
    context: int = 1024
    vocabulary: int = 50_257


@dataclass(frozen=True)
class Row:
    """One measurement; times are medians in milliseconds."""

    what: str
    method: str
    preset: str
    batch: int
    context: int
    vocabulary: int
    gpu: str
    compiled: bool
    rows: int  # of the packed batch
    target_rows: int
    step_ms: float
    gradients_ms: float  # forward and backward
    body_ms: float  # of these, the network without its token head
    optimiser_ms: float  # clipping, AdamW, the moving average
    making_ms: float  # a batch, on one core
    peak_gib: float
    tflops: float  # that a step takes, attention included
    utilisation: float  # of the matrix products' ceiling in the same run
    ceiling_tflops: float  # of bf16 products of 8,192 x 8,192
    copy_tb: float  # per second, read and written


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--sizes", nargs="*", default=["small"])
    parser.add_argument("--compile", action="store_true", help="compile the network first")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    ceiling, copy = ceilings()
    print(f"bf16 products {ceiling:.0f} TFLOP/s, copies {copy:.2f} TB/s")
    cases = [
        Case("fixed", method, size)
        for size in options.sizes
        for method in ("did-fixed", "radd", "ar")
    ]
    if "small" in options.sizes:
        cases += [Case("variable", m, vocabulary=30_522) for m in ("did", "radd", "ar", "ilm")]
    if options.growth:
        cases += [Case("fixed", "did-fixed", batch=batch) for batch in (16, 32, 128)]
        cases += [
            Case("fixed", "did-fixed", batch=65_536 // context, context=context)
            for context in (512, 2048, 4096, 8192)
        ]
        cases += [Case("fixed", "did-fixed", vocabulary=v) for v in (4_096, 16_384, 131_072)]
    found = []
    for case in cases:
        row = measure(case, ceiling, copy, options.compile)
        found.append(row)
        print(
            f"{row.what} {row.method} {row.preset} {row.batch} x {row.context}, "
            f"{row.vocabulary}: step {row.step_ms:.1f} ms (gradients {row.gradients_ms:.1f}, body "
            f"{row.body_ms:.1f}, optimiser {row.optimiser_ms:.1f}), {row.peak_gib:.1f} GiB, "
            f"{100 * row.utilisation:.0f} % of the ceiling; a batch takes {row.making_ms:.0f} ms",
            flush=True,
        )
    command = shlex.join(["python", *sys.argv])
    record("gpu_train", found, command, ["torch", "triton"])


def measure(case: Case, ceiling: float, copy: float, compiled: bool) -> Row:
    """One case."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    corpus, method = texts(case), the_method(case)
    settings = Settings(
        batch=case.batch,
        optimiser="adamw",
        learning_rate=1e-4,
        schedule="constant",
        precision="bf16",
        steps=10**6,
        compile=compiled,
        device="cuda",
    )
    config = preset(case.preset, case.vocabulary, method.heads)
    config = replace(
        config, mean_length=corpus.mean_length, length_dispersion=corpus.length_dispersion
    )
    world = World(0, 1, DEVICE)
    torch.manual_seed(0)
    state = State.start(Network(config).to(DEVICE), settings, world)
    loader = iter(Loader(corpus, method, budget_for(corpus, case.batch), case.batch, 0))
    next(loader)  # compiles the alignment
    started = time.perf_counter()
    steps = [next(loader) for _ in range(4)]
    making = 1000 * (time.perf_counter() - started) / len(steps)
    steps = [[batch.to(DEVICE) for batch in batches] for batches in steps]
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        take_step(state, steps[turn % 4], settings, world)

    def gradients() -> None:
        for batch in steps[0]:
            with autocast(settings, DEVICE):
                cost = state.costing(batch, 1.0)
            cost.backward()

    def body() -> None:
        for batch in steps[0]:
            with autocast(settings, DEVICE):
                hidden = state.network(batch.x_t, batch.deleted, batch.longest)
            hidden.backward(torch.ones_like(hidden))

    def optimise() -> None:
        torch.nn.utils.clip_grad_norm_(state.network.parameters(), 1.0)
        for optimiser in state.optimisers:
            optimiser.step()
        state.average.update(state.network)

    step_ms = timed(step, 12)
    peak = torch.cuda.max_memory_allocated() / 2**30
    gradients_ms, body_ms = timed(gradients, 8), timed(body, 8)
    optimiser_ms = timed(optimise, 8)
    flops = float(np.mean([sum(training_flops(config, b) for b in some) for some in steps]))
    return Row(
        case.what,
        case.method,
        case.preset,
        case.batch,
        case.context,
        case.vocabulary,
        torch.cuda.get_device_name(),
        compiled,
        rows=int(np.mean([_sum(some, lambda b: b.x_t.rows) for some in steps])),
        target_rows=int(np.mean([_sum(some, lambda b: len(b.target_rows)) for some in steps])),
        step_ms=step_ms,
        gradients_ms=gradients_ms,
        body_ms=body_ms,
        optimiser_ms=optimiser_ms,
        making_ms=making,
        peak_gib=peak,
        tflops=flops / 1e12,
        utilisation=flops / 1e12 / (step_ms / 1000) / ceiling,
        ceiling_tflops=ceiling,
        copy_tb=copy,
    )


def _sum(batches: list[Batch], size: Callable[[Batch], int]) -> int:
    return sum(size(batch) for batch in batches)


def texts(case: Case) -> Corpus:
    """Random tokens of Zipf's distribution, in texts of one length or of many."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, case.vocabulary))
    lengths = np.full(4 * case.batch, case.context)
    if case.what == "variable":
        lengths = np.clip(rng.gamma(5, MEAN / 5, 4 * case.batch), 10, case.context).astype(int)
    documents = Corpus.of(
        [1 + np.searchsorted(share, share[-1] * rng.random(length)) for length in lengths]
    )
    padded = case.what == "variable" and case.method == "radd"
    return documents.padded(case.context) if padded else documents


def the_method(case: Case) -> Method:
    """With BOS as token 0; RADD writes padding where lengths vary."""
    if case.method == "did-fixed":
        return FixedDID(0, case.context, separator=0)
    if case.method == "did":
        return DID(0)
    if case.method == "radd":
        return RADD(0, case.vocabulary, 0, case.context, padded=case.what == "variable")
    return find_method(case.method).build(Tokenizer.train_bpe(["a", "b"], 257))


def ceilings() -> tuple[float, float]:
    """TFLOP/s of bf16 products, and TB/s of copies, on this GPU in this run."""
    left, right = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in "ab")
    product = timed(lambda: left @ right, 20)
    source = torch.randn(2**28, device=DEVICE)
    target = torch.empty_like(source)
    copied = timed(lambda: target.copy_(source), 20)
    return 2 * 8192**3 / product / 1e9, 2 * source.nbytes / copied / 1e9


def timed(function: Callable[[], object], repeats: int) -> float:
    """The median time in milliseconds, after a warm-up."""
    for _ in range(4):
        function()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        torch.cuda.synchronize()
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


if __name__ == "__main__":
    main()
