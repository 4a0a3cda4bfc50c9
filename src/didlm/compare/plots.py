"""The plots of a comparison, each as the bytes of a PNG."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from didlm.compare.gather import Entry, Run

Value = Callable[[Run], float | None]


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
    pictures = {}
    variable = [entry for entry in entries if entry.variable_length]
    if variable:
        pictures["Lengths"] = _lengths(variable, data_lengths)
    qualities: dict[str, Value] = {
        "generative perplexity": lambda run: run.perplexity,
        "share of valid texts": lambda run: run.valid,
    }
    for name, value in qualities.items():
        shown = [entry for entry in entries if value(entry.best) is not None]
        if shown:
            pictures[f"Steps and {name}"] = _quality(shown, value, name, "steps")
            pictures[f"Seconds and {name}"] = _quality(shown, value, name, "seconds per sample")
            if any(entry.flops for entry in shown):
                pictures[f"Training FLOPs and {name}"] = _by_flops(shown, value, name)
    if any(run.perplexity for entry in entries for run in entry.by_temperature):
        pictures["Perplexity at equal entropy"] = _temperatures(entries, data_entropy)
    for kind, some in (
        ("whole documents", variable),
        ("chunks of one length", [entry for entry in entries if not entry.variable_length]),
    ):
        some = [entry for entry in some if entry.likelihood and entry.flops and _validations(entry)]
        if some:
            entropy = document_entropy if kind == "whole documents" else None
            pictures[f"Training FLOPs and likelihood, {kind}"] = _bounds(some, entropy)
    if any(entry.curve for entry in entries):
        pictures["Training loss"] = _losses(entries)
    return pictures


def _lengths(entries: Sequence[Entry], data: np.ndarray) -> bytes:
    figure, axes = _axes()
    for name, lengths, width in [
        ("data", data, 3.0),
        *((entry.name, entry.best.quality.lengths, 1.2) for entry in entries),
    ]:
        ordered = np.sort(lengths)
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        axes.step(ordered, share, where="post", lw=width, label=name)
    axes.set(xlabel="tokens", ylabel="share of texts at most so long")
    return _png(figure, axes)


def _quality(entries: Sequence[Entry], value: Value, name: str, against: str) -> bytes:
    figure, axes = _axes()
    for entry in entries:
        runs = entry.by_steps
        if against == "steps":
            places: list[float] = [run.steps for run in runs]
        else:
            places = [run.quality.seconds for run in runs]
        values = [value(run) for run in runs]
        axes.plot(places, values, marker="o", label=entry.name)
        if not entry.stepwise and against == "steps":
            axes.axhline(values[0], color=axes.lines[-1].get_color(), lw=0.8, ls=":")
    axes.set(xlabel=against, ylabel=name, xscale="log")
    return _png(figure, axes)


def _by_flops(entries: Sequence[Entry], value: Value, name: str) -> bytes:
    figure, axes = _axes()
    for entry in entries:
        if entry.flops:
            axes.plot([entry.flops], [value(entry.best)], marker="o", ls="", label=entry.name)
    axes.set(xlabel="floating-point operations of the training", ylabel=name, xscale="log")
    return _png(figure, axes)


def _temperatures(entries: Sequence[Entry], data_entropy: float) -> bytes:
    figure, axes = _axes()
    for entry in entries:
        runs = [run for run in entry.by_temperature if run.perplexity]
        if runs:
            places = [run.quality.entropy_bits for run in runs]
            axes.plot(places, [run.perplexity for run in runs], marker="o", label=entry.name)
            for run, place in zip(runs, places, strict=True):
                label = f"{run.temperature:g}"
                axes.annotate(label, (place, run.perplexity), fontsize=7, xytext=(3, 3),
                              textcoords="offset points")  # fmt: skip
    axes.axvline(data_entropy, color="black", ls="--", lw=0.8, label="unigram entropy of the data")
    axes.set(xlabel="unigram entropy in bits (temperatures beside the points)")
    axes.set(ylabel="generative perplexity", yscale="log")
    return _png(figure, axes)


def _bounds(entries: Sequence[Entry], entropy: float | None) -> bytes:
    figure, axes = _axes()
    for entry in entries:
        lines = _validations(entry)
        exact = " (exact)" if entry.likelihood and entry.likelihood.exact else " (bound)"
        axes.plot(
            [line.get("flops") or np.nan for line in lines],
            [line["nats_per_document"] for line in lines],
            marker=".",
            label=entry.name + exact,
        )
    if entropy is not None:
        axes.axhline(entropy, color="black", ls="--", lw=0.8, label="entropy of the stories")
    axes.set(xlabel="floating-point operations of the training", ylabel="nats per text")
    axes.set(xscale="log", yscale="log")
    return _png(figure, axes)


def _losses(entries: Sequence[Entry]) -> bytes:
    figure, axes = _axes()
    for entry in entries:
        lines = [line for line in entry.curve if line["kind"] == "train" and line.get("loss")]
        axes.plot([line["step"] for line in lines], [line["loss"] for line in lines], lw=0.8,
                  label=entry.name)  # fmt: skip
    axes.set(xlabel="step", ylabel="loss in nats per text, with the method's own weights")
    axes.set(yscale="log")
    return _png(figure, axes)


def _validations(entry: Entry) -> list[dict[str, Any]]:
    return [line for line in entry.curve if line["kind"] == "valid" and line["nats_per_document"]]


def _axes() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5.6, 3.6), layout="constrained")


def _png(figure: Any, axes: Any) -> bytes:
    import matplotlib.pyplot as plt

    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()
