"""Validation loss in the course of training."""

from didlm.compare.gather import metrics
from didlm.reproduce.drawing import png
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop


def curves(shop: Workshop, experiment: Experiment) -> Outcome:
    """The bound on held-out documents after shares of the steps, and the curves."""

    def course(row: Row) -> list[tuple[float, float]]:
        """Percent of the steps, and the bound then."""
        lines = [line for line in metrics(shop.run_folder(row.run)) if line["kind"] == "valid"]
        last = max(line["step"] for line in lines)
        stretch = row.more.get("stretch", 1)
        return [(100 * x["step"] / last / stretch, x["nats_per_document"]) for x in lines]

    def cell(row: Row, column: str | int) -> Value:
        before = [(x, y) for x, y in course(row) if x <= float(column) + 1e-9]
        beyond = float(column) > max(x for x, _ in course(row)) + 1e-9
        return None if beyond or not before else before[-1][1]

    values = filled(experiment, cell)
    drawn = {row.name: tuple(zip(*course(row), strict=True)) for row in experiment.rows}
    picture = png({"Stories": drawn}, "share of the steps (%)", "nats per document")  # type: ignore[dict-item]
    return Outcome(values, pictures={experiment.name: picture} if picture else {})
