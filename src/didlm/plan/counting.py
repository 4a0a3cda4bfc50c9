"""What a step does, counted: operations, bytes that go through memory, kernels.

Legend: D width, F inner width of the feed-forward, P vocabulary with its padding. Bytes are those
of the kernels in `didlm.kernels`: rows in 16 bits, weights and their gradients in float32.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch

from didlm.kernels.token_loss import LOGITS
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.plan.case import Case, Load, expected_load
from didlm.train.update import SMALL, WITH_TWINS

PARTS = ("products", "attention", "passes", "head", "optimiser")
MUON_STEPS = 5
TILE = 64  # rows of a tile of attention: the last of each sequence is not full
KERNELS_OF_ENDS = 60  # embeddings, rates, losses: roughly

Work = dict[str, dict[str, float]]  # for each part, how much there is of what has a rate


@dataclass(frozen=True)
class Weights:
    """How many numbers a network has."""

    all: int
    twins: int  # of these, in matrices that have twins in 16 bits
    inner: int  # of these, in the matrices inside, which Muon takes
    tables: int  # in the tables over the vocabulary
    block: int  # in one block
    tensors: int  # that are large enough for a kernel of their own in the update
    muon_flops: float  # of making updates of the matrices inside orthogonal


@cache
def weights_of(config: ModelConfig) -> Weights:
    """Counted on a network without any memory."""
    with torch.device("meta"):
        network = Network(config)
    named = list(network.named_parameters())
    inner = [
        p
        for name, p in named
        if name.startswith("blocks.") and name.endswith(("_in.weight", "_out.weight"))
    ]
    return Weights(
        all=sum(p.numel() for _, p in named),
        twins=sum(p.numel() for name, p in named if name.endswith(WITH_TWINS)),
        inner=sum(p.numel() for p in inner),
        tables=network.token_embedding.weight.numel() + network.token_head.numel(),
        block=sum(p.numel() for p in network.blocks[0].parameters()),
        tensors=sum(p.numel() > SMALL for _, p in named),
        muon_flops=sum(_orthogonal_flops(*sorted(p.shape)) for p in inner),
    )


def _orthogonal_flops(short: int, long: int) -> float:
    """Three products a step: the matrix by itself, that by itself, and that by the matrix."""
    return MUON_STEPS * 2.0 * (2 * short**2 * long + short**3)


def step_flops(case: Case) -> float:
    """Operations of a whole step on all GPUs, as `training_flops` counts them."""
    config, load = case.config, expected_load(case)
    attention = _attention_flops(config, load.pairs / (2 if config.causal else 1))
    heads = load.rows * config.rates + load.sequences * config.stop
    per_pass = (
        _body_flops(config, load)
        + attention
        + 6 * config.width * heads
        + _head_flops(config, load.target_rows)
    )
    return case.gpus * case.accumulate * per_pass


def _body_flops(config: ModelConfig, load: Load) -> float:
    block = 4 * config.width**2 + (3 if config.gated else 2) * config.width * config.feed_forward
    time = (6 * config.layers + 2) * config.width * (config.condition or 0)
    return 6 * (config.layers * load.rows * block + load.sequences * time)


def _attention_flops(config: ModelConfig, pairs: float) -> float:
    return 6 * config.layers * 2 * config.width * pairs


def _head_flops(config: ModelConfig, rows: float) -> float:
    return 6 * rows * config.width * config.padded_vocabulary


def work_of(case: Case) -> Work:
    """What one GPU does in one step, by part."""
    config, load = case.config, expected_load(case)
    width, layers, passes = config.width, config.layers, case.accumulate
    tiles = TILE * load.rows  # (r + TILE / 2)^2 is about r^2 + TILE r
    pairs = load.pairs / 2 + tiles if config.causal else load.pairs + tiles
    again = 4 / 3 if case.checkpointing else 1  # a forward pass is a third of all
    row_layers = load.rows * layers
    work = {
        "products": {
            "product_flops": again * _body_flops(config, load),
            "kernels": 12 * again * layers,
        },
        "attention": {
            "attention_flops": again * _attention_flops(config, pairs),
            # Rotated where they stand, read by three kernels; mixtures and gradients.
            "attention_bytes": again * 42 * width * row_layers,
            "kernels": 4 * again * layers,
        },
        "passes": {
            "pass_bytes": again * _pass_bytes(config) * row_layers + _end_bytes(config, load),
            "kernels": (10 if config.condition else 8) * again * layers + KERNELS_OF_ENDS,
        },
        "head": _head_work(config, load.target_rows),
    }
    total: Work = {
        part: {what: passes * much for what, much in amounts.items()}
        for part, amounts in work.items()
    }
    return total | {"optimiser": _optimiser_work(case, weights_of(config))}


def _pass_bytes(config: ModelConfig) -> float:
    """Of a row in a block: two norms with what they add, and the activation; both ways."""
    norms = 2 * (8 + 10 + (2 if config.condition else 0)) * config.width
    return norms + (18 if config.gated else 12) * config.feed_forward


def _end_bytes(config: ModelConfig, load: Load) -> float:
    """Embeddings, the last norm and the gathered rows; the dense gradient of the embeddings."""
    return 32 * config.width * load.rows + 8 * config.width * config.symbols


def _head_work(config: ModelConfig, rows: float) -> dict[str, float]:
    logits = rows * config.padded_vocabulary
    chunks = math.ceil(2 * logits / LOGITS)
    gradient = config.width * config.padded_vocabulary
    return {
        "head_flops": _head_flops(config, rows),
        # Logits are written, read and written, and read twice; every chunk writes the gradient of
        # the head, and all after the first read it.
        "head_bytes": 10 * logits + 4 * (2 * chunks - 1) * gradient,
        "kernels": 4 * chunks + 6,
    }


def _optimiser_work(case: Case, weights: Weights) -> dict[str, float]:
    """A norm, then weights, moments and average are read and written, and twins written."""
    if case.optimiser == "adamw":
        numbers = 42.0 * weights.all
        return {"optimiser_bytes": numbers, "kernels": weights.tensors + 20}
    # Several operations of torch a matrix, each with a pass of its own.
    numbers = 42.0 * (weights.all - weights.inner) + 120.0 * weights.inner
    return {
        "optimiser_bytes": numbers,
        "product_flops": weights.muon_flops,
        "kernels": weights.tensors + 20 + 4 * (3 * MUON_STEPS + 20),
    }


def kernels_of(work: Work) -> float:
    """How many kernels a step starts."""
    return sum(amounts.get("kernels", 0.0) for amounts in work.values())
