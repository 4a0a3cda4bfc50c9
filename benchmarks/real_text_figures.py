"""What is measured of the trained models; each figure goes into its record at once.

Likelihoods are computed with float32 weights and bf16 products, as in the validations of training;
texts are written with bf16 weights, which is what sampling is fast with.
"""

import contextlib
import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from didlm.compare.gather import Plan, of_data
from didlm.evaluate.judge import OwnJudge
from didlm.evaluate.likelihood import evaluate
from didlm.evaluate.middles import (
    Middle,
    cut_middles,
    fill_middles,
    middle_nats,
    right_nats,
)
from didlm.evaluate.quality import Quality, measure
from didlm.evaluate.samples import write_samples
from didlm.pretrained import Model, load
from didlm.text.documents import read_documents
from real_text_data import excerpt, judged_texts, paragraphs, validation_sets
from real_text_records import Figures, Records, Task
from real_text_runs import (
    SETTINGS,
    TOP_P,
    ZERO_SHOT,
    Run,
    Setting,
)

# What a task's name begins with. Of samples the seconds count, of their variants they do not.
KINDS = ("likelihood", "reference", "middles", "samples", "variants")
REPLICATES = 8  # of a bound
EXAMPLE = 500  # characters that are kept of a sample
FEW = 64  # steps; in more, texts take longer, and most sizes of a batch come more than once


@dataclass(frozen=True)
class Knobs:
    """How a sample set is written."""

    steps: int
    top_p: float = 1.0
    temperature: float | None = 1.0  # None for one that leads towards the entropy of the data

    @property
    def kind(self) -> str:
        """What such a task is called."""
        return "samples" if (self.top_p, self.temperature) == (1, 1) else "variants"


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    size: int  # bytes of each set for likelihoods
    samples: int  # documents
    fewer_samples: int  # in many steps
    chunk_samples: int
    repeats: int  # at most, of samples whose seconds are compared
    steps: Sequence[int]
    temperatures: tuple[float, float]  # for less entropy, and for more
    middles: int
    middle_steps: int
    draws: int  # of the bound of a middle
    batch_size: int

    def knobs(self, run: Run) -> list[Knobs]:
        """What is asked of a run: all of it at each number of its steps."""
        asked = sorted(self.steps) if run.stepwise else [0]
        return [k for n in asked for k in (Knobs(n), Knobs(n, TOP_P), Knobs(n, temperature=None))]

    def times(self, run: Run, knobs: Knobs) -> int:
        """How often the same texts are written until nothing is built or recorded any more.

        A size of batch is recorded as a graph when it comes for the second time, so that the third
        is the first without. Those of RADD are all the same, and in many steps most come often.
        """
        many = knobs.steps > FEW and run.method == "radd"
        return 1 if many or knobs.kind == "variants" else self.repeats

    def count(self, run: Run, knobs: Knobs) -> int:
        """How many texts are written."""
        if SETTINGS[run.setting].chunks:
            return self.chunk_samples
        return self.fewer_samples if knobs.steps > FEW else self.samples


@dataclass(frozen=True)
class Measurer:
    """Models, texts and records of one home."""

    data: Path
    trained: Path
    records: Records
    device: str
    amounts: Amounts

    def tasks(self, runs: Sequence[Run]) -> list[Task]:
        """All that is not recorded yet of runs that are trained, the quick and the basic first."""
        there = [run for run in runs if self._is_there(run.name)]
        for run in runs:
            if run not in there:
                print(f"{run.name} is not trained: nothing is measured of it")
        judged = []
        for run in there:
            if not run.only_judges and self._is_there(SETTINGS[run.setting].judge):
                judged.append(run)
            elif not run.only_judges:
                print(f"{run.name} has no judge yet: nothing is measured of its texts")
        tasks = [
            Task(f"likelihood {run.name}", 20, partial(self.likelihood, run))
            for run in there
            if run.bounded and not self.records.read(f"likelihood-{run.name}")
        ]
        tasks += [
            Task(f"reference {name}", 15, partial(self.reference, SETTINGS[name]))
            for name in dict.fromkeys(run.setting for run in judged)
            if not self.records.read(f"reference-{name}")
        ]
        tasks += [
            Task(f"middles {run.name}", 25, partial(self.middles, run))
            for run in judged
            if not SETTINGS[run.setting].chunks and not self.records.read(f"middles-{run.name}")
        ]
        written = [(knobs, run) for run in judged for knobs in self._missing(run)]
        # Variants need what the others show, and what takes longest comes last.
        for knobs, run in sorted(written, key=lambda pair: (pair[0].kind, pair[0].steps)):
            what = f"{knobs.kind} {run.name}, {knobs}"
            # A step of the largest batch is thought to take no more than a twentieth of a second.
            tasks.append(Task(what, 15 + knobs.steps / 20, partial(self.samples, run, knobs)))
        return tasks

    def _is_there(self, name: str) -> bool:
        """Whether a run has come to its end, and its model is on this machine."""
        recorded = self.records.read(f"run-{name}") is not None
        return recorded and (self.trained / name / "config.json").exists()

    def _missing(self, run: Run) -> list[Knobs]:
        def asked(row: Figures) -> Knobs:
            temperature = row["temperature"] if row["temperature"] == 1 else None
            return Knobs(row["steps_asked"], row["top_p"], temperature)

        done = [asked(row) for row in self.records.rows(f"samples-{run.name}")]
        return [knobs for knobs in self.amounts.knobs(run) if knobs not in done]

    def _temperature(self, run: Run, knobs: Knobs) -> float:
        """The one that is asked for, or that leads towards the entropy of the data."""
        if knobs.temperature is not None:
            return knobs.temperature
        data = self.records.read(f"reference-{run.setting}")
        rows = self.records.rows(f"samples-{run.name}")
        plain = [r for r in rows if (r["steps_asked"], r["top_p"]) == (knobs.steps, 1)]
        if data is None or not plain:
            raise ValueError("without samples, and what is to be compared with, none are varied")
        cooler, warmer = self.amounts.temperatures
        return cooler if plain[0]["entropy_bits"] > data["texts"]["entropy_bits"] else warmer

    def likelihood(self, run: Run) -> None:
        """Bits per byte of unseen text of the setting, and of other sets."""
        setting = SETTINGS[run.setting]
        sets = validation_sets(setting, self.data)
        for name in ZERO_SHOT:
            texts = read_documents(self.data / "eval" / f"{name}.jsonl.xz")
            sets[name] = texts if setting.chunks else paragraphs(texts)
        if run.only_judges:  # it reads chunks that are documents to it
            sets = {"chunks": judged_texts(setting, self.data)}
        model = self._model(run.name)
        figures = {}
        for name, texts in sets.items():
            with self._rounded():
                found = evaluate(
                    model, excerpt(texts, self.amounts.size), draws=1, replicates=REPLICATES
                )
            figures[name] = in_bits(found.summary())
        self.records.write(f"likelihood-{run.name}", {"run": run.name, "sets": figures})

    def reference(self, setting: Setting) -> None:
        """What the judge says of unseen real texts, and of their right ends."""
        judge = self._judge(setting)
        texts = excerpt(judged_texts(setting, self.data), self.amounts.size)
        plan = Plan(texts, None, 0, (), (), 1, 0, self.amounts.batch_size)
        with self._rounded():
            figures: Figures = {"texts": of_data(judge.model, plan, judge).quality.summary()}
            if not setting.chunks:
                middles = self._middles(judge.model)
                without = [Middle(x.left, "", x.right) for x in middles]
                for name, some in (("real", middles), ("none", without)):
                    figures[f"{name}_middles"] = leads_to(judge.model, some)
        self.records.write(f"reference-{setting.name}", {"judge": setting.judge} | figures)

    def middles(self, run: Run) -> None:
        """What middles cost, and where those that are written lead to."""
        judge = self._judge(SETTINGS[run.setting])
        model = self._model(run.name)
        middles = self._middles(model)
        tokens = [len(ids) for ids in model.tokenizer.encode_batch([x.middle for x in middles])]
        size = sum(len(x.middle.encode()) for x in middles)
        figures: Figures = {"run": run.name, "middles": len(middles), "steps": None}
        if run.bounded:
            with self._rounded():
                nats = middle_nats(model, middles, self.amounts.draws)
            figures["bits_per_byte"] = float(nats.sum() / size / math.log(2))
            beyond = nats - nats.sum() / sum(tokens) * np.array(tokens)
            spread = float(beyond.std(ddof=1) * math.sqrt(len(nats)))
            figures["stderr_documents"] = spread / size / math.log(2)
        steps = self.amounts.middle_steps
        if run.stepwise:
            figures["steps"] = steps
        writer = self._writer(run.name)
        filled = fill_middles(writer, middles, 0, self.amounts.batch_size, steps=steps)
        lengths = [len(ids) for ids in model.tokenizer.encode_batch([x.middle for x in filled])]
        with self._rounded():
            figures |= leads_to(judge.model, filled)
        figures |= {"tokens": float(np.mean(lengths)), "real_tokens": float(np.mean(tokens))}
        example = filled[0]
        figures["example"] = [example.left, example.middle, example.right]
        self.records.write(f"middles-{run.name}", figures)

    def samples(self, run: Run, knobs: Knobs) -> None:
        """One set of samples, and all figures about it."""
        setting = SETTINGS[run.setting]
        judge = self._judge(setting)
        model = self._writer(run.name)
        count = self.amounts.count(run, knobs)
        temperature = self._temperature(run, knobs)
        controls = {"top_p": knobs.top_p, "temperature": temperature}
        if run.stepwise:
            controls["steps"] = knobs.steps
        repeats = self.amounts.times(run, knobs)
        for _ in range(repeats):  # the same texts every time
            samples = write_samples(model, count, 0, self.amounts.batch_size, **controls)
        data = None if setting.chunks else judged_texts(setting, self.data)
        with self._rounded():
            quality = measure(model, samples, data, judge=judge)
        asked = {
            "run": run.name,
            "steps_asked": knobs.steps,
            "top_p": knobs.top_p,
            "temperature": temperature,
            "batch_size": self.amounts.batch_size,
            "repeats": repeats,
            "own_judge": setting.judge == run.name,
        }
        figures = quality.summary() | {"log_perplexity_stderr": spread_of(quality)}
        if knobs.kind == "variants":  # which may be written side by side
            figures["seconds"] = None
        example = samples[0].text[:EXAMPLE]
        self.records.append(f"samples-{run.name}", asked | figures | {"example": example})

    def _middles(self, model: Model) -> list[Middle]:
        """Of the first kind of unseen documents, those that fit."""
        setting = SETTINGS["stories"]
        middles = cut_middles(validation_sets(setting, self.data)[setting.validation[0]])
        lengths = [len(ids) for ids in model.tokenizer.encode_batch([x.text for x in middles])]
        fitting = [x for x, n in zip(middles, lengths, strict=True) if n <= model.longest]
        return fitting[: self.amounts.middles]

    def _model(self, name: str) -> Model:
        return _loaded(self.trained / name, self.device)

    def _writer(self, name: str) -> Model:
        dtype = "bf16" if self.device.startswith("cuda") else "fp32"
        return _loaded_to_write(self.trained / name, self.device, dtype)

    def _judge(self, setting: Setting) -> OwnJudge:
        return OwnJudge(setting.judge, self._model(setting.judge))

    def _rounded(self) -> contextlib.AbstractContextManager[Any]:
        """Products in bf16 on a GPU."""
        if not self.device.startswith("cuda"):
            return contextlib.nullcontext()
        return torch.autocast("cuda", torch.bfloat16)


@cache
def _loaded(folder: Path, device: str) -> Model:
    return load(folder, device)


@lru_cache(maxsize=1)
def _loaded_to_write(folder: Path, device: str, dtype: str) -> Model:
    """One at a time: with a model goes what was recorded of its batches, which may be gigabytes."""
    gc.collect()
    return load(folder, device, dtype)


def in_bits(summary: dict[str, Any]) -> Figures:
    """A likelihood with its errors and its tighter bound in bits per byte."""
    scale = summary["tokens"] / max(1, summary["bytes"]) / math.log(2)
    named = {"stderr_bits": "stderr", "stderr_documents_bits": "stderr_documents"}
    named |= {"bits_per_byte_dse": "nats_per_token_dse"}
    known = {new: summary[old] for new, old in named.items() if summary.get(old) is not None}
    return summary | {new: scale * value for new, value in known.items()}


def spread_of(quality: Quality) -> float | None:
    """The standard error of the logarithm of the perplexity, from the choice of texts."""
    verdict = quality.verdict
    if verdict is None or (verdict.tokens > 0).sum() < 2:
        return None
    some = verdict.tokens > 0
    means = verdict.nats[some] / verdict.tokens[some]
    return float(means.std(ddof=1) / math.sqrt(len(means)))


def leads_to(judge: Model, middles: Sequence[Middle]) -> Figures:
    """Nats per token of the right ends, given all that stands before them."""
    nats, tokens = right_nats(judge, middles)
    mean = nats.sum() / tokens.sum()
    beyond = nats - mean * tokens
    error = beyond.std(ddof=1) * math.sqrt(len(nats)) / tokens.sum()
    return {"right_nats_per_token": float(mean), "right_stderr": float(error)}
