"""Sampling speed on one GPU: whole batches from nothing, where their time goes, and equal seeds.

    python benchmarks/gpu_sample.py                   # the settings of the paper, all methods
    python benchmarks/gpu_sample.py --growth          # over the batch
    python benchmarks/gpu_sample.py --model FOLDER... # how often a trained model repeats itself

The `small` network with random weights, loaded in bf16. Texts of fixed length have that length
whatever the network says; where lengths are free its rates start at what the lengths of the data
tell (mean 213, gamma distributed), so these come out right too: `mean_length` shows it. An
autoregressive network reads one token a call and its passes are not recorded: 128 tokens of it.

`seconds` is the median of the repeats, whose passes have all been recorded before; `cold_seconds`
is the first batch, in which kernels are compiled and some passes recorded. `network` is the time in
which the network read, `head` that of the vocabulary head and the draw of tokens, `sampling` all
the rest.
"""

import argparse
import gc
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from didlm.generate.draft import append, begin, insert, replace_marks
from didlm.generate.driver import Writer, write
from didlm.generate.marks import with_marks
from didlm.generate.samplers import SAMPLERS, one_by_one
from didlm.generate.scorer import scorer_of
from didlm.generate.stages import Plan
from didlm.generate.template import NO_LIMIT
from didlm.model.config import Heads, preset
from didlm.model.transformer import Network
from didlm.pretrained import Model, load
from didlm.schedule import uniform_grid
from gpu import DEVICE, MEAN, SHAPE, ceilings
from recording import record
from sampling import empty_start

DISPERSION = 1 / SHAPE - 1 / MEAN
BOS = 0


@dataclass(frozen=True)
class Case:
    """What is written."""

    what: str  # fixed or variable length
    method: str
    sampler: str
    steps: int
    batch: int = 32
    length: int = 1024  # of every text, or of the longest
    vocabulary: int = 50_257


@dataclass(frozen=True)
class Row:
    """One measurement; times are of a whole batch."""

    what: str
    method: str
    sampler: str
    preset: str
    batch: int
    length: int
    vocabulary: int
    steps: int
    gpu: str
    repeats: int
    seconds: float
    cold_seconds: float
    network: float
    head: float
    sampling: float
    passes: float  # of a text, in the mean
    calls: float  # of these, with a call of the network
    longest_passes: int  # of the text that took most
    mean_length: float
    peak_gib: float  # allocated
    reserved_gib: float  # from the device
    ceiling_tflops: float  # of bf16 products of 8,192 x 8,192
    copy_tb: float  # per second, read and written


@dataclass(frozen=True)
class Equal:
    """How many texts are the same when they are written in other batches."""

    model: str
    method: str
    width: int
    layers: int
    steps: int
    gpu: str
    texts: int
    batch: int  # against batches of all texts
    dtype: str
    recorded: bool
    equal: float  # share of the texts
    equal_tokens: float  # share of the tokens up to the first difference


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--only", nargs="*", help="methods")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", nargs="*", default=[], help="folders of trained models")
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    if options.model:
        repetitions = [row for folder in options.model for row in repeated(folder)]
        if not options.no_record:
            record("gpu_sample_equal", repetitions, shlex.join(["python", *sys.argv]), ["torch"])
        return
    ceiling, copy = ceilings()
    print(f"bf16 products {ceiling:.0f} TFLOP/s, copies {copy:.2f} TB/s", flush=True)
    for case in cases(options.growth):
        if options.only and case.method not in options.only:
            continue
        row = measure(case, options.repeats, ceiling, copy)
        if not options.no_record:
            record("gpu_sample", [row], shlex.join(["python", *sys.argv]), ["torch", "triton"])
        print(
            f"{row.what} {row.method} {row.sampler} {row.batch} x {row.length}, {row.steps} steps: "
            f"{row.seconds:.3f} s (network {row.network:.3f}, head {row.head:.3f}, sampling "
            f"{row.sampling:.3f}), cold {row.cold_seconds:.1f}, {row.peak_gib:.2f} GiB, "
            f"{row.calls:.0f} calls in {row.passes:.0f} passes (at most {row.longest_passes}), "
            f"length {row.mean_length:.0f}",
            flush=True,
        )


def cases(growth: bool) -> list[Case]:
    """The settings of the paper, or two of them with other batches."""
    stories = 30_522  # tokens of the vocabulary
    if growth:
        return [
            case
            for batch in (1, 8, 128)
            for case in (
                Case("fixed", "did-fixed", "counted", 64, batch),
                Case("variable", "did", "adaptive", 64, batch, vocabulary=stories),
            )
        ]
    return [
        *(Case("fixed", "did-fixed", "counted", steps) for steps in (64, 256)),
        *(
            Case("variable", "did", sampler, steps, vocabulary=stories)
            for sampler in ("adaptive", "tau-leaping")
            for steps in (64, 256)
        ),
        Case("fixed", "radd", "tau-leaping", 64),
        Case("fixed", "ar", "one-by-one", 1, length=128),
    ]


def measure(case: Case, repeats: int, ceiling: float, copy: float) -> Row:
    """One case."""
    gc.collect()  # or the last one's memory would count
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    config = replace(
        preset("small", case.vocabulary, the_heads(case)),
        mean_length=MEAN,
        length_dispersion=DISPERSION,
    )
    network = Network(config).to(DEVICE, torch.bfloat16).eval()
    cold, _ = run(network, case, seed=0)
    for _ in range(2):  # sizes that come once are recorded when they come again
        for seed in range(repeats):
            run(network, case, seed)
    runs = [run(network, case, seed) for seed in range(repeats)]
    peak = torch.cuda.max_memory_allocated() / 2**30
    seconds, writer = sorted(runs, key=lambda run: run[0])[repeats // 2]
    texts = writer.finished
    return Row(
        case.what,
        case.method,
        case.sampler,
        "small",
        case.batch,
        case.length,
        case.vocabulary,
        case.steps,
        torch.cuda.get_device_name(),
        repeats,
        seconds=seconds,
        cold_seconds=cold,
        network=writer.in_network.seconds,
        head=writer.in_head.seconds,
        sampling=seconds - writer.in_network.seconds - writer.in_head.seconds,
        passes=float(np.mean([text.passes for text in texts])),
        calls=float(np.mean([text.calls for text in texts])),
        longest_passes=max(text.passes for text in texts),
        mean_length=float(np.mean([len(text.tokens) for _, w in runs for text in w.finished])),
        peak_gib=peak,
        reserved_gib=torch.cuda.max_memory_reserved() / 2**30,
        ceiling_tflops=ceiling,
        copy_tb=copy,
    )


def run(network: Network, case: Case, seed: int) -> tuple[float, Writer]:
    """The seconds of a batch, and who wrote it."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    start, plan = empty_start(), the_plan(case)
    if case.method == "radd":
        start = with_marks(start, case.vocabulary, case.length)
    writer = Writer(
        scorer_of(network, case.length), begin([start] * case.batch, BOS, DEVICE), plan, seed
    )
    for _ in write(writer):
        pass
    torch.cuda.synchronize()
    return time.perf_counter() - started, writer


def the_plan(case: Case) -> Plan:
    """As `didlm.generate.controls` makes it."""
    forbidden = torch.zeros(case.vocabulary, dtype=torch.bool, device=DEVICE)
    forbidden[BOS] = True
    plan = Plan(
        sampler=SAMPLERS.get(case.sampler, one_by_one),
        grid=uniform_grid(case.steps).tolist(),
        longest=case.length,
        forbidden=forbidden,
    )
    if case.method == "did-fixed":
        return replace(plan, length=case.length, shortest=case.length)
    if case.method == "radd":
        return replace(plan, edit=replace_marks, longest=NO_LIMIT)
    if case.method == "ar":
        # It does not end before that.
        return replace(plan, edit=append, shortest=case.length, end=1)
    return replace(plan, edit=insert)


def the_heads(case: Case) -> Heads:
    """As the methods have them."""
    if case.method == "did-fixed":
        return Heads(timed=False, normalised=True)
    if case.method == "radd":
        return Heads(rates=False, timed=False, flags=False, marks=1)
    if case.method == "ar":
        return Heads(rates=False, timed=False, flags=False, causal=True)
    return Heads()


def repeated(folder: str, texts: int = 32, steps: int = 64) -> list[Equal]:
    """How often the texts of a seed are the same, whatever the batch."""
    found = []
    for dtype in ("bf16", "fp32"):
        model = load(folder, "cuda", dtype)
        together = written(model, texts, texts, steps)
        for batch in (texts, 8) if dtype == "fp32" else (texts, 8, 1):  # not recorded, so slower
            others = written(model, texts, batch, steps)
            same = np.mean([one == other for one, other in zip(together, others, strict=True)])
            common = [
                _common(*pair) / max(1, len(pair[0])) for pair in zip(together, others, strict=True)
            ]
            row = Equal(
                Path(folder).name,
                model.method.name,
                model.network.config.width,
                model.network.config.layers,
                steps,
                torch.cuda.get_device_name(),
                texts,
                batch,
                dtype,
                dtype != "fp32" and not model.network.config.causal,
                float(same),
                float(np.mean(common)),
            )
            found.append(row)
            print(
                f"{row.model} {dtype}: {100 * row.equal:.0f} % of the texts of a batch of {texts} "
                f"are the same in batches of {batch}, {100 * row.equal_tokens:.0f} % of their "
                "tokens up to the first difference",
                flush=True,
            )
    return found


def written(model: Model, texts: int, batch: int, steps: int) -> list[list[int]]:
    """The tokens of the texts of a seed."""
    samples = model.generate(num_samples=texts, batch_size=batch, steps=steps, seed=0)
    return [sample.tokens for sample in samples]


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens are the same at the beginning."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


if __name__ == "__main__":
    main()
