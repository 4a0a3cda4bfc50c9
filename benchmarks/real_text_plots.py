"""The plots of docs/results.md. A method has one colour in all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from real_text_book import Book, Group, title
from real_text_curves import AGAINST, FIGURE
from real_text_runs import SETTINGS, TOP_P, Run

COLOURS = {"did": "C0", "did-fixed": "C0", "radd": "C1", "ilm": "C2", "ar": "C3"}
LABELS = {"seconds": "seconds of training", "flops": "floating-point operations of the training"}
CAPTIONS = {
    "curves": "bits per byte of unseen texts against time and work",
    "samples": "perplexity of samples against steps, seconds and entropy",
    "lengths": "lengths of samples against those of the data",
}


def draw(book: Book, folder: Path) -> dict[Group, list[Path]]:
    """Draw what was measured; the files by group."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    plots: dict[str, Callable[[Book, Group], Any]] = {
        "curves": curves,
        "samples": samples,
        "lengths": lengths,
    }
    drawn: dict[Group, list[Path]] = {}
    for group in book.groups:
        for name, plot in plots.items():
            if (figure := plot(book, group)) is None:
                continue
            figure.suptitle(title(group).replace("`", ""), fontsize=10)
            path = folder / f"{name}-{'-'.join(group)}.png"
            figure.savefig(path, dpi=110, metadata={"Software": None})
            plt.close(figure)
            drawn.setdefault(group, []).append(path)
    return drawn


def curves(book: Book, group: Group) -> Any:
    """Every validation of every run."""
    from matplotlib.ticker import NullFormatter

    named = [run for run in book.of(group) if run.bounded]
    if not named:
        return None
    figure, panels = _panels(2)
    for axes, against in zip(panels, AGAINST, strict=True):
        for run in named:
            lines = [line for line in book.runs[run.name]["curve"] if line.get(FIGURE)]
            places, values = [x[against] for x in lines], [x[FIGURE] for x in lines]
            kind = "exact" if book.runs[run.name]["exact"] else "bound"
            axes.plot(places, values, ".-", label=f"{run.name} ({kind})", **_look(run))
        axes.set(xscale="log", xlabel=LABELS[against], ylabel="bits per byte")
        axes.xaxis.set_minor_formatter(NullFormatter())
        if against == "seconds":
            all_places = [x[against] for run in named for x in book.runs[run.name]["curve"]]
            least, most = 0.9 * min(all_places), 1.1 * max(all_places)
            _ticks(axes, [x for x in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if least < x < most])
    panels[0].legend(fontsize=8)
    return figure


def samples(book: Book, group: Group) -> Any:
    """Perplexity under the judge; broken lines are with top-p, of which no time was taken."""
    named = [run for run in book.of(group) if book.written(run)]
    if not named:
        return None
    figure, panels = _panels(3)
    for run in named:
        for top_p, line in ((1.0, "o-"), (TOP_P, "o--")):
            rows = [r for r in book.written(run, top_p=top_p) if r["generative_perplexity"]]
            values = [row["generative_perplexity"] for row in rows]
            look = _look(run) | ({"label": run.name} if top_p == 1 else {})
            if top_p == 1:
                panels[1].plot([row["seconds"] for row in rows], values, line, **look)
            if run.stepwise:
                panels[0].plot([row["steps_asked"] for row in rows], values, line, **look)
            else:
                for value in values:
                    panels[0].axhline(value, ls=line[1:], lw=1, **look)
        most = max((row["steps_asked"] for row in book.written(run) if len(
            book.tempered(run, row["steps_asked"])) > 1), default=None)  # fmt: skip
        rows = book.tempered(run, most) if most is not None else []
        points = [(r["entropy_bits"], r["generative_perplexity"]) for r in rows]
        label = f"{run.name}, {most} steps" if most else run.name
        panels[2].plot(*np.array(points).reshape(-1, 2).T, "o-", label=label, **_look(run))
    if data := book.reference.get(group[0]):
        texts = data["texts"]
        point = [texts["entropy_bits"]], [texts["generative_perplexity"]]
        panels[2].plot(*point, "k*", ms=10, label="unseen texts")
    names = ("steps asked for", "seconds a text", "entropy in bits, by temperature")
    for axes, name in zip(panels, names, strict=True):
        axes.set(yscale="log", xlabel=name, ylabel="perplexity to the judge")
    for axes, what in ((panels[0], f"broken: top-p {TOP_P}"), (panels[2], None)):
        low, high = axes.get_ylim()  # with room for the legend above the curves
        axes.set_ylim(low, high * (high / low) ** 0.45)
        axes.legend(fontsize=7, title=what, title_fontsize=7, loc="upper right")
    _ticks(panels[0], _steps_of(book, named))
    panels[1].set(xscale="log")
    return figure


def lengths(book: Book, group: Group) -> Any:
    """Distribution functions of the lengths at the most steps that all have, and distances."""
    named = [run for run in book.of(group) if book.written(run)]
    data = book.reference.get(group[0])
    if SETTINGS[group[0]].chunks or not named or data is None:
        return None
    figure, panels = _panels(2)
    theirs = {"color": "black", "lw": 3, "alpha": 0.5, "label": "unseen texts"}
    _distribution(panels[0], data["texts"]["lengths"], **theirs)
    steps = [{r["steps_asked"] for r in book.written(run)} for run in named if run.stepwise]
    most = max(set.intersection(*steps), default=0) if steps else 0
    for run in named:
        rows = book.written(run)
        shown = next(iter(book.written(run, most)), rows[-1])
        _distribution(panels[0], shown["lengths"], label=run.name, **_look(run))
        if run.stepwise:
            places, values = [r["steps_asked"] for r in rows], [r["length_ks"] for r in rows]
            panels[1].plot(places, values, "o-", label=run.name, **_look(run))
        else:
            panels[1].axhline(rows[0]["length_ks"], ls=":", label=run.name, **_look(run))
    panels[0].set(
        xlabel=f"tokens (DID and RADD in {most:,} steps)", ylabel="share of texts at most so long"
    )
    panels[1].set(xlabel="steps asked for", ylabel="Kolmogorov-Smirnov distance")
    panels[1].set_ylim(bottom=0)
    panels[0].set(xlim=(0, 1.2 * np.quantile(data["texts"]["lengths"], 0.99)))
    _ticks(panels[1], _steps_of(book, named))
    for axes in panels:
        axes.legend(fontsize=8)
    return figure


def _look(run: Run) -> dict[str, Any]:
    pale = run.options.get("objective") == "dise"
    return {"color": COLOURS[run.method], "alpha": 0.5 if pale else 1.0}


def _steps_of(book: Book, runs: list[Run]) -> list[int]:
    return sorted({row["steps_asked"] for run in runs for row in book.written(run)} - {0})


def _ticks(axes: Any, places: list[int]) -> None:
    axes.set(xscale="log")
    axes.set_xticks(places, map(str, places))
    axes.set_xticks([], minor=True)


def _distribution(axes: Any, values: list[int], **look: Any) -> None:
    share = np.arange(1, len(values) + 1) / len(values)
    axes.step(np.sort(values), share, where="post", **look)


def _panels(count: int) -> tuple[Any, list[Any]]:
    import matplotlib.pyplot as plt

    size = (4.4 * count + 0.6, 3.8)
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    for panel in axes[0]:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
    return figure, list(axes[0])
