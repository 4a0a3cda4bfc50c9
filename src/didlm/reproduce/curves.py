"""Validation loss in the course of training."""

from pathlib import Path
from typing import Any

from didlm.compare.gather import metrics
from didlm.reproduce.drawing import pictured, png
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop


def curves(shop: Workshop, experiment: Experiment) -> Outcome:
    """The bound on held-out documents after shares of the steps, and the curves."""
    runs = dict.fromkeys(row.run for row in experiment.rows)
    for run in runs:
        if run not in shop.models and not shop.trained([run]):
            _check_planned(shop, experiment, run)
    found = {run: _validations(shop, experiment, run) for run in runs}

    def course(row: Row) -> list[tuple[float, float]]:
        """Percent of the steps, and the bound then."""
        lines, stretch = found[row.run], row.more.get("stretch", 1)
        last = max(line["step"] for line in lines)
        return [(100 * x["step"] / last / stretch, x["nats_per_document"]) for x in lines]

    def cell(row: Row, column: str | int) -> Value:
        before = [(x, y) for x, y in course(row) if x <= float(column) + 1e-9]
        beyond = float(column) > max(x for x, _ in course(row)) + 1e-9
        return None if beyond or not before else before[-1][1]

    values = filled(experiment, cell)
    drawn = {row.name: tuple(zip(*course(row), strict=True)) for row in experiment.rows}
    picture = png({"Stories": drawn}, "share of the steps (%)", "nats per document")  # type: ignore[dict-item]
    return pictured(values, experiment.name, picture)


def _check_planned(shop: Workshop, experiment: Experiment, run: str) -> None:
    """Refuse to train a run that would be validated too seldom.

    Raises:
        ValueError: naming the setting.
    """
    settings = shop.planned(run)
    needed = _needed(experiment, settings.steps)
    planned = -(-settings.steps // settings.validate_every)
    if planned < needed and not settings.validate_seconds:
        raise ValueError(
            f"{experiment.where} needs {needed} validations of {run}, and validate_every="
            f"{settings.validate_every} leaves {planned}: "
            f"set it to {settings.steps // needed} at most, or leave it out"
        )


def _validations(shop: Workshop, experiment: Experiment, run: str) -> list[dict[str, Any]]:
    """All of a run, trained here or elsewhere.

    Raises:
        ValueError: if they are too few, naming the setting that is to be left out.
    """
    folder = Path(shop.models[run]) if run in shop.models else shop.run_folder(run)
    lines = [line for line in metrics(folder) if line["kind"] == "valid"]
    needed = _needed(experiment, max((line["step"] for line in lines), default=1))
    if len(lines) < needed:
        raise ValueError(
            f"{experiment.where} needs {needed} validations of {run}, and that in {folder} has "
            f"{len(lines)}: have it trained in another folder, and leave out --set validate_every"
        )
    return lines


def _needed(experiment: Experiment, steps: int) -> int:
    """As many validations as there are columns; runs of fewer steps have one after each."""
    return min(len(experiment.columns), steps)
