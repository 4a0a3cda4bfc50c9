"""Tau-leaping, the paper's sampler: in each step every gap receives at most one token."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from didlm.model.transformer import Network
from didlm.objectives import sparse
from didlm.packed import Packed

Callback = Callable[[int, float, Packed], None]


@torch.no_grad()
def tau_leaping(
    network: Network,
    x_t: Packed,
    times: np.ndarray,
    generator: torch.Generator,
    length: int | None = None,
    longest: int = 4096,
    temperature: float = 1.0,
    callback: Callback | None = None,
) -> Packed:
    """Insert tokens while time falls (Eq. tau-leaping).

    Args:
        network: the network.
        x_t: what to start from, on the network's device: BOS alone, or given text.
        times: falling from 1 to 0, as of `didlm.schedule.uniform_grid`.
        generator: of all random draws, on the network's device.
        length: the number of tokens to reach, for networks of fixed-length text.
        longest: texts that have reached so many tokens do not grow further.
        temperature: of the token distribution.
        callback: called with step, time and batch after every step.
    """
    if network.config.normalised and length is None:
        raise ValueError("a network of fixed-length text needs to be told the length")
    total = length or 0
    for step, (now, then) in enumerate(pairwise(times.tolist())):
        u = torch.full((len(x_t),), now, device=x_t.tokens.device)
        hidden = network(x_t, u, int(x_t.lengths.max()) + 1)
        log_rate = network.log_rate(hidden, u, x_t.sequence)
        if network.config.normalised:
            missing = (total - x_t.lengths).clamp(min=0)
            log_rate = sparse.normalise(log_rate, missing, x_t)
        # A token missing at `now` has appeared by `then` with probability (now - then) / now.
        chance = log_rate.double().exp() * ((now - then) / now)
        may_grow = x_t.open & (x_t.lengths < longest)[x_t.sequence]
        draws = torch.rand(x_t.rows, generator=generator, device=u.device, dtype=torch.float64)
        rows = ((draws < chance) & may_grow).nonzero().squeeze(-1)
        tokens = draw_tokens(network, hidden[rows], generator, temperature)
        x_t = x_t.insert(rows, tokens)
        if callback:
            callback(step, then, x_t)
    return x_t


def draw_tokens(
    network: Network, hidden: Tensor, generator: torch.Generator, temperature: float
) -> Tensor:
    """A token for each gap that fires, drawn in float64: float32 is too coarse for the tail."""
    drawn = []
    weight = network.token_head[: network.config.vocabulary].to(hidden.dtype)
    for rows in hidden.split(1024):
        logits = (rows @ weight.T).double() / temperature
        cumulative = logits.softmax(-1).cumsum(-1)
        uniform = torch.rand(len(rows), 1, generator=generator, device=rows.device).double()
        found = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        drawn.append(found.squeeze(-1).clamp(max=network.config.vocabulary - 1))
    return torch.cat(drawn) if drawn else hidden.new_empty(0, dtype=torch.int64)
