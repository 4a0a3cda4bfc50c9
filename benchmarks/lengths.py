"""Lengths that a trained model writes, against those of the embedded stories.

Whole stories at several numbers of steps, and middles between two given ends. Train the model with
    didlm train --recipe demo --steps 4000 --set given_share=0.333 --out runs/given
and, for the comparison of conditional bounds, another with given_share=0. The model `mid` of the
recorded lengths is larger and was trained for longer: see docs/log.md, 'right lengths'.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from didlm.data import stories
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound
from didlm.evaluate.quality import ks_distance
from didlm.generate.results import Sample
from didlm.generate.samplers import CAUTION
from didlm.generate.template import Blank, Parts
from didlm.given import GivenText
from didlm.pretrained import Model, load
from recording import RESULTS, record

ENDS = 28  # words given at either end of a story, of which the shortest has more than twice as many


@dataclass(frozen=True)
class Row:
    """One measurement."""

    what: str
    model: str
    device: str
    steps: int
    caution: float
    samples: int
    mean: float
    mean_of_data: float
    deviation: float  # of the mean from that of the data
    ks: float  # Kolmogorov-Smirnov distance
    calls: float
    nats_per_token: float  # of middles given both ends: a bound


def main() -> None:
    """Measure, record, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--unconditional", type=Path, help="a model trained with given_share=0")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--steps", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32")
    options = parser.parse_args()
    model = load(options.model, options.device, options.dtype)
    data = stories.validation_stories(options.samples, seed=1)
    truth = np.array([len(ids) for ids in model.tokenizer.encode_batch(data)])
    rows, curves = [], {"data": truth}
    all_steps, boldly = options.steps, [(steps, 1.0) for steps in options.steps[:1]]
    for steps, caution in [(steps, CAUTION) for steps in all_steps] + boldly:
        samples = model.generate(
            num_samples=options.samples, steps=steps, seed=0, batch_size=1000, caution=caution
        )
        lengths = np.array([len(sample) for sample in samples])
        curves[f"{steps} steps" + f", caution {caution:g}" * (caution != CAUTION)] = lengths
        rows.append(row("stories", model, options.model, steps, caution, lengths, truth, samples))
    rows += middles(model, options.model, data, all_steps)
    for folder in filter(None, (options.model, options.unconditional)):
        rows.append(conditional_bound(folder, data[:400], options.device))
    named = f" --unconditional {options.unconditional}" if options.unconditional else ""
    command = f"python benchmarks/lengths.py {options.model}{named} --samples {options.samples}"
    command += f" --steps {' '.join(map(str, all_steps))}"
    command += f" --device {options.device} --dtype {options.dtype}"
    record("lengths", rows, command, ["torch"])
    if all_steps:
        draw(curves)


def middles(model: Model, folder: Path, data: list[str], all_steps: list[int]) -> list[Row]:
    """Fill what stands between two ends of stories; compare lengths with those of the truth."""
    templates: list[Parts] = []
    true_middles = []
    for text in data:
        first, last = cut(text)
        templates.append([text[:first], Blank(), text[last:]])
        true_middles.append(text[first:last])
    truth = np.array([len(ids) for ids in model.tokenizer.encode_batch(true_middles)])
    rows = []
    for steps in all_steps:
        samples = model.infill_each(templates, steps=steps, seed=0, batch_size=1000)
        lengths = np.array([sum(born > 0 for born in sample.born) for sample in samples])
        rows.append(row("middles", model, folder, steps, CAUTION, lengths, truth, samples))
    return rows


def cut(text: str) -> tuple[int, int]:
    """Where the middle of a text begins and ends: so many words from either end, before spaces.

    The ends must not tell how long the middle is. Two thirds of a text would: a model that fills
    them rightly has middles of many lengths, of which only one is a third of the whole.
    """
    spaces = [place for place, character in enumerate(text) if character == " "]
    return spaces[ENDS - 1], spaces[-ENDS]


def conditional_bound(folder: Path, data: list[str], device: str) -> Row:
    """The bound of middles given both ends."""
    model = load(folder, device)
    texts, givens = [], []
    for text in data:
        first, last = cut(text)
        parts = model.tokenizer.encode_batch([text[:first], text[first:last], text[last:]])
        spans = np.repeat([1, 0, 2], [len(part) for part in parts])
        texts.append(np.concatenate(parts))
        givens.append(GivenText(spans, starts_closed=True, ends_closed=True))
    corpus = Corpus.of(texts)
    with torch.no_grad():
        bound = likelihood_bound(
            model.network, model.method, corpus, budget_for(corpus, 32), draws=8, givens=givens
        )
    nan = float("nan")
    result = Row(
        "bound of middles", folder.name, hardware(model), 0, nan, len(data), nan, nan, nan, nan,
        nan, bound.nats_per_token,
    )  # fmt: skip
    print(result, flush=True)
    return result


def row(
    what: str,
    model: Model,
    folder: Path,
    steps: int,
    caution: float,
    found: np.ndarray,
    truth: np.ndarray,
    samples: list[Sample],
) -> Row:
    """Compare two sets of lengths."""
    result = Row(
        what=what,
        model=folder.name,
        device=hardware(model),
        steps=steps,
        caution=caution,
        samples=len(found),
        mean=float(found.mean()),
        mean_of_data=float(truth.mean()),
        deviation=float(found.mean() / truth.mean() - 1),
        ks=ks_distance(found, truth),
        calls=float(np.mean([sample.nfe for sample in samples])),
        nats_per_token=float("nan"),
    )
    print(result, flush=True)
    return result


def hardware(model: Model) -> str:
    """The name of the GPU, if there is one at work."""
    return torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu"


def draw(curves: dict[str, np.ndarray]) -> None:
    """Distribution functions of the lengths."""
    figure, panel = plt.subplots(figsize=(6, 4), constrained_layout=True)
    for name, lengths in curves.items():
        ordered, width = np.sort(lengths), 3 if name == "data" else 1
        panel.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), label=name, lw=width)
    panel.set(xlabel="tokens", ylabel="share of texts at most so long", title="Lengths of stories")
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "lengths.png", dpi=120)
    print(f"drawn in {RESULTS / 'lengths.png'}")


if __name__ == "__main__":
    main()
