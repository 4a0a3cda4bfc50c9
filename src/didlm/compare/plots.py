"""The plots of a comparison, each as the bytes of a PNG. A model has one colour in all of them."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from didlm.compare.gather import Entry, Run

Value = Callable[[Run], float | None]
FLOPS = "floating-point operations of the training"
STEPS = "steps asked for"
AGAINST: dict[str, Callable[[Run], float]] = {
    STEPS: lambda run: run.steps,
    "network calls per sample": lambda run: run.quality.nfe,
    "seconds per sample": lambda run: run.quality.seconds,
}


class Plots:
    """Draws the models of a comparison."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.colour = {entry.name: f"C{number}" for number, entry in enumerate(entries)}

    def lengths(self) -> bytes:
        """Distribution functions of the lengths at the most steps."""
        figure, axes = _axes("tokens", "share of texts at most so long")
        data = self.entries[0].best.quality.data_lengths
        if data is not None:
            _steps(axes, data, color="black", lw=3, alpha=0.5, label="data")
        for entry in self.entries:
            lengths, colour = entry.best.quality.lengths, self.colour[entry.name]
            _steps(axes, lengths, color=colour, lw=1.2, label=entry.name)
        return _png(figure, axes)

    def quality(self, value: Value, name: str, against: str) -> bytes:
        """A figure of the samples against the steps, the calls or the seconds."""
        figure, axes = _axes(against, name)
        by_steps = against == STEPS
        for entry in self.entries:
            runs = [run for run in entry.by_steps if value(run) is not None]
            places = [AGAINST[against](run) for run in runs]
            values, colour = [value(run) for run in runs], self.colour[entry.name]
            if by_steps and not entry.stepwise:
                axes.axhline(values[0], color=colour, lw=1, ls=":", label=f"{entry.name}, no steps")
            else:
                axes.plot(places, values, marker="o", color=colour, label=entry.name)
        if name.endswith("perplexity"):
            axes.set(yscale="log")
        if not by_steps:
            axes.set_xlim(left=0)
        else:
            axes.set(xscale="log")
            every = sorted({run.steps for entry in self.entries for run in entry.by_steps})
            axes.set_xticks(every, map(str, every))
            axes.set_xticks([], minor=True)
        return _png(figure, axes)

    def by_flops(self, value: Value, name: str) -> bytes:
        """A figure of the samples against what the training took."""
        figure, axes = _axes(FLOPS, name)
        for entry in self.entries:
            if entry.flops:
                colour = self.colour[entry.name]
                axes.plot(entry.flops, value(entry.best), "o", color=colour, label=entry.name)
        axes.set_xlim(0, 1.15 * max(entry.flops or 0 for entry in self.entries))
        if name.endswith("perplexity"):
            axes.set(yscale="log")
        return _png(figure, axes)

    def temperatures(self, data_entropy: float | None) -> bytes:
        """Perplexity against entropy, as the temperature moves both."""
        figure, axes = _axes("unigram entropy in bits", "generative perplexity")
        for entry in self.entries:
            runs = [run for run in entry.by_temperature if run.perplexity]
            points = [(run.quality.entropy_bits, run.perplexity) for run in runs]
            if points:
                colour = self.colour[entry.name]
                axes.plot(*zip(*points, strict=True), "o-", color=colour, label=entry.name)
            for run, point in zip(runs, points, strict=True):
                text, place = f"{run.temperature:g}", {"textcoords": "offset points"}
                axes.annotate(text, point, fontsize=7, xytext=(3, 3), **place)
        if data_entropy is not None:
            axes.axvline(data_entropy, color="black", ls="--", lw=0.8, label="the data's entropy")
        axes.set(yscale="log")
        return _png(figure, axes)

    def bounds(self, against: str, entropy: float | None) -> bytes:
        """Likelihood of the validation documents in the course of training."""
        label = {"flops": FLOPS, "seconds": "seconds of training"}[against]
        figure, axes = _axes(label, "nats per text")
        for entry in self.entries:
            lines = validations(entry)
            exact = "exact" if entry.likelihood and entry.likelihood.exact else "bound"
            axes.plot(
                [line.get(against) or np.nan for line in lines],
                [line["nats_per_document"] for line in lines],
                marker=".",
                color=self.colour[entry.name],
                label=f"{entry.name} ({exact})",
            )
        if entropy is not None:
            axes.axhline(entropy, color="black", ls="--", lw=0.8, label="entropy of the stories")
        axes.set_xlim(left=0)
        axes.set(yscale="log")
        return _png(figure, axes)

    def losses(self) -> bytes:
        """Training losses, each with its method's own weights."""
        figure, axes = _axes("step", "training loss, nats per text")
        for entry in self.entries:
            lines = [line for line in entry.curve if line["kind"] == "train"]
            steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
            axes.plot(steps, losses, lw=0.8, color=self.colour[entry.name], label=entry.name)
        axes.set(yscale="log")
        return _png(figure, axes)

    def of(self, which: Callable[[Entry], bool]) -> "Plots":
        """The same of some of the models, in their colours."""
        some = Plots([entry for entry in self.entries if which(entry)])
        some.colour = self.colour
        return some


def draw_all(
    entries: Sequence[Entry], data_entropy: float, document_entropy: float | None
) -> dict[str, bytes]:
    """All plots that the measurements allow, by their titles.

    Whole documents and chunks of one length are never in one plot.

    Args:
        entries: the models.
        data_entropy: unigram entropy of the documents, in bits.
        document_entropy: exact, in nats per document, where it is known.
    """
    plots = Plots(entries)
    whole = plots.of(lambda entry: entry.variable_length)
    chunks = plots.of(lambda entry: not entry.variable_length)
    pictures = _draw(whole, "", data_entropy, document_entropy)
    return pictures | _draw(chunks, ", chunks of one length", None, None)


def _draw(
    plots: Plots, kind: str, data_entropy: float | None, document_entropy: float | None
) -> dict[str, bytes]:
    pictures = {}
    if plots.entries and not kind:
        pictures["Lengths"] = plots.lengths()
    judged = plots.of(lambda entry: entry.best.perplexity is not None)
    valid = plots.of(lambda entry: entry.best.valid is not None)
    for shown, value, name in (
        (judged, lambda run: run.perplexity, "generative perplexity"),
        (valid, lambda run: run.valid, "share of valid texts"),
    ):
        for against in AGAINST if shown.entries else ():
            title = f"{name[0].upper()}{name[1:]} against {against}{kind}"
            pictures[title] = shown.quality(value, name, against)
        if any(entry.flops for entry in shown.entries):
            title = f"{name[0].upper()}{name[1:]} against training FLOPs{kind}"
            pictures[title] = shown.by_flops(value, name)
    if judged.entries:
        pictures[f"Perplexity at equal entropy{kind}"] = judged.temperatures(data_entropy)
    for against, name in (("flops", "training FLOPs"), ("seconds", "seconds of training")):
        known = plots.of(partial(_tells, figure=against))
        if known.entries:
            pictures[f"Likelihood against {name}{kind}"] = known.bounds(against, document_entropy)
    learnt = plots.of(lambda entry: bool(entry.curve))
    if learnt.entries:
        pictures[f"Training loss{kind}"] = learnt.losses()
    return pictures


def _tells(entry: Entry, figure: str) -> bool:
    """Whether its run says how much of something each of its validations took."""
    return entry.likelihood is not None and any(line.get(figure) for line in validations(entry))


def validations(entry: Entry) -> list[dict[str, Any]]:
    """What its run found out about unseen documents on the way."""
    return [line for line in entry.curve if line["kind"] == "valid"]


def _steps(axes: Any, values: np.ndarray, **look: Any) -> None:
    share = np.arange(1, len(values) + 1) / len(values)
    axes.step(np.sort(values), share, where="post", **look)


def _axes(x: str, y: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _png(figure: Any, axes: Any) -> bytes:
    import matplotlib.pyplot as plt

    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()
