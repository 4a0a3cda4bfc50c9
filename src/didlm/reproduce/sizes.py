"""The sizes of the networks, counted."""

from didlm.methods.did import FixedDID
from didlm.model.config import PRESETS, preset
from didlm.plan.counting import weights_of
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop

VOCABULARY = 50_257


def sizes(shop: Workshop, experiment: Experiment) -> Outcome:
    """Layers, width, heads and parameters of each preset."""

    def cell(row: Row, column: str | int) -> Value:
        chosen = PRESETS[row.more["preset"]]
        weights = weights_of(preset(row.more["preset"], VOCABULARY, FixedDID(0, 1024).heads))
        return {
            "Layers": chosen.layers,
            "Hidden dimension": chosen.width,
            "Attention heads": chosen.heads,
            "Non-embedding parameters (M)": (weights.all - weights.tables) / 1e6,
        }[str(column)]

    return Outcome(filled(experiment, cell))
