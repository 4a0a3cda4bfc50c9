"""Training speed on one GPU: whole optimiser steps, where their time goes, and the chip's limits.

    python benchmarks/gpu_train.py                  # the two settings of the paper, all methods
    python benchmarks/gpu_train.py --sizes medium large
    python benchmarks/gpu_train.py --growth         # over batch, context and vocabulary

Random Zipf tokens, the `small` model, batch 64 x 1024, bf16, AdamW with clipping and a moving
average of the weights: one step of `didlm train`, batches copied from the host. They come ready
made, so that the GPU is what is measured; how long making them takes on one core is a column of its
own, and benchmarks/gpu_steady.py tells whether the GPU waits for them. The parts of a step are
captured and timed apart, and need not add up.
"""

import argparse
import gc
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from didlm.data.batch import Batch
from didlm.data.corpus import Corpus
from didlm.data.loader import Loader, budget_for
from didlm.data.padding import Shapes, padded
from didlm.data.tokenizer import Tokenizer
from didlm.kernels.rotary_attention import rotary_angles, rotary_attention
from didlm.kernels.slots import Slots
from didlm.kernels.token_loss import token_loss
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
from gpu import DEVICE, MEAN, SHAPE, ceilings, replayed
from recording import record

STEPS = 8  # different batches
ROUNDS = 3  # in which they are learnt from
PARTS = ("body_ms", "attention_ms", "head_ms", "optimiser_ms")


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
    captured: bool  # steps were graphs
    rows: int  # of the packed batch, without padding
    target_rows: int
    step_ms: float
    body_ms: float | str  # forward and backward passes of the network without its token head
    attention_ms: float | str  # of these, attention
    head_ms: float | str  # the token head and its loss, forward and backward
    optimiser_ms: float | str  # clipping, AdamW, the moving average
    making_ms: float  # a batch, on one core
    peak_gib: float  # allocated
    reserved_gib: float  # from the device
    tflops: float  # that a step takes, attention included
    utilisation: float  # of the matrix products' ceiling in the same run
    ceiling_tflops: float  # of bf16 products of 8,192 x 8,192
    copy_tb: float  # per second, read and written


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--sizes", nargs="*", default=["small"])
    parser.add_argument("--methods", nargs="*", default=["did", "radd", "ar", "ilm"])
    parser.add_argument("--compile", action="store_true", help="compile the network first")
    parser.add_argument("--eager", action="store_true", help="without captured graphs")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    ceiling, copy = ceilings()
    print(f"bf16 products {ceiling:.0f} TFLOP/s, copies {copy:.2f} TB/s")
    command = shlex.join(["python", *sys.argv])
    for case in cases(options.growth, options.sizes, options.methods):
        row = measure(
            case,
            ceiling,
            copy,
            options.compile,
            not options.eager,
            split=not options.growth,
        )
        record("gpu_train", [row], command, ["torch", "triton"])
        print(
            f"{row.what} {row.method} {row.preset} {row.batch} x {row.context}, "
            f"{row.vocabulary}: step {row.step_ms:.1f} ms (body {row.body_ms:.4}, of which "
            f"attention {row.attention_ms:.3}; head {row.head_ms:.3}; optimiser "
            f"{row.optimiser_ms:.3}), {row.peak_gib:.1f} GiB, {100 * row.utilisation:.0f} % of "
            f"the ceiling; a batch takes {row.making_ms:.0f} ms",
            flush=True,
        )


def cases(growth: bool, sizes: list[str], methods: list[str]) -> list[Case]:
    """What to measure."""
    known = {"did": "did-fixed", "radd": "radd", "ar": "ar"}
    if growth:
        contexts = (512, 2048, 4096, 8192)
        fixed = [known[method] for method in methods if method in known]
        return [
            *(Case("fixed", m, batch=batch) for m in fixed for batch in (16, 32, 128)),
            *(Case("fixed", m, batch=65_536 // c, context=c) for m in fixed for c in contexts),
            *(Case("fixed", m, vocabulary=v) for m in fixed for v in (4_096, 16_384, 131_072)),
        ]
    chosen = [
        Case("fixed", known[method], size)
        for size in sizes
        for method in methods
        if method in known
    ]
    if "small" in sizes:
        chosen += [Case("variable", method, vocabulary=30_522) for method in methods]
    return chosen


def measure(
    case: Case,
    ceiling: float,
    copy: float,
    compiled: bool,
    captured: bool,
    split: bool,
) -> Row:
    """One case, and the parts of its step if wanted."""
    gc.collect()  # or the last one's memory would count, and what its products worked in
    torch._C._cuda_clearCublasWorkspaces()
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
        capture=captured,
        device="cuda",
    )
    config = preset(case.preset, case.vocabulary, method.heads)
    config = replace(
        config, mean_length=corpus.mean_length, length_dispersion=corpus.length_dispersion
    )
    world = World(0, 1, DEVICE)
    torch.manual_seed(0)
    with DEVICE:
        network = Network(config)
    state = State.start(network, settings, world)
    loader = iter(Loader(corpus, method, budget_for(corpus, case.batch), case.batch, 0))
    next(loader)  # compiles the alignment
    started = time.perf_counter()
    steps = [next(loader) for _ in range(STEPS)]
    making = 1000 * (time.perf_counter() - started) / len(steps)
    for step in [*steps, *steps, *steps]:  # builds kernels, captures graphs
        take_step(state, step, settings, world).read()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(ROUNDS * STEPS + 1)]
    marks[0].record()
    for number, mark in enumerate(marks[1:]):
        take_step(state, steps[number % STEPS], settings, world)
        mark.record()
    torch.cuda.synchronize()
    times = [one.elapsed_time(other) for one, other in pairwise(marks)]
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    step_ms = float(np.median(times))
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
        state.captured is not None,
        rows=int(np.mean([_sum(some, lambda b: b.x_t.rows) for some in steps])),
        target_rows=int(np.mean([_sum(some, lambda b: len(b.target_rows)) for some in steps])),
        step_ms=step_ms,
        **(parts(state, steps[0][0], settings, case.batch) if split else dict.fromkeys(PARTS, "")),
        making_ms=making,
        peak_gib=peak / 2**30,
        reserved_gib=reserved / 2**30,
        tflops=flops / 1e12,
        utilisation=flops / 1e12 / (step_ms / 1000) / ceiling,
        ceiling_tflops=ceiling,
        copy_tb=copy,
    )


def parts(state: State, batch: Batch, settings: Settings, sequences: int) -> dict[str, float]:
    """Milliseconds of the parts of a step, each captured and replayed on its own."""
    batch = padded(batch, Shapes(sequences).fitting(batch)).to(DEVICE)
    network, config = state.network, state.network.config
    if state.captured:  # parts need memory of their own
        state.captured.forget()
        torch.cuda.empty_cache()
    assert state.update is not None
    update = state.update

    def body() -> None:
        fresh = replace(batch.x_t)
        with autocast(settings, DEVICE):
            hidden = network(fresh, batch.deleted, batch.longest)
        hidden.backward(torch.ones_like(hidden))

    size = config.width // config.heads
    position = torch.arange(batch.x_t.rows, device=DEVICE)
    rotation = rotary_angles(position - batch.x_t.offsets[:-1][batch.x_t.sequence], size)
    shape = batch.x_t.rows, 3, config.heads, size
    slots = Slots(batch.x_t.offsets, batch.x_t.rows)
    qkv = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)

    def attention() -> None:
        mixed = rotary_attention(
            qkv + 0,
            rotation,
            batch.x_t.offsets,
            batch.longest,
            config.causal,
            overwrite=True,
            slots=slots,
        )
        mixed.backward(torch.ones_like(mixed))

    rows = len(batch.target_rows), config.width
    states = torch.randn(rows, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)

    def head() -> None:
        with autocast(settings, DEVICE):
            loss, _ = token_loss(
                states,
                network.token_head,
                batch.row,
                batch.token,
                batch.target,
                config.vocabulary,
                1 / 64,
                is_sorted=True,
                promised=True,
            )
        (loss / 64).backward()

    def around() -> None:  # what `attention` does besides
        (qkv + 0).backward(torch.ones_like(qkv))

    found = {
        "body_ms": replayed(body),
        "attention_ms": config.layers * (replayed(attention) - replayed(around)),
        "head_ms": replayed(head),
    }
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    found["optimiser_ms"] = replayed(lambda: update.apply(torch.ones((), device=DEVICE)))
    network.zero_grad(set_to_none=True)
    return found


def _sum(batches: list[Batch], size: Callable[[Batch], int]) -> int:
    return sum(size(batch) for batch in batches)


def texts(case: Case) -> Corpus:
    """Random tokens of Zipf's distribution, in texts of one length or of many."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, case.vocabulary))
    lengths = np.full(STEPS * case.batch, case.context)
    if case.what == "variable":
        lengths = np.clip(
            rng.gamma(SHAPE, MEAN / SHAPE, STEPS * case.batch), 10, case.context
        ).astype(int)
    documents = Corpus.of(
        [1 + np.searchsorted(share, share[-1] * rng.random(length)) for length in lengths]
    )
    is_padded = case.what == "variable" and case.method == "radd"
    return documents.padded(case.context) if is_padded else documents


def the_method(case: Case) -> Method:
    """With BOS as token 0; RADD writes padding where lengths vary."""
    if case.method == "did-fixed":
        return FixedDID(0, case.context, separator=0)
    if case.method == "did":
        return DID(0)
    if case.method == "radd":
        return RADD(0, case.vocabulary, 0, case.context, padded=case.what == "variable")
    return find_method(case.method).build(Tokenizer.train_bpe(["a", "b"], 257))


if __name__ == "__main__":
    main()
