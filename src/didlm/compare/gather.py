"""All that is measured of each model, before anything is drawn."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from didlm.data import stories
from didlm.evaluate.judge import Judge, OwnJudge
from didlm.evaluate.likelihood import Likelihood, evaluate
from didlm.evaluate.order import Order, measure_order
from didlm.evaluate.quality import Quality, measure
from didlm.evaluate.samples import write_samples
from didlm.generate.results import Sample
from didlm.generate.samplers import one_by_one
from didlm.model.transformer import non_embedding_parameters
from didlm.pretrained import Model
from didlm.train.prepare import EMBEDDED_STORIES


@dataclass(frozen=True)
class Plan:
    """What is asked of every model."""

    documents: list[str]  # unseen ones
    training: list[str] | None  # those that the models learnt from
    num: int  # samples
    steps: Sequence[int]
    temperatures: Sequence[float]
    draws: int  # of the bounds
    seed: int
    batch_size: int
    grammatical: Callable[[str], bool] | None = None  # tells valid texts, where that is known
    entropy: float | None = None  # of a document in nats, where that is known

    @classmethod
    def embedded(cls, documents: int, **rest: Any) -> "Plan":
        """The embedded stories, of which the truth is known."""
        return cls(
            documents=stories.validation_stories(documents),
            training=stories.training_stories(EMBEDDED_STORIES),
            grammatical=lambda text: bool(np.isfinite(stories.log_probability(text))),
            entropy=stories.entropy(),
            **rest,
        )


@dataclass(frozen=True)
class Run:
    """Samples of a model with one choice of knobs."""

    steps: int
    temperature: float
    quality: Quality
    valid: float | None  # share that the grammar could have written
    order: Order
    example: str  # the first text

    @property
    def perplexity(self) -> float | None:
        """Generative: under the judge, if there is one."""
        return self.quality.verdict.perplexity if self.quality.verdict else None

    def summary(self) -> dict[str, object]:
        """What is written as JSON; the steps that were asked for, and those that were taken."""
        asked = {"temperature": self.temperature, "steps_asked": self.steps}
        return asked | self.quality.summary() | {"valid": self.valid, "order": self.order.summary()}


@dataclass(frozen=True, eq=False)
class Entry:
    """One model of a comparison."""

    name: str
    method: str
    parameters: int  # without embeddings and token head
    variable_length: bool
    stepwise: bool  # whether the number of steps can be chosen
    flops: float | None  # of its training, if its run says so
    likelihood: Likelihood | None  # None if the method has none
    by_steps: list[Run] = field(default_factory=list)
    by_temperature: list[Run] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl

    @property
    def best(self) -> Run:
        """The run with the most steps."""
        return self.by_steps[-1]

    def summary(self) -> dict[str, object]:
        """What is written as JSON."""
        return {
            "name": self.name,
            "method": self.method,
            "parameters": self.parameters,
            "lengths": "variable" if self.variable_length else "fixed",
            "training_flops": self.flops,
            "likelihood": self.likelihood.summary() if self.likelihood else None,
            "samples": [run.summary() for run in self.by_steps],
            "temperatures": [run.summary() for run in self.by_temperature],
        }


def gather(
    name: str,
    folder: Path,
    model: Model,
    plan: Plan,
    judge: Judge | None,
    say: Callable[[str], None],
) -> Entry:
    """Measure one model.

    Args:
        name: what it is called in the report.
        folder: where it lies, with the metrics of its training if they are still there.
        model: the model; what it suggests counts for nothing.
        plan: what to measure.
        judge: of the samples, if there is one.
        say: told what is going on.
    """
    model, curve = model.plain(), metrics(folder)
    flops = [line["flops"] for line in curve if line.get("flops")]
    entry = Entry(
        name=name,
        method=model.method.name,
        parameters=non_embedding_parameters(model.network),
        variable_length=model.method.variable_length,
        stepwise=next(iter(model.method.samplers.values())) is not one_by_one,
        flops=flops[-1] if flops else None,
        likelihood=None,
        curve=curve,
    )
    if isinstance(judge, OwnJudge) and not entry.variable_length:
        judge = None  # it has learnt whole documents, and no chunks that begin anywhere
    if model.method.bounded:
        say(f"{name}: likelihood of {len(plan.documents)} documents")
        likelihood = evaluate(model, plan.documents, plan.draws, plan.seed)
        entry = replace(entry, likelihood=likelihood)

    def run(steps: int, temperature: float) -> Run:
        in_steps = f" in {steps} steps" if entry.stepwise else ""
        say(f"{name}: {plan.num} samples{in_steps}, temperature {temperature:g}")
        samples = write_samples(
            model,
            plan.num,
            plan.seed,
            plan.batch_size,
            steps=steps,
            temperature=temperature,
        )
        return look_at(model, samples, plan, judge, steps, temperature)

    all_steps = sorted(set(plan.steps)) if entry.stepwise else [max(plan.steps)]
    entry.by_steps.extend(run(steps, 1.0) for steps in all_steps)
    for temperature in sorted(set(plan.temperatures)) if judge else []:
        again = entry.best if temperature == 1 else run(all_steps[-1], temperature)
        entry.by_temperature.append(again)
    return entry


def of_data(model: Model, plan: Plan, judge: Judge | None) -> Run:
    """The same figures of the documents, as if a model had written them."""
    samples = [
        Sample(text, ids.tolist(), [1] * len(ids), nfe=0, steps=0, seconds=0, seed=0, number=number)
        for number, (text, ids) in enumerate(
            zip(plan.documents, model.tokenizer.encode_batch(plan.documents), strict=True)
        )
    ]
    return look_at(model, samples, plan, judge)


def look_at(
    model: Model,
    samples: list[Sample],
    plan: Plan,
    judge: Judge | None,
    steps: int = 0,
    temperature: float = 1.0,
) -> Run:
    """Measure samples; those of chunks have no lengths of their own, and no grammar."""
    whole = model.method.variable_length
    data, training = (plan.documents if whole else None), plan.training
    quality = measure(model, samples, data, training, judge)
    valid = None
    if plan.grammatical and whole:
        valid = float(np.mean([plan.grammatical(sample.text) for sample in samples]))
    order = measure_order(samples, model.tokenizer)
    return Run(steps, temperature, quality, valid, order, samples[0].text)


def perplexity_at_entropy(entry: Entry, bits: float) -> float | None:
    """The generative perplexity of a model, tempered until its unigram entropy is as given.

    Between measured temperatures, log-perplexity is taken to be linear in the entropy; outside of
    them nothing is claimed.
    """
    runs = entry.by_temperature
    points = [(run.quality.entropy_bits, run.perplexity) for run in runs if run.perplexity]
    return interpolated(points, bits)


def interpolated(points: Sequence[tuple[float, float]], bits: float) -> float | None:
    """The perplexity at an entropy, from pairs of entropy and perplexity; see above."""
    points = sorted(points)
    if not points or not points[0][0] <= bits <= points[-1][0]:
        return None
    entropies, perplexities = np.array(points).T
    return float(np.exp(np.interp(bits, entropies, np.log(perplexities))))


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The course of a run, as far as it can be read; nothing if it is not there."""
    try:
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    found = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the last one of a run that was killed, say
        wanted = {"train": "loss", "valid": "nats_per_document"}
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            value = entry.get(wanted.get(str(entry.get("kind")), ""))
            if isinstance(value, int | float):
                found.append(entry)
    return found
