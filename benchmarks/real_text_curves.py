"""What validations on the way say: bounds at equal work and equal time, and overfitting.

A run is as good at a point as its best validation up to there: that model could have been kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from real_text_records import Figures

FIGURE = "bits_per_byte"
AGAINST = ("seconds", "flops")
PARTS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of what all runs of a group have reached

Curve = Sequence[Figures]  # validation lines of a run's metrics, in order


@dataclass(frozen=True)
class Fit:
    """The best point of a run, and its last."""

    best: float
    at_seconds: float  # of the best
    last: float
    seconds: float  # of the last

    @property
    def rise(self) -> float:
        """How much the run lost after its best point; 0 if that is its last."""
        return self.last - self.best


def points(curve: Curve, against: str) -> tuple[np.ndarray, np.ndarray]:
    """Work or time of each validation, and the best figure until then."""
    known = [line for line in curve if line.get(FIGURE) is not None and line.get(against)]
    places = np.array([line[against] for line in known], dtype=float)
    values = np.array([line[FIGURE] for line in known], dtype=float)
    return places, np.minimum.accumulate(values)


def reached(curve: Curve, against: str, budget: float) -> float | None:
    """The best figure that a run has had with so much work or time.

    Between validations it is taken to fall linearly with the logarithm of what was spent. Before
    the first one, and after the last, nothing is claimed.
    """
    places, values = points(curve, against)
    if not len(places) or not places[0] <= budget <= places[-1]:
        return None
    return float(np.interp(np.log(budget), np.log(places), values))


def budgets(curves: Mapping[str, Curve], against: str) -> list[float]:
    """The most work or time that all runs have reached, and parts of it; of runs with a bound."""
    ends = [places[-1] for c in curves.values() if len(places := points(c, against)[0])]
    return [part * float(min(ends)) for part in PARTS] if ends else []


def fit(curve: Curve) -> Fit | None:
    """Where a run was best, and what became of it."""
    known = [line for line in curve if line.get(FIGURE) is not None]
    if not known:
        return None
    best = min(known, key=lambda line: line[FIGURE])
    last = known[-1]
    return Fit(best[FIGURE], best["seconds"], last[FIGURE], last["seconds"])
