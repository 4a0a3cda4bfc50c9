"""Curves side by side, as the bytes of a PNG."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from didlm.reproduce.experiment import Value
from didlm.reproduce.table import Outcome

NO_PICTURE = "There is no picture: it needs matplotlib (pip install 'didlm[plots]')."
Curves = Mapping[str, tuple[Sequence[float] | Any, Sequence[float] | Any]]


def png(panels: Mapping[str, Curves], across: str, up: str) -> bytes | None:
    """One panel for each title, one curve for each name; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (4 * len(panels), 3.4)
    figure, row = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axes, (title, curves) in zip(row[0], panels.items(), strict=True):
        for name, (xs, ys) in curves.items():
            axes.plot(xs, ys, label=name, linewidth=1.2)
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.grid(alpha=0.3)
        axes.legend()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    plt.close(figure)
    return file.getvalue()


def pictured(values: list[list[Value]], name: str, picture: bytes | None) -> Outcome:
    """Values with their picture; where there is none, a note says how to get it."""
    if picture is None:
        return Outcome(values, [NO_PICTURE])
    return Outcome(values, pictures={name: picture})
