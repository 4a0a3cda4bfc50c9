"""The tables of docs/performance.md, from recorded measurements alone.

The newest row of every case counts; what was not measured is left out. The figures of the official
implementation, measured once on the same kind of GPU, are constants here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calibrate import case_of, errors
from didlm.plan.calibration import calibration
from didlm.plan.case import expected_load
from didlm.plan.counting import work_of
from marks import between
from recorded import Recorded, newest, number, read

OF_SAMPLES = (
    "what",
    "method",
    "sampler",
    "preset",
    "batch",
    "length",
    "vocabulary",
    "steps",
    "gpu",
)


@dataclass(frozen=True)
class Anchor:
    """What others need for it, on one H200 with torch 2.11, and what we aim at."""

    name: str
    what: str  # of a training step: fixed or variable
    radd: float  # milliseconds of the official implementation; seconds of sampling
    did: float
    gib: float | None  # that its DID needs
    goal: float
    goal_gib: float | None
    steps: int = 0  # of sampling
    method: str = "did-fixed"
    sampler: str = "counted"


TRAINING = [
    Anchor("step, fixed length, vocabulary 50,257", "fixed", 377, 260, 31, 50, 12),
    Anchor("step, variable length, vocabulary 30,522", "variable", 380, 135, 11, 12, None),
]
SAMPLING = [
    Anchor("32 x 1,024 tokens, 64 steps", "fixed", 9.4, 10.0, 62, 0.8, 4, 64),
    Anchor("32 x 1,024 tokens, 256 steps", "fixed", 29.1, 33.0, None, 2.5, None, 256),
    # Of stories the paper has the official figures, per sample; its sampler is tau-leaping.
    *(
        Anchor(
            f"32 stories, {steps} steps, {sampler}",
            "variable",
            radd,
            did,
            None,
            goal,
            None,
            steps,
            "did",
            sampler,
        )
        for sampler in ("tau-leaping", "adaptive")
        for steps, radd, did, goal in ((64, 7.9, 2.9, 0.3), (256, 26.5, 7.0, 1.0))
    ),
]
OVER_RADD = {"fixed": ("did-fixed", 1.8), "variable": ("did", 3.5)}
UTILISATION = 0.5  # of medium and large, of the products' ceiling


def sampled() -> list[Recorded]:
    """The newest measurements of sampling."""
    return newest(read("gpu_sample"), OF_SAMPLES)


def filled(page: str, steps: list[Recorded], samples: list[Recorded]) -> str:
    """The page with its tables as they follow from measurements.

    Raises:
        ValueError: if it has no place for one.
    """
    texts = {
        "goals": [goals(steps, samples)],
        "steps": [step_table(steps), "steps", "utilisation"],
        "split": [split_table(steps), "split"],
        "growth": [growth_table(steps), "growth"],
        "sampling": [sampling_table(samples), "sampling"],
        "plan": [plan_table(steps)],
        "measured": [when(steps, samples)],
    }
    drawn = {name for name, rows in drawable(steps, samples).items() if rows}
    for place, (table, *plots) in texts.items():
        images = [f"![{CAPTIONS[name]}](performance/{name}.png)" for name in plots if name in drawn]
        page = between(page, place, "\n\n".join([table, *images]))
    return page


CAPTIONS = {
    "steps": "step time by method, official, ours, floor and goal",
    "utilisation": "utilisation by size of the model",
    "split": "where the time of a step goes",
    "growth": "step time over batch, context and vocabulary",
    "sampling": "time of sampling, official and ours",
}


def drawable(steps: list[Recorded], samples: list[Recorded]) -> dict[str, list[Recorded]]:
    """The measurements that each plot shows; without any there is none."""
    usual = [row for row in steps if is_usual(row)]
    small = some(usual, preset="small")
    return {
        "steps": small,
        "split": [row for row in small if split(row)],
        "growth": steps if any(len(rows) > 1 for rows in growth(steps).values()) else [],
        "utilisation": usual if len({row["preset"] for row in usual}) > 1 else [],
        "sampling": [row for _, row in anchored(samples)],
    }


def anchored(samples: list[Recorded]) -> list[tuple[Anchor, Recorded]]:
    """The measurements of sampling that others have made too, in order."""
    found = []
    for anchor in SAMPLING:
        chosen = {"what": anchor.what, "method": anchor.method, "sampler": anchor.sampler}
        rows = some(samples, **chosen, batch="32", length="1024", steps=str(anchor.steps))
        found += [(anchor, row) for row in rows]
    return found


def goals(steps: list[Recorded], samples: list[Recorded]) -> str:
    """What we aimed at, and where we are."""
    cells = []
    for anchor in TRAINING:
        method = "did-fixed" if anchor.what == "fixed" else "did"
        for row in some([row for row in steps if is_usual(row)], method=method, preset="small"):
            cells += step_goals(anchor, row)
    cells += relative_goals([row for row in steps if is_usual(row)])
    cells += [sampling_goal(anchor, row) for anchor, row in anchored(samples)]
    head = ["", "official DID", "floor", "goal", "reached", "times faster", "goal met"]
    return markdown(head, cells)


def sampling_goal(anchor: Anchor, row: Recorded) -> list[str]:
    """The time of a batch of texts, and its memory where that is a goal."""
    time, gib = float(row["seconds"]), float(row["peak_gib"])
    aim, is_met = f"{anchor.goal:g} s", time <= anchor.goal
    if anchor.goal_gib is not None:
        aim, is_met = f"{aim}, {anchor.goal_gib:g} GiB", is_met and gib <= anchor.goal_gib
    official = f"{anchor.did:g} s" + (f", {anchor.gib:g} GiB" if anchor.gib else "")
    reached = [aim, f"{time:.2f} s, {gib:.1f} GiB", f"{anchor.did / time:.1f}", met(is_met)]
    return [f"sampling {anchor.name}", official, "", *reached]


def relative_goals(steps: list[Recorded]) -> list[list[str]]:
    """Faster than our own RADD, and near to the ceiling."""
    cells = []
    for what, (method, goal) in OVER_RADD.items():
        ours, radds = (
            some(steps, what=what, method=name, preset="small") for name in (method, "radd")
        )
        for row, radd in zip(ours, radds, strict=False):
            times = float(radd["step_ms"]) / float(row["step_ms"])
            name = f"DID faster than our RADD, {what} length"
            cells.append([name, "", "", f"{goal:g} x", f"{times:.1f} x", "", met(times >= goal)])
    for size in ("medium", "large"):
        for row in some(steps, what="fixed", method="did-fixed", preset=size):
            share = float(row["utilisation"])
            reached = [f"{100 * UTILISATION:.0f} %", f"{100 * share:.0f} %", ""]
            name = f"share of the products' ceiling, {size}, fixed length"
            cells.append([name, "", "", *reached, met(share >= UTILISATION)])
    return cells


def step_goals(anchor: Anchor, row: Recorded) -> list[list[str]]:
    """Those of a training step: its time and memory, and that it need not wait."""
    time, gib = float(row["step_ms"]), float(row["peak_gib"])
    aim, is_met = f"{anchor.goal:g} ms", time <= anchor.goal
    if anchor.goal_gib is not None:
        aim, is_met = f"{aim}, {anchor.goal_gib:g} GiB", is_met and gib <= anchor.goal_gib
    official, ours = f"{anchor.did:g} ms, {anchor.gib:g} GiB", f"{time:.1f} ms, {gib:.1f} GiB"
    reached = [f"{floor(row):.1f} ms", aim, ours, f"{anchor.did / time:.1f}", met(is_met)]
    cells = [[f"training {anchor.name}", official, *reached]]
    if (waiting := number(row, "waiting")) is not None:
        name, share = f"GPU waits for batches, {anchor.what} length", f"{100 * waiting:.1f} %"
        official = "72-83 ms for exact targets" if anchor.what == "fixed" else ""
        cells.append([name, official, "", "1 %", share, "", met(waiting < 0.01)])
    return cells


def met(is_met: bool) -> str:
    """In words."""
    return "yes" if is_met else "**no**"


def step_table(steps: list[Recorded]) -> str:
    """Every method in the two settings of the paper, and other sizes."""
    chosen = [row for row in steps if is_usual(row)]
    head = ["", "rows", "with targets", "step", "floor", "of the ceiling", "memory",
            "million tokens of text a second"]  # fmt: skip
    cells = []
    for row in chosen:
        tokens = case_of(row).tokens / float(row["step_ms"]) / 1e3
        cells.append(
            [named(row), f"{int(row['rows']):,}", f"{int(row['target_rows']):,}",
             f"{float(row['step_ms']):.1f} ms", f"{floor(row):.1f} ms",
             f"{100 * float(row['utilisation']):.0f} %", f"{float(row['peak_gib']):.1f} GiB",
             f"{tokens:.2f}"]
        )  # fmt: skip
    return markdown(head, cells)


def split_table(steps: list[Recorded]) -> str:
    """Where the time of a step goes."""
    cells = []
    for row in [row for row in steps if is_usual(row)]:
        parts = split(row)
        if parts:
            cells.append([named(row), *(f"{ms:.1f}" for ms in parts.values()), row_step(row)])
    head = ["milliseconds", *PARTS, "step"]
    return markdown(head, cells)


PARTS = (
    "products of the body, at the ceiling",
    "rest of the body",
    "attention",
    "token head",
    "optimiser",
    "everything else",
)


def split(row: Recorded) -> dict[str, float] | None:
    """Milliseconds of the parts of a step; None if they were not measured.

    Parts were timed apart: what they have less or more than the whole is 'everything else', or a
    little too much. Of the body's products only the work is known, and the ceiling.
    """
    columns = ("body_ms", "attention_ms", "head_ms", "optimiser_ms")
    values = [number(row, column) for column in columns]
    body, attention, head, optimiser = (value or 0.0 for value in values)
    if None in values:
        return None
    flops = work_of(case_of(row))["products"]["product_flops"]
    # By the rows that there were, not those that were expected.
    flops *= float(row["rows"]) / expected_load(case_of(row)).rows
    products = flops / float(row["ceiling_tflops"]) / 1e9
    rest = float(row["step_ms"]) - body - head - optimiser
    found = products, body - attention - products, attention, head, optimiser, max(0.0, rest)
    return dict(zip(PARTS, found, strict=True))


GROWTH = {
    "batch": "batch",
    "context": "context, at 65,536 tokens a step",
    "vocabulary": "vocabulary",
}


def growth(steps: list[Recorded], method: str = "did-fixed") -> dict[str, list[Recorded]]:
    """For each of three sizes, the steps in which it alone differs from the paper's setting."""
    ours = some(steps, what="fixed", method=method, preset="small")
    kinds: dict[str, Callable[[Recorded], bool]] = {
        "batch": lambda r: r["context"] == "1024" and r["vocabulary"] == "50257",
        "context": lambda r: tokens_of(r) == 65_536 and r["vocabulary"] == "50257",
        "vocabulary": lambda r: r["context"] == "1024" and r["batch"] == "64",
    }
    return {
        kind: sorted(filter(keep, ours), key=lambda row, k=kind: int(row[k]))  # type: ignore[misc]
        for kind, keep in kinds.items()
    }


def growth_table(steps: list[Recorded]) -> str:
    """The same as a table."""
    others = {
        method: {
            (kind, row[kind]): row_step(row)
            for kind, rows in growth(steps, method).items()
            for row in rows
        }
        for method in ("radd", "ar")
    }
    cells = [
        [f"{GROWTH[kind]} {int(row[kind]):,}", row_step(row), f"{floor(row):.1f} ms",
         f"{100 * float(row['utilisation']):.0f} %", f"{float(row['peak_gib']):.1f} GiB",
         f"{float(row['making_ms']):.0f} ms",
         *(found.get((kind, row[kind]), "") for found in others.values())]
        for kind, rows in growth(steps).items() if len(rows) > 1 for row in rows
    ]  # fmt: skip
    return markdown(["did-fixed, small", "step", "floor", "of the ceiling", "memory",
                     "making a batch, one core", "RADD's step", "AR's step"], cells)  # fmt: skip


def sampling_table(samples: list[Recorded]) -> str:
    """Everything that was measured of sampling."""
    cells = []
    for row in samples:
        name = f"{row['method']}, {row['sampler']}, {row['what']} length"
        parts = [f"{number(row, column) or 0:.3f}" for column in ("network", "head", "sampling")]
        cells.append(
            [name, f"{row['batch']} x {int(row['length']):,}", row["steps"],
             f"{float(row['seconds']):.3f} s", *parts, f"{float(row['passes']):.0f}",
             f"{float(row['peak_gib']):.1f} GiB"]
        )  # fmt: skip
    head = [
        "",
        "texts",
        "steps",
        "time",
        "network",
        "head",
        "the rest",
        "passes of a text",
        "memory",
    ]
    return markdown(head, cells)


def plan_table(steps: list[Recorded]) -> str:
    """What `didlm plan` says of the same steps; of those of the growth only the worst."""
    cells, all_errors = [], []
    for row in steps:
        time, memory = errors(calibration(row["gpu"].split()[-1]), row)
        all_errors.append((abs(time), abs(memory)))
        if is_usual(row):
            gib = float(row["peak_gib"])
            cells.append(
                [named(row), row_step(row), f"{100 * time:+.0f} %", f"{gib:.1f} GiB",
                 f"{100 * memory:+.0f} %"]
            )  # fmt: skip
    worst = [f"{100 * max(of_all):.0f} %" for of_all in zip(*all_errors, strict=True)]
    if worst:
        cells.append([f"the worst of all {len(steps)} cases", "", worst[0], "", worst[1]])
    return markdown(["", "step", "planned", "memory", "planned"], cells)


def when(steps: list[Recorded], samples: list[Recorded]) -> str:
    """What was measured when, on what."""
    rows = [*steps, *samples]
    if not rows:
        return ""
    gpus, torches = sorted({r["gpu"] for r in rows}), sorted({r["torch"] for r in rows})
    dates, commits = sorted({r["date"][:10] for r in rows}), sorted({r["commit"] for r in rows})
    limits = [float(row["ceiling_tflops"]) for row in rows], [float(row["copy_tb"]) for row in rows]
    tflops, copies = (f"{min(x):.4g} to {max(x):.4g}" for x in limits)
    return (
        f"One {' or '.join(gpus)}, torch {', '.join(torches)}, {' and '.join(dates)}, commits "
        f"{', '.join(commits)}. In the same runs products of 8,192 x 8,192 matrices in bf16 reach "
        f"{tflops} TFLOP/s, and copies {copies} TB/s, read and written."
    )


def is_usual(row: Recorded) -> bool:
    """Whether it is one of the two settings of the paper, of any method and size."""
    usual = row["vocabulary"] == ("50257" if row["what"] == "fixed" else "30522")
    return usual and row["batch"] == "64" and row["context"] == "1024"


def named(row: Recorded) -> str:
    """What was trained."""
    return f"{row['method']}, {row['preset']}, {row['what']} length"


def floor(row: Recorded) -> float:
    """Milliseconds of its arithmetic alone, at the ceiling of the same run."""
    return 1e3 * float(row["tflops"]) / float(row["ceiling_tflops"])


def row_step(row: Recorded) -> str:
    """Its time in words."""
    return f"{float(row['step_ms']):.1f} ms"


def tokens_of(row: Recorded) -> int:
    """Of a step."""
    return int(row["batch"]) * int(row["context"])


def some(rows: Sequence[Recorded], **wanted: str) -> list[Recorded]:
    """Those with these values."""
    return [row for row in rows if all(row.get(k) == value for k, value in wanted.items())]


def markdown(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table, or nothing if it has no rows."""
    if not cells:
        return ""
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
