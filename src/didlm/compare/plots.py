"""The plots of a comparison, each as the bytes of a PNG. A model has one colour in all of them."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from didlm.compare.gather import Entry, Run

Value = Callable[[Run], float | None]
FLOPS = "floating-point operations of the training"


class Plots:
    """Draws the models of a comparison."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.colour = {entry.name: f"C{number}" for number, entry in enumerate(entries)}

    def lengths(self, data: np.ndarray) -> bytes:
        """Distribution functions of the lengths at the most steps."""
        figure, axes = _axes("tokens", "share of texts at most so long")
        _steps(axes, data, color="black", lw=3, alpha=0.5, label="data")
        for entry in self.entries:
            lengths, colour = entry.best.quality.lengths, self.colour[entry.name]
            _steps(axes, lengths, color=colour, lw=1.2, label=entry.name)
        return _png(figure, axes)

    def quality(self, value: Value, name: str, against: str) -> bytes:
        """A figure of the samples against the steps, or the seconds."""
        figure, axes = _axes(against, name)
        for entry in self.entries:
            runs = [run for run in entry.by_steps if value(run) is not None]
            by_steps = against == "steps"
            places = [run.steps if by_steps else run.quality.seconds for run in runs]
            values, colour = [value(run) for run in runs], self.colour[entry.name]
            if by_steps and not entry.stepwise:
                axes.axhline(values[0], color=colour, lw=1, ls=":", label=f"{entry.name}, no steps")
            else:
                axes.plot(places, values, marker="o", color=colour, label=entry.name)
        axes.set(xscale="log")
        if name.endswith("perplexity"):
            axes.set(yscale="log")
        if against == "steps":
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
        axes.set_xlim(left=0)
        if name.endswith("perplexity"):
            axes.set(yscale="log")
        return _png(figure, axes)

    def temperatures(self, data_entropy: float) -> bytes:
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
        axes.axvline(data_entropy, color="black", ls="--", lw=0.8, label="the data's entropy")
        axes.set(yscale="log")
        return _png(figure, axes)

    def bounds(self, entropy: float | None) -> bytes:
        """Likelihood of the validation documents in the course of training."""
        figure, axes = _axes(FLOPS, "nats per text")
        for entry in self.entries:
            lines = validations(entry)
            exact = "exact" if entry.likelihood and entry.likelihood.exact else "bound"
            axes.plot(
                [line.get("flops") or np.nan for line in lines],
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
            lines = [line for line in entry.curve if line["kind"] == "train" and line.get("loss")]
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
    entries: Sequence[Entry],
    data_lengths: np.ndarray,
    data_entropy: float,
    document_entropy: float | None,
) -> dict[str, bytes]:
    """All plots that the measurements allow, by their titles.

    Args:
        entries: the models.
        data_lengths: of the documents, in tokens.
        data_entropy: unigram entropy of the documents, in bits.
        document_entropy: exact, in nats per document, where it is known.
    """
    plots, pictures = Plots(entries), {}
    whole = plots.of(lambda entry: entry.variable_length)
    if whole.entries:
        pictures["Lengths"] = whole.lengths(data_lengths)
    qualities: dict[str, Value] = {
        "generative perplexity": lambda run: run.perplexity,
        "share of valid texts": lambda run: run.valid,
    }
    for name, value in qualities.items():
        shown = plots.of(lambda entry, value=value: value(entry.best) is not None)  # type: ignore[misc]
        if shown.entries:
            pictures[f"Steps and {name}"] = shown.quality(value, name, "steps")
            pictures[f"Seconds and {name}"] = shown.quality(value, name, "seconds per sample")
            if any(entry.flops for entry in shown.entries):
                pictures[f"Training FLOPs and {name}"] = shown.by_flops(value, name)
    if any(run.perplexity for entry in entries for run in entry.by_temperature):
        pictures["Perplexity at equal entropy"] = plots.temperatures(data_entropy)
    trained = plots.of(lambda e: bool(e.likelihood and e.flops and validations(e)))
    for kind, variable in (("whole documents", True), ("chunks of one length", False)):
        some = trained.of(lambda entry, wanted=variable: entry.variable_length == wanted)  # type: ignore[misc]
        if some.entries:
            entropy = document_entropy if variable else None
            pictures[f"Training FLOPs and likelihood, {kind}"] = some.bounds(entropy)
    learnt = plots.of(lambda entry: bool(entry.curve))
    if learnt.entries:
        pictures["Training loss"] = learnt.losses()
    return pictures


def validations(entry: Entry) -> list[dict[str, Any]]:
    """What its run found out about unseen documents on the way."""
    return [line for line in entry.curve if line["kind"] == "valid" and line["nats_per_document"]]


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
