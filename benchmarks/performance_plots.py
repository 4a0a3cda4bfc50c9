"""The plots of docs/performance.md."""

from pathlib import Path
from typing import Any

from performance_tables import (
    GROWTH,
    PARTS,
    TRAINING,
    anchored,
    drawable,
    floor,
    growth,
    some,
    split,
)
from recorded import Recorded

COLOURS = ("#4c72b0", "#8fa8d0", "#dd8452", "#55a868", "#937860", "#c0c0c0")
OFFICIAL, OURS, FLOOR = "#b0b0b0", "#4c72b0", "#222222"
METHODS = {"did-fixed": "DID", "did": "DID", "radd": "RADD", "ilm": "ILM", "ar": "AR"}


def draw(steps: list[Recorded], samples: list[Recorded], folder: Path) -> list[Path]:
    """Draw what was measured; return the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(exist_ok=True)
    plots = {
        "steps": methods,
        "split": stacked,
        "growth": grown,
        "utilisation": utilised,
        "sampling": written,
    }
    paths = []
    for name, rows in drawable(steps, samples).items():
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        if rows:
            figure = plots[name](rows)
            figure.savefig(path, dpi=110, metadata={"Software": None})
            plt.close(figure)
            paths.append(path)
    return paths


def methods(rows: list[Recorded]) -> Any:
    """Step time by method, against the official implementation and the floor."""
    figure, panels = _panels(2, "milliseconds a step")
    for axes, anchor in zip(panels, TRAINING, strict=True):
        own = some(rows, what=anchor.what)
        names = [METHODS[row["method"]] for row in own]
        theirs = {"DID": anchor.did, "RADD": anchor.radd}
        for place, (row, name) in enumerate(zip(own, names, strict=True)):
            if name in theirs:
                bar = axes.bar(place - 0.2, theirs[name], 0.38, color=OFFICIAL)
                axes.bar_label(bar, fmt="%.0f", fontsize=8)
            bar = axes.bar(place + 0.2, float(row["step_ms"]), 0.38, color=OURS)
            axes.bar_label(bar, fmt="%.1f", fontsize=8)
            axes.plot([place, place + 0.4], [floor(row)] * 2, color=FLOOR, lw=2)
        axes.axhline(anchor.goal, color="C3", lw=1, ls="--")
        axes.set_xticks(range(len(own)), names)
        axes.set_title(f"{anchor.what} length", fontsize=10)
    _legend(
        figure, ("official", OFFICIAL), ("ours", OURS), ("floor", FLOOR), ("goal for DID", "C3")
    )
    figure.suptitle("One training step, small model, 64 x 1,024 tokens, one H200")
    return figure


def stacked(rows: list[Recorded]) -> Any:
    """Where the time of a step goes."""
    figure, (axes,) = _panels(1, "")
    names = [f"{METHODS[row['method']]}, {row['what']}" for row in rows]
    starts = [0.0] * len(rows)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        values = [max(0.0, (split(row) or {})[part]) for row in rows]
        axes.barh(names, values, left=starts, color=colour, label=part)
        starts = [start + value for start, value in zip(starts, values, strict=True)]
    axes.plot([float(row["step_ms"]) for row in rows], names, "k|", ms=18, label="whole step")
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds", ylabel="", title="Where the time of a step goes (small model)")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def grown(rows: list[Recorded]) -> Any:
    """Step time over batch, context and vocabulary."""
    kinds = {kind: some for kind, some in growth(rows).items() if len(some) > 1}
    figure, panels = _panels(len(kinds), "milliseconds a step")
    for axes, (kind, own) in zip(panels, kinds.items(), strict=True):
        places = [int(row[kind]) for row in own]
        for number, method in enumerate(("did-fixed", "radd", "ar")):
            of_method = growth(rows, method)[kind]
            there = [int(row[kind]) for row in of_method]
            times = [float(row["step_ms"]) for row in of_method]
            axes.plot(there, times, "o-", color=f"C{number}", label=METHODS[method])
        axes.plot(places, [floor(row) for row in own], "--", color=FLOOR, lw=1, label="DID's floor")
        axes.set(xscale="log", xlabel=GROWTH[kind])
        axes.set_xticks(places, [f"{place:,}" for place in places], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
    panels[0].legend()
    figure.suptitle("One step of the small model, one H200")
    return figure


def utilised(rows: list[Recorded]) -> Any:
    """The share of the ceiling that a step reaches, by size."""
    figure, (axes,) = _panels(1, "share of the products' ceiling")
    fixed = some(rows, what="fixed")
    for number, method in enumerate(("did-fixed", "radd", "ar")):
        own = {row["preset"]: float(row["utilisation"]) for row in some(fixed, method=method)}
        sizes = [size for size in ("small", "medium", "large", "xl") if size in own]
        if sizes:
            values, label = [own[size] for size in sizes], METHODS[method]
            axes.plot(sizes, values, "o-", color=f"C{number}", label=label)
    axes.set(ylim=(0, 1), title="Utilisation, 64 x 1,024 tokens, vocabulary 50,257")
    axes.legend()
    return figure


def written(rows: list[Recorded]) -> Any:
    """Seconds of sampling, against the official implementation and the goals."""
    figure, (axes,) = _panels(1, "seconds, logarithmic")
    pairs = anchored(rows)
    for place, (anchor, row) in enumerate(pairs):
        bar = axes.bar(place - 0.2, anchor.did, 0.38, color=OFFICIAL)
        axes.bar_label(bar, fmt="%.1f", fontsize=8)
        bar = axes.bar(place + 0.2, float(row["seconds"]), 0.38, color=OURS)
        axes.bar_label(bar, fmt="%.2f", fontsize=8, color="white", padding=-12)
        axes.plot([place, place + 0.4], [anchor.goal] * 2, color="C3", lw=2)
    names = [anchor.name.replace("32 x ", "").replace(", ", "\n") for anchor, _ in pairs]
    axes.set_xticks(range(len(pairs)), names, fontsize=8)
    axes.set(yscale="log", ylim=(0.05, 60), title="Writing 32 texts, small model, one H200")
    _legend(figure, ("official", OFFICIAL), ("ours", OURS), ("goal", "C3"))
    return figure


def _panels(count: int, label: str) -> tuple[Any, list[Any]]:
    import matplotlib.pyplot as plt

    size = (4.4 * count + 0.6 if count > 1 else 7, 3.8)
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    for panel in axes[0]:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
    axes[0][0].set_ylabel(label)
    return figure, list(axes[0])


def _legend(figure: Any, *entries: tuple[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=label) for label, colour in entries]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
