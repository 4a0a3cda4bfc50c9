"""Zero-shot perplexity of trained models on the seven sets."""

from functools import cache

from didlm.evaluate.likelihood import evaluate
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import AVERAGE, Outcome, filled
from didlm.reproduce.workshop import Workshop


def perplexities(shop: Workshop, experiment: Experiment) -> Outcome:
    """A bound for each model and each set."""

    @cache
    def texts() -> dict[str, list[str]]:
        """All sets: nothing is trained for the first before the last is known to be there."""
        names = [set_of(column) for column in experiment.columns if column != AVERAGE]
        return {name: shop.sources.texts(name, shop.scale.documents) for name in names}

    def cell(row: Row, column: str | int) -> Value:
        name = set_of(column)
        key = f"perplexity-{row.run}-{row.part}-{name}"
        found = shop.once(key, lambda: perplexity(shop, row, name, texts()[name]))
        return float(found["perplexity"])

    return Outcome(filled(experiment, cell))


def set_of(column: str | int) -> str:
    """What a set of the tables is called among the data."""
    return str(column).lower().replace(" ", "_")


def perplexity(shop: Workshop, row: Row, name: str, texts: list[str]) -> dict[str, object]:
    """That of one set, with all that `evaluate` says of it."""
    shop.say(f"{row.run} after {row.part} of 4 quarters: {len(texts)} documents of {name}")
    return evaluate(shop.model(row.run, row.part), texts).summary()
