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
    longest: int = 1024,
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
        longest: no text gets more tokens than this.
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
        draws = torch.rand(x_t.rows, generator=generator, device=u.device, dtype=torch.float64)
        fires = (draws < chance) & x_t.open
        room = (min(longest, total) if network.config.normalised else longest) - x_t.lengths
        rows = (fires & _first_in_sequence(fires, room, x_t)).nonzero().squeeze(-1)
        tokens = draw_tokens(network, hidden[rows], generator, temperature)
        x_t = x_t.insert(rows, tokens)
        if callback:
            callback(step, then, x_t)
    return x_t


def _first_in_sequence(fires: Tensor, room: Tensor, x_t: Packed) -> Tensor:
    """The first `room` [S] of the rows that fire in each sequence: no text outgrows its limit."""
    fired_before = torch.nn.functional.pad(fires.cumsum(0), (1, 0))
    here = fired_before[1:] - fired_before[x_t.offsets[:-1]][x_t.sequence]
    return here <= room[x_t.sequence]


def draw_tokens(
    network: Network, hidden: Tensor, generator: torch.Generator, temperature: float
) -> Tensor:
    """A token for each gap that fires, drawn in float64: float32 is too coarse for the tail."""
    drawn = []
    weight = network.token_head[: network.config.vocabulary].to(hidden.dtype)
    for rows in hidden.split(1024):
        logits = (rows @ weight.T).double() / temperature
        cumulative = logits.softmax(-1).cumsum(-1)
        uniform = torch.rand(
            len(rows), 1, generator=generator, device=rows.device, dtype=torch.float64
        )
        found = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        drawn.append(found.squeeze(-1).clamp(max=network.config.vocabulary - 1))
    return torch.cat(drawn) if drawn else hidden.new_empty(0, dtype=torch.int64)
