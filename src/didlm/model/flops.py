"""How much arithmetic a batch takes: what methods of different costs can be compared by."""

from didlm.data.batch import Batch
from didlm.model.config import ModelConfig


def training_flops(config: ModelConfig, batch: Batch) -> float:
    """Floating-point operations of a forward and a backward pass over a batch.

    Two for each weight of a matrix and each row that it is applied to, and two for each product
    within attention; a backward pass takes twice what the forward pass takes. Norms, rotations and
    the optimiser are not counted.
    """
    rows, sequences = batch.x_t.rows, len(batch.x_t)
    width, layers = config.width, config.layers
    block = 4 * width**2 + (3 if config.gated else 2) * width * config.feed_forward
    pairs = float(batch.x_t.offsets.diff().double().square().sum())
    attention = 2 * width * pairs / (2 if config.causal else 1)
    time = (6 * layers + 2) * width * (config.condition or 0)
    heads = rows * width * config.rates + sequences * width * config.stop
    tokens = len(batch.target_rows) * width * config.padded_vocabulary
    return 3 * 2 * (layers * (rows * block + attention) + sequences * time + heads + tokens)
