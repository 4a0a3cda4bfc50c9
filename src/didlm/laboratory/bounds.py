"""The objectives of a model on one text, with every expectation and integral done exactly."""

from collections.abc import Callable, Collection
from math import comb

import torch
from torch import Tensor

from didlm.alignment import count_occurrences
from didlm.laboratory.diffusion import Scores, open_gaps_of, transition
from didlm.laboratory.quadrature import LogTime
from didlm.laboratory.states import State, free_length, insert, subsequences
from didlm.objectives import dense

# The cost [B] of a state: scores [B, G, V], targets [G, V], the state itself, its open gaps.
Cost = Callable[[Tensor, Tensor, State, Tensor], Tensor]


def dise(scores: Tensor, ratios: Tensor, state: State, open: Tensor) -> Tensor:
    """Eq. dise."""
    return dense.dise(scores, ratios, open)


def dse(scores: Tensor, ratios: Tensor, state: State, open: Tensor) -> Tensor:
    """Eq. dse."""
    return dense.dse(scores, ratios, torch.tensor(state, dtype=torch.int64), open)


def dice(scores: Tensor, ratios: Tensor, state: State, open: Tensor) -> Tensor:
    """Eq. dice, with the scores normalised first."""
    missing = ratios.sum()
    return dense.dice(dense.normalise(scores, missing, open), ratios)


def target_table(x_t: State, x_0: State, vocabulary: int) -> Tensor:
    """r[gap, token] from exact counts alone (Eq. insertion-target)."""
    table = torch.zeros(len(x_t) + 1, vocabulary, dtype=torch.float64)
    occurrences = count_occurrences(x_t, x_0)
    for gap in range(len(x_t) + 1):
        for token in range(vocabulary):
            table[gap, token] = count_occurrences(insert(x_t, gap, token), x_0) / occurrences
    return table


def over_time(
    cost: Cost, scores: Scores, x_0: State, vocabulary: int, closed: Collection[int] = ()
) -> float:
    """The bound as an integral over time, tokens deleted independently (Eq. dise)."""
    grid = LogTime()
    u, bound = grid.deleted, torch.zeros_like(grid.deleted)
    for x in subsequences(x_0):
        bound += transition(x, x_0, u) * _cost(cost, scores, x, x_0, u, vocabulary, closed)
    return float(grid.weights @ bound)


def over_count(
    cost: Cost, scores: Scores, x_0: State, vocabulary: int, closed: Collection[int] = ()
) -> float:
    """The bound as a sum over the number deleted (Eq. dise-by-count, Eq. dice-by-count)."""
    grid, total = LogTime(), free_length(x_0)
    u, bound = grid.deleted, 0.0
    for x in subsequences(x_0):
        count = total - free_length(x)
        share = count_occurrences(x, x_0) / comb(total, count)
        weight = torch.full_like(u, 1 / count) if count else 1 / ((total + 1) * u)
        a, b = max(count, 1), total - count + 1
        density = u ** (a - 1) * (1 - u) ** (b - 1) * a * comb(a + b - 1, a)  # of Beta(a, b)
        values = weight * density * _cost(cost, scores, x, x_0, u, vocabulary, closed)
        bound += share * float(grid.weights @ (u * values))  # du = u dtau
    return bound


def _cost(
    cost: Cost,
    scores: Scores,
    x: State,
    x_0: State,
    u: Tensor,
    vocabulary: int,
    closed: Collection[int],
) -> Tensor:
    return cost(scores(x, u), target_table(x, x_0, vocabulary), x, open_gaps_of(x, closed))
