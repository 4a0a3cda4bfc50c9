"""What a GPU must hold at the worst moment of a step, counted in bytes.

Weights, moments and the moving average are in float32 and stay; so do the 16-bit twins of
matrices. Gradients are in float32, and there from the backward pass to the update. What a block
keeps for its backward pass stands in the docstrings of `add_norm`, `feed_forward` and
`rotary_attention`; of the token head only one chunk of logits is ever held.

Legend: D width, F inner width.
"""

from dataclasses import asdict, dataclass

from didlm.kernels.token_loss import LOGITS
from didlm.model.config import ModelConfig
from didlm.plan.case import Case, expected_load
from didlm.plan.counting import weights_of

GIB = 2**30
LARGE = 2  # standard deviations by which a large batch has more rows than others


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU at the worst moment of a step."""

    moment: str  # which one it is
    weights: float  # with their twins and their moving average
    optimiser: float
    gradients: float  # with what several GPUs send
    activations: float  # kept for the backward pass
    head: float  # a chunk of logits, and what is made of it
    working: float  # what the block at work needs besides

    @property
    def total(self) -> float:
        """All of it."""
        return sum(value for value in asdict(self).values() if not isinstance(value, str))


def memory_of(case: Case) -> Memory:
    """That of a step: the worst of three moments."""
    config, load, weights = case.config, expected_load(case), weights_of(case.config)
    more = 1 + LARGE * load.spread / load.rows  # a large batch must fit as well
    numbers, rows, width = weights.all, more * load.rows, config.width
    muon = 4.0 * weights.inner if case.optimiser == "muon" else 0.0  # one moment instead of two
    stays = 8.0 * numbers + 2.0 * weights.twins
    moments = 8.0 * numbers - muon
    # Gradients that are averaged are copied into buckets, which stay.
    buckets = 4.0 * numbers if case.gpus > 1 else 0.0
    before = 4.0 * numbers if case.accumulate > 1 else 0.0  # of earlier batches of the step
    block, working = rows * _kept(config), rows * _working(config)
    kept = config.layers * (rows * 4.0 * width if case.checkpointing else block)
    kept += rows * (8.0 * width + 4.0 * width / config.heads + 64)
    again = block if case.checkpointing else 0.0
    head_gradient = 4.0 * width * config.padded_vocabulary
    states = 4.0 * width * more * load.target_rows
    logits = min(LOGITS, 2.0 * more * load.target_rows * config.padded_vocabulary)
    table = 4.0 * width * config.symbols

    def at(moment: str, gradients: float, activations: float, head: float, work: float) -> Memory:
        gradients = max(gradients, before) + buckets
        return Memory(moment, stays, moments, gradients, activations, head, work)

    moments_of_step = [
        at("the token head", 0.0, kept, logits + head_gradient + states, 0.0),
        at("the start of the backward pass", head_gradient, kept, states, again + working),
        at("the end of the backward pass", 4.0 * numbers - table, 0.0, 0.0, again + block + table),
        at("the update", 4.0 * numbers, 0.0, 0.0, 0.0),
    ]
    return max(moments_of_step, key=lambda memory: memory.total)


def _kept(config: ModelConfig) -> float:
    """Bytes that a block keeps of a row."""
    norms = 2 * (2 * config.width + 8)  # sums, their means and inverse deviations
    inputs = 2 * 2 * config.width  # of the two linear layers after them
    gated = 2 * 2 * config.width if config.condition else 0  # branches, where a gate is learnt
    attention = 8 * config.width + 4 * config.heads  # queries, keys, values, mixtures, sums
    inner = 2 * config.feed_forward * (2 if config.gated else 1)
    return norms + inputs + gated + attention + inner


def _working(config: ModelConfig) -> float:
    """Bytes of a row that the backward pass of a block needs besides: gradients on their way."""
    return 8 * config.width + (8 if config.gated else 6) * config.feed_forward
