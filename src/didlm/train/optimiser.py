"""Optimisers, learning-rate schedules and the moving average of the weights."""

import copy
import math

import torch
from torch import Tensor, nn

from didlm.model.transformer import Network
from didlm.train.settings import Settings


def make_optimisers(network: nn.Module, settings: Settings) -> list[torch.optim.Optimizer]:
    """AdamW over all parameters alike, as in the paper; or Muon for the matrices inside.

    Muon makes each update of a matrix orthogonal. Embeddings, heads and what time modulates stay
    with AdamW; updates are scaled alike, so one learning rate serves both.
    """
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    inner = [
        parameter
        for name, parameter in named
        if settings.optimiser == "muon"
        and name.startswith("blocks.")
        and name.endswith(("_in.weight", "_out.weight"))
    ]
    inside = {id(parameter) for parameter in inner}
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [parameter for _, parameter in named if id(parameter) not in inside],
            lr=settings.learning_rate,
            betas=(settings.beta_1, settings.beta_2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=named[0][1].is_cuda or None,
        )
    ]
    if inner:
        optimisers.append(
            torch.optim.Muon(
                inner,
                lr=settings.learning_rate,
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimisers


def learning_rate_factor(schedule: str, step: int, steps: int, warmup: int, decay: float) -> float:
    """The share of the full learning rate at a step: linear warm-up, then the schedule.

    Args:
        schedule: 'constant', 'cosine' (to zero), or 'wsd': constant, then linear to zero.
        step: counted from zero.
        steps: how many there will be.
        warmup: how many of them warm up.
        decay: the share of the steps in which 'wsd' falls.

    Raises:
        ValueError: for an unknown schedule.
    """
    if schedule not in ("constant", "cosine", "wsd"):
        raise ValueError(f"the schedule must be constant, cosine or wsd: got '{schedule}'")
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "cosine":
        done = (step - warmup) / max(1, steps - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if schedule == "wsd":
        falling = max(1, round(decay * steps))
        return min(1.0, max(0.0, (steps - step) / falling))
    return 1.0


class MovingAverage:
    """An exponential moving average of the weights: a network of its own, ready to be evaluated."""

    def __init__(self, network: Network, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"the decay of the moving average must be in [0, 1): got {decay}")
        self.decay = decay
        self.steps = 0
        self.network = copy.deepcopy(network).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, network: Network) -> None:
        """Move towards the network; faster at first, so that the start is soon forgotten."""
        self.steps += 1
        keep = min(self.decay, (1 + self.steps) / (10 + self.steps))
        average: list[Tensor] = list(self.network.parameters())
        weights: list[Tensor] = list(network.parameters())
        torch._foreach_lerp_(average, weights, 1 - keep)
