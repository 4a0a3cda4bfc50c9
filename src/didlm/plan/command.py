"""`didlm plan`: methods side by side, in a table or as JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from didlm.plan.calibration import DEFAULT, Calibration, calibration
from didlm.plan.case import OF_CHUNKS, OF_DOCUMENTS, Case
from didlm.plan.memory import GIB
from didlm.plan.planning import DAY, Plan, assumed_link, plan_of

_PARTS = {
    "products": "matrix products",
    "attention": "attention",
    "passes": "norms, activations, ends",
    "head": "token head",
    "optimiser": "optimiser",
}
_HELD = {
    "weights": "weights, twins, average",
    "optimiser": "optimiser",
    "gradients": "gradients",
    "activations": "activations",
    "head": "token head",
    "working": "block at work",
}
Line = tuple[str, Callable[[Plan], str]]


def show_plan(
    method: str | None,
    steps: int | None,
    gpu: str | None,
    tflops: float | None,
    bandwidth: float | None,
    memory: float | None,
    link: float | None,
    as_json: bool,
    **case: Any,
) -> None:
    """Print a plan.

    Args:
        method: what is learnt; None for the methods that suit the texts, side by side.
        steps: of the run; None if not known.
        gpu: a measured one; None for the default.
        tflops: of another GPU.
        bandwidth: of another GPU, in TB/s.
        memory: of another GPU, in GiB.
        link: GB/s between GPUs.
        as_json: for machines.
        case: the rest of a `Case`.

    Raises:
        ValueError: for anything that makes no sense.
    """
    if steps is not None and steps < 1:
        raise ValueError(f"--steps must be at least 1: got {steps}")
    if gpu is not None and tflops is not None:
        raise ValueError("--gpu names a measured GPU, --tflops describes another: choose one")
    on = calibration(gpu or DEFAULT).scaled(tflops, bandwidth, memory)
    methods = OF_DOCUMENTS if case.get("mean_length") is not None else OF_CHUNKS
    chosen = (method,) if method else methods
    plans = [plan_of(Case(method=name, **case), on, link) for name in chosen]
    if as_json:
        print(json.dumps(as_data(plans, on, steps, link), indent=2))
    else:
        print(in_words(plans, on, steps, link))


def as_data(
    plans: list[Plan], gpu: Calibration, steps: int | None, link: float | None
) -> dict[str, Any]:
    """Plans as plain values: seconds, bytes, operations."""
    return {
        "gpu": gpu.gpu,
        "measured": not gpu.described,
        "fitted": gpu.fitted,
        "link_gb_per_second": link or assumed_link(plans[0].case.gpus),
        "link_assumed": link is None,
        "plans": [
            {
                "case": asdict(plan.case),
                "captured": plan.case.captured,
                "parameters": plan.weights.all,
                "parameters_outside_tables": plan.weights.all - plan.weights.tables,
                "rows_per_batch": plan.load.rows,
                "target_rows_per_batch": plan.load.target_rows,
                "flops_per_step": plan.flops,
                "memory_bytes": asdict(plan.memory) | {"total": plan.memory.total},
                "fits": None if gpu.memory_gib is None else _fits(plan, gpu),
                "seconds": {**plan.parts, "sending": plan.sending, "host": plan.host},
                "seconds_per_step": plan.step,
                "tokens_per_step": plan.case.tokens,
                "tokens_per_day": plan.tokens_per_day,
                "seconds_in_all": None if steps is None else steps * plan.step,
            }
            for plan in plans
        ],
    }


def in_words(plans: list[Plan], gpu: Calibration, steps: int | None, link: float | None) -> str:
    """Plans as a table, with what they rest on."""
    case = plans[0].case
    share = case.at_once().batch
    title = f"{case.preset} on {case.gpus} x {gpu.gpu}: {case.batch} texts a step"
    title += f" ({share} at once)" if share != case.batch else ""
    title += f" of {case.context:,} tokens" if case.mean_length is None else (
        f" of {case.mean_length:g} tokens in the mean, at most {case.context:,}"
    )  # fmt: skip
    title += f", vocabulary {case.vocabulary:,}"
    lines = [
        *_size_lines(),
        *_memory_lines(),
        *_time_lines(plans, steps),
    ]
    return "\n".join([title, "", *_table(plans, lines), "", *_notes(plans, gpu, link)])


def _size_lines() -> list[Line]:
    return [
        ("parameters, millions", lambda p: f"{p.weights.all / 1e6:,.1f}"),
        ("  outside the tables", lambda p: f"{(p.weights.all - p.weights.tables) / 1e6:,.1f}"),
        ("rows read at once", lambda p: f"{p.load.rows:,.0f}"),
        ("  of these with targets", lambda p: f"{p.load.target_rows:,.0f}"),
        ("TFLOP of a step, all GPUs", lambda p: f"{p.flops / 1e12:,.1f}"),
    ]


def _memory_lines() -> list[Line]:
    def held(name: str) -> Callable[[Plan], str]:
        return lambda plan: f"{getattr(plan.memory, name) / GIB:,.2f}"

    lines = [(f"  {words}", held(name)) for name, words in _HELD.items()]
    return [("memory of a GPU, GiB", lambda p: f"{p.memory.total / GIB:,.1f}"), *lines]


def _time_lines(plans: list[Plan], steps: int | None) -> list[Line]:
    def part(name: str) -> Callable[[Plan], str]:
        return lambda plan: f"{1e3 * plan.parts[name]:,.1f}"

    lines: list[Line] = [("time of a step, ms", lambda p: f"{1e3 * p.step:,.1f}")]
    lines += [(f"  {words}", part(name)) for name, words in _PARTS.items()]
    if plans[0].case.gpus > 1:
        lines += [("  sending gradients", lambda p: f"{1e3 * p.sending:,.1f}")]
    if plans[0].host is not None:
        lines += [("  (host, meanwhile)", lambda p: f"{1e3 * (p.host or 0):,.1f}")]
    lines += [("tokens a day, billions", lambda p: f"{p.tokens_per_day / 1e9:,.2f}")]
    if steps is not None:
        lines += [(f"{steps:,} steps", lambda p: duration(steps * p.step))]
    return lines


def _table(plans: list[Plan], lines: list[Line]) -> list[str]:
    cells = [["", *(plan.case.method for plan in plans)]]
    cells += [[name, *(value(plan) for plan in plans)] for name, value in lines]
    first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    return [
        f"{name:{first}}  " + "  ".join(f"{v:>{w}}" for v, w in zip(values, widths, strict=True))
        for name, *values in cells
    ]


def _notes(plans: list[Plan], gpu: Calibration, link: float | None) -> list[str]:
    case, fitted = plans[0].case, gpu.fitted
    basis = f"fitted to {fitted['rows']} steps of one GPU ({fitted['last'][:10]})"
    notes = [
        f"Time: work counted, at rates {basis}; off by at most {fitted['worst_time']} % there."
    ]
    if gpu.described:
        notes = [f"Time: work counted, at the H200's rates ({basis}), scaled by the data sheets."]
    if fitted.get("provisional"):
        notes.append("PROVISIONAL: these steps were not recorded; run benchmarks/calibrate.py.")
    too_large = [plan for plan in plans if gpu.memory_gib is not None and not _fits(plan, gpu)]
    for plan in too_large:
        notes.append(
            f"{plan.case.method} DOES NOT FIT the {gpu.memory_gib:g} GiB of a GPU: take a smaller "
            "batch, --accumulate, or --checkpointing."
        )
    notes.append(
        f"Memory: counted, at its worst ({plans[0].memory.moment}); off by at most "
        f"{fitted['worst_memory']} % there, and torch keeps more in reserve."
    )
    if case.gpus > 1:
        speed = f"{link:g} GB/s" if link else f"{assumed_link(case.gpus):g} GB/s, an ASSUMPTION"
        notes.append(
            f"Several GPUs were never measured: DDP, gradients sent at {speed} (--link), last."
        )
    if not case.captured:
        why = "Steps with several GPUs, --accumulate or --checkpointing are not captured as graphs"
        if gpu.host is None:
            notes.append(f"{why}: the host may be slower than the GPU; that was not measured.")
        else:
            slow = [plan.case.method for plan in plans if plan.waits_for_host]
            effect = f"the GPU waits for it with {', '.join(slow)}" if slow else "it keeps up"
            notes.append(f"{why}: the host starts each kernel; {effect}.")
    if case.optimiser == "muon":
        notes.append("Muon was never measured: its time is an estimate.")
    if case.mean_length is not None:
        notes.append(
            "Lengths of documents: gamma distributed as those of stories. radd pads to the context."
        )
    return [*notes, "In bf16, without dropout, with nothing given (given_share=0)."]


def _fits(plan: Plan, gpu: Calibration) -> bool:
    """With as much to spare as the count may be off."""
    spare = 1 + gpu.fitted["worst_memory"] / 100
    return spare * plan.memory.total / GIB < (gpu.memory_gib or 0.0)


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    for unit, name in ((DAY, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:,.1f} seconds"
