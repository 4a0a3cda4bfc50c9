"""Samples of trained models and their figures: tables about the same samples share them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from didlm._inputs import IntArray
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.quality import Verdict, data_lengths, measure
from didlm.generate.results import Sample
from didlm.generate.template import Blank, Parts, start
from didlm.pretrained import Model
from didlm.reproduce.experiment import Value
from didlm.reproduce.scale import Scale
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.prepare import prepare

SAMPLER = "tau-leaping"  # the paper's
LARGEST = 300.0  # perplexity of a sample that still counts
KEPT = 20  # texts, to be shown
ENOUGH = 100_000  # texts, to know how long they are
CHOICE = 16  # chunks among which each prompt is chosen: not every one is usable


@dataclass(frozen=True)
class Request:
    """Which samples.

    Args:
        run: whose.
        steps: of the sampler.
        num: how many, in the paper.
        batch: that are written together, in the paper.
        grid: of times.
        top_p: of tokens.
        prompt: tokens that are given, in the paper.
    """

    run: str
    steps: int
    num: int
    batch: int
    grid: str = "uniform"
    top_p: float = 1.0
    prompt: int = 0

    def count(self, scale: Scale) -> int:
        """How many they are at a scale."""
        return (scale.prompts if self.prompt else scale.samples) or self.num

    def key(self, scale: Scale) -> str:
        """Under which their figures are kept: other samples have another."""
        what = f"{self.run}-{self.steps}-{self.grid}-{self.top_p:g}-{self.prompt}"
        return f"samples-{what}-{self.count(scale)}-{self.batch}"


def figures_of(shop: Workshop, request: Request) -> dict[str, Any]:
    """The figures of samples, written now or before."""
    return dict(shop.once(request.key(shop.scale), lambda: _measured(shop, request)))


def _measured(shop: Workshop, request: Request) -> dict[str, Any]:
    num = request.count(shop.scale)
    prompts = _prompts(shop, request, num) if request.prompt else []  # before there is training
    judge = shop.judge(request.run)
    model = shop.writer(request.run)
    shop.say(f"{request.run}: {num} samples in {request.steps} steps")
    controls = _controls(model, request)
    if model.device.type == "cuda" and not prompts:  # of texts after prompts no table has the time
        # Kernels are compiled and passes recorded before time counts.
        _written(model, [], request.batch, request.batch, 1, controls)
    samples = _written(model, prompts, num, request.batch, 0, controls)
    quality = measure(model, samples, judge=judge)
    assert quality.verdict is not None
    return quality.summary() | {
        "perplexities": _each(quality.verdict),
        "texts": [sample.text for sample in samples[:KEPT]],
        "prompts": prompts[:KEPT],
    }


def _controls(model: Model, request: Request) -> dict[str, Any]:
    """The paper's way to sample; ILM writes one token a step, so it is done after as many."""
    controls: dict[str, Any] = {"top_p": request.top_p}
    if SAMPLER in model.method.samplers:
        return controls | {"steps": request.steps, "grid": request.grid, "sampler": SAMPLER}
    return controls | {"max_length": min(request.steps, model.longest)}


def _written(
    model: Model,
    prompts: Sequence[str],
    num: int,
    batch: int,
    seed: int,
    controls: Mapping[str, Any],
) -> list[Sample]:
    if not prompts:
        return model.generate(num_samples=num, seed=seed, batch_size=batch, **controls)
    templates: list[Parts] = [[prompt, Blank()] for prompt in prompts]
    return model.infill_each(templates, seed=seed, batch_size=batch, **controls)


def _prompts(shop: Workshop, request: Request, num: int) -> list[str]:
    """The beginnings of chunks that were held out of training.

    Raises:
        ValueError: if there are not so many.
    """
    data = all_runs()[request.run]["data"]
    settings = shop.settings(request.run).changed({"valid_documents": CHOICE * num})
    with shop.sources.advising(data):
        prepared = prepare(settings)
    length = shop.scale.tokens(request.prompt)
    found = list(islice(exact_prompts(prepared.valid, length, prepared.tokenizer), num))
    if len(found) < num:
        raise ValueError(
            f"of the {len(prepared.valid)} chunks held out of {data}, only {len(found)} begin with "
            f"{length} tokens that the tokenizer gives back, and {num} are needed: "
            f"name more and longer texts with --data {data}=PATH"
        )
    return found


def exact_prompts(texts: Iterable[IntArray], length: int, tokenizer: Tokenizer) -> Iterator[str]:
    """The beginnings of texts that are exactly so many tokens when they are given to a model.

    Others are left out: those in which a document ends, as text has no separator; and those cut
    where the tokenizer would cut differently.
    """
    for tokens in texts:
        prompt = tokenizer.decode(tokens[:length])
        if np.array_equal(start([prompt, Blank()], tokenizer).tokens, tokens[:length]):
            yield prompt


def _each(verdict: Verdict) -> list[float]:
    """The perplexity of each text that the judge has something to say about."""
    some = verdict.tokens > 0
    exponents = np.minimum(verdict.nats[some] / verdict.tokens[some], 700.0)
    return np.exp(exponents).tolist()


def known_lengths(shop: Workshop, run: str) -> list[int]:
    """Those of the texts that a run has learnt from, as far as the model sees them."""

    def found() -> list[int]:
        texts = shop.sources.texts(all_runs()[run]["data"], shop.scale.texts or ENOUGH)
        return data_lengths(shop.model(run), texts).tolist()

    return list(shop.once(f"lengths-{run}", found))


def figure(figures: Mapping[str, Any], name: str) -> Value:
    """One figure of samples, by what the tables call it.

    Raises:
        ValueError: if there is none of that name.
    """
    each = np.array(figures["perplexities"])
    kept = each[each < LARGEST]
    all_texts = len(each) + figures.get("texts_not_judged", 0)
    if name == "PPL":
        return float(np.exp(np.log(each).mean())) if len(each) else None
    if name == "PPL*":
        return float(np.exp(np.log(kept).mean())) if len(kept) else None
    if name == "Excluded (%)":
        return 100 * (1 - len(kept) / all_texts) if all_texts else None
    plain = {
        "Entropy": "entropy_bits",
        "Time (s)": "seconds",
        "NFE (s)": "network_seconds",
        "Sampling (s)": "sampling_seconds",
        "Length": "length_mean",
    }
    if name not in plain:
        raise ValueError(f"samples have no figure '{name}'")
    return float(figures[plain[name]])
