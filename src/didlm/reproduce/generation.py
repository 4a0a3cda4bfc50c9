"""What models write in so many steps: perplexity, entropy, time and length, from nothing or not."""

from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.samples import Request, figure, figures_of
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop


def generation(shop: Workshop, experiment: Experiment) -> Outcome:
    """A figure of the samples of a model for each number of steps."""

    def cell(row: Row, column: str | int) -> Value:
        request = Request(
            run=row.run,
            steps=int(column),
            prompt=row.more.get("prompt", 0),
            **experiment.options,
        )
        return figure(figures_of(shop, request), row.figure)

    notes = []
    if not shop.scale.comparable and not shop.judge_name:
        notes = ["The judge is an autoregressive model of ours, trained on the same texts."]
    return Outcome(filled(experiment, cell), notes)
