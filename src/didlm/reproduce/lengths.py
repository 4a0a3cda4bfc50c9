"""Distribution functions of lengths: what models write, against the data."""

import numpy as np

from didlm.evaluate.quality import cumulative, ks_distance
from didlm.reproduce.drawing import pictured, png
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.samples import Request, figures_of, known_lengths
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop


def lengths(shop: Workshop, experiment: Experiment) -> Outcome:
    """Quantiles for each model and number of steps, and the curves."""

    def of(row: Row) -> list[int]:
        if row.figure == "data":
            return known_lengths(shop, row.run)
        request = Request(run=row.run, steps=row.more["steps"], **experiment.options)
        return list(figures_of(shop, request)["lengths"])

    def cell(row: Row, column: str | int) -> Value:
        found = of(row)
        if column == "Mean":
            return float(np.mean(found))
        if column == "KS":
            data = known_lengths(shop, experiment.rows[0].run)
            return None if row.figure == "data" else ks_distance(found, data)
        return float(np.quantile(found, float(str(column).split()[0]) / 100))

    values = filled(experiment, cell)
    data, written = experiment.rows[0], experiment.rows[1:]
    panels = {}
    for steps in sorted({row.more["steps"] for row in written}):
        rows = [data, *(row for row in written if row.more["steps"] == steps)]
        longest = max(max(of(row)) for row in rows)
        places = np.arange(longest + 1)
        panels[f"{steps} steps"] = {
            row.label[-1]: (places, cumulative(of(row), places)) for row in rows
        }
    picture = png(panels, "tokens", "share of texts at most so long")
    return pictured(values, experiment.name, picture)
