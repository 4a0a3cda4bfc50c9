"""Zero-shot perplexity of trained models on the seven sets."""

from didlm.evaluate.likelihood import evaluate
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop


def perplexities(shop: Workshop, experiment: Experiment) -> Outcome:
    """A bound for each model and each set."""

    def cell(row: Row, column: str | int) -> Value:
        name = str(column).lower().replace(" ", "_")
        key = f"perplexity-{row.run}-{row.part}-{name}"
        found = shop.once(key, lambda: perplexity(shop, row, name))
        return float(found["perplexity"])

    return Outcome(filled(experiment, cell))


def perplexity(shop: Workshop, row: Row, name: str) -> dict[str, object]:
    """That of one set, with all that `evaluate` says of it."""
    texts = shop.sources.texts(name, shop.scale.documents)
    shop.say(f"{row.run} after {row.part} of 4 quarters: {len(texts)} documents of {name}")
    return evaluate(shop.model(row.run, row.part), texts).summary()
