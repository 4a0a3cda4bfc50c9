"""Samplers with exact scores: how far from the data they end, at equal calls.

Without a network there is nothing to blame but the sampler. Three questions, three panels: how does
the error fall with the number of calls, how right are lengths, and what does a corrector cost?
"""

import argparse
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch

from didlm.generate.corrector import corrected
from didlm.generate.draft import begin
from didlm.generate.driver import Writer, write
from didlm.generate.samplers import Sampler, adaptive, jump_chain, tau_leaping
from didlm.generate.scorer import Scorer
from didlm.generate.stages import Plan
from didlm.generate.template import NO_LIMIT, Start
from didlm.laboratory import ExactDiffusion, State
from didlm.laboratory.scorer import ExactScorer, OneSymbolScorer
from didlm.schedule import cosine_grid, uniform_grid
from recording import RESULTS, record

GRIDS = {"uniform": uniform_grid, "cosine": cosine_grid}
MEAN, SPREAD, LONGEST = 205, 80, 700  # of the lengths of the one-symbol texts


@dataclass(frozen=True)
class Row:
    """One measurement."""

    question: str
    sampler: str
    grid: str
    steps: int
    calls: float  # of the model, mean over the texts
    rows: float  # that the model has read, mean over the texts
    error: float  # total variation, or Kolmogorov-Smirnov distance of lengths
    mean_length: float
    samples: int


def main() -> None:
    """Measure, record, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        *convergence(options.samples, options.seed),
        *lengths(min(options.samples, 4000), options.seed),
        *correction(options.samples, options.seed),
    ]
    command = f"python benchmarks/samplers.py --samples {options.samples} --seed {options.seed}"
    record("samplers", rows, command, ["torch"])
    draw(rows)


def convergence(samples: int, seed: int) -> list[Row]:
    """Texts of 4 to 8 symbols out of 3: total variation against calls."""
    world = small_world(seed)
    rows = []
    for steps in (4, 8, 16, 32, 64, 128):
        for sampler, grid in (
            (adaptive, "uniform"),
            (tau_leaping, "uniform"),
            (tau_leaping, "cosine"),
        ):
            plan = Plan(sampler, GRIDS[grid](steps).tolist())
            writer = run(ExactScorer(world), plan, samples, seed)
            error = total_variation(writer, world.data)
            rows.append(row("convergence", sampler, grid, steps, writer, error))
    return rows


def lengths(samples: int, seed: int) -> list[Row]:
    """One symbol, mean length 205: Kolmogorov-Smirnov distance of lengths against calls."""
    probability = length_distribution()
    rows = []
    for steps in (8, 16, 32, 64, 128):
        for sampler, grid in (
            (adaptive, "uniform"),
            (tau_leaping, "uniform"),
            (tau_leaping, "cosine"),
        ):
            plan = Plan(sampler, GRIDS[grid](steps).tolist(), longest=LONGEST - 1)
            writer = run(OneSymbolScorer(probability), plan, samples, seed)
            found = torch.tensor([len(text.tokens) for text in writer.finished])
            share = torch.bincount(found, minlength=LONGEST).cumsum(0) / samples
            error = float((share - probability.cumsum(0)).abs().max())
            rows.append(row("lengths", sampler, grid, steps, writer, error))
    return rows


def correction(samples: int, seed: int) -> list[Row]:
    """Take half of the tokens of finished texts back: error against the sub-steps of the return."""
    rows = []
    for steps in (1, 2, 4, 8, 16, 32):
        for sampler in (adaptive, tau_leaping):
            # So fine a grid that nearly all error is the corrector's.
            grid = corrected(uniform_grid(256), 0.5, 1, steps)
            world = small_world(seed)
            writer = run(ExactScorer(world), Plan(sampler, grid.tolist()), samples // 4, seed)
            error = total_variation(writer, world.data)
            rows.append(row("correction", sampler, "uniform", steps, writer, error))
    world = small_world(seed, (6,))
    grid = corrected(uniform_grid(1), 0.5, 1, 1)
    plan = Plan(jump_chain, grid.tolist(), length=6, shortest=6)
    writer = run(Untimed(world), plan, samples // 4, seed)
    error = total_variation(writer, world.data)
    return [*rows, row("correction", jump_chain, "uniform", 1, writer, error)]


class Untimed(ExactScorer):
    """Exact scores of texts of one length, which do not depend on time."""

    timed = False


def small_world(seed: int, lengths: tuple[int, ...] = (4, 5, 6, 7, 8)) -> ExactDiffusion:
    """Six random texts of three symbols with random probabilities."""
    rng = np.random.default_rng(seed)
    texts: set[State] = set()
    while len(texts) < 6:
        texts.add(tuple(rng.integers(0, 3, rng.choice(lengths)).tolist()))
    probability = rng.dirichlet(np.full(len(texts), 2.0)).tolist()
    return ExactDiffusion(dict(zip(sorted(texts), probability, strict=True)), vocabulary=3)


def length_distribution() -> torch.Tensor:
    """A gamma distribution, cut off far out."""
    shape = (MEAN / SPREAD) ** 2
    length = torch.arange(LONGEST, dtype=torch.float64)
    return ((shape - 1) * length.clamp(min=0.5).log() - length * shape / MEAN).softmax(0)


def run(scorer: Scorer, plan: Plan, samples: int, seed: int) -> Writer:
    """Write texts from nothing."""
    none = np.empty(0, dtype=np.int64)
    start = Start(
        tokens=none,
        given=none,
        blank=np.zeros(1, dtype=np.int64),
        least=np.zeros(1, dtype=np.int64),
        most=np.full(1, NO_LIMIT),
        spaced=np.zeros(1, dtype=np.bool_),
        pieces=(None,),
        exact=True,
    )
    writer = Writer(scorer, begin([start] * samples, bos=0), plan, seed)
    for _ in write(writer):
        pass
    return writer


def total_variation(writer: Writer, data: dict[State, float]) -> float:
    """Between what was written and the data."""
    found: dict[State, int] = {}
    for text in writer.finished:
        state = tuple(text.tokens.tolist())
        found[state] = found.get(state, 0) + 1
    total = len(writer.finished)
    everything = {*found, *data}
    return sum(abs(found.get(x, 0) / total - data.get(x, 0.0)) for x in everything) / 2


def row(
    question: str, sampler: Sampler, grid: str, steps: int, writer: Writer, error: float
) -> Row:
    """What was measured of finished texts."""
    result = Row(
        question=question,
        sampler=sampler.__name__,
        grid=grid,
        steps=steps,
        calls=float(np.mean([text.calls for text in writer.finished])),
        rows=writer.rows_read / len(writer.finished),
        error=error,
        mean_length=float(np.mean([len(text.tokens) for text in writer.finished])),
        samples=len(writer.finished),
    )
    print(result, flush=True)
    return result


def draw(rows: list[Row]) -> None:
    """One panel for each question."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    titles = {
        "convergence": ("Error of short texts", "calls", "total variation"),
        "lengths": (f"Lengths, mean {MEAN}", "calls", "Kolmogorov-Smirnov distance"),
        "correction": ("Correcting half of the tokens", "sub-steps", "total variation"),
    }
    for panel, (question, (title, across, up)) in zip(panels, titles.items(), strict=True):
        mine = [row for row in rows if row.question == question]
        for name in dict.fromkeys((row.sampler, row.grid) for row in mine):
            points = [row for row in mine if (row.sampler, row.grid) == name]
            label = name[0].replace("_", "-") + (", cosine" if name[1] == "cosine" else "")
            if question == "correction" and name[0] == "jump_chain":
                panel.axhline(points[0].error, color="gray", ls=":", label="exact re-insertion")
                continue
            steps = [row.steps if across == "sub-steps" else row.calls for row in points]
            panel.plot(steps, [row.error for row in points], "o-", label=label)
        panel.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "samplers.png", dpi=120)
    print(f"drawn in {RESULTS / 'samplers.png'}")


if __name__ == "__main__":
    main()
