"""What the exact targets cost by the length of the texts."""

import numpy as np

from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.speed import alignment_seconds
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop

VOCABULARY = 50_257


def targets(shop: Workshop, experiment: Experiment) -> Outcome:
    """Seconds for each length, and the exponent of a power law through them."""
    batch, times = experiment.options["batch"], experiment.options["times"]
    lengths = [int(column) for column in experiment.columns if column != "Exponent"]

    def found() -> list[float]:
        shop.say(f"exact targets of {batch} texts, {times} times at each length")
        return [seconds(length, batch, times) for length in lengths]

    values = shop.once("targets", found)
    exponent = float(np.polyfit(np.log(lengths), np.log(values), 1)[0])

    def cell(row: Row, column: str | int) -> Value:
        return exponent if column == "Exponent" else values[lengths.index(int(column))]

    return Outcome(filled(experiment, cell))


def seconds(length: int, batch: int, times: int) -> float:
    """To align so many batches of random text, its tokens distributed as Zipf says."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, VOCABULARY))
    total = 0.0
    for number in range(times + 1):
        drawn = np.searchsorted(share, share[-1] * rng.random((batch, length))) + 1
        took = alignment_seconds(list(drawn), 0, rng)
        total += took if number else 0.0  # the first compiles
    return total
