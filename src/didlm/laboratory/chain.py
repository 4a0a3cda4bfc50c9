"""The reverse chain of any model, integrated exactly: where it ends, and so its likelihood."""

from collections.abc import Collection

import torch
from torch import Tensor

from didlm.laboratory.diffusion import Scores, open_gaps_of
from didlm.laboratory.quadrature import LogTime
from didlm.laboratory.states import State, insert, subsequences


def likelihood(scores: Scores, x_0: State, closed: Collection[int] = ()) -> float:
    """The probability that the model writes x_0.

    Insertion never shortens a text, so only subsequences of x_0 lie on the way to it: the chain
    over these is all that is needed, although the model can wander off to any text.
    """
    return reverse_chain(scores, subsequences(x_0), closed)[x_0]


def reverse_chain(
    scores: Scores, states: list[State], closed: Collection[int] = (), grid: LogTime | None = None
) -> dict[State, float]:
    """Probability of each state at the end, starting from the first (Eq. reverse-chain).

    Args:
        scores: the model.
        states: shortest first; with every state all its subsequences. Probability that leaves these
            states is lost.
        closed: given labels after which nothing may be inserted.
        grid: the time grid of the integration.
    """
    grid = grid or LogTime()
    inflow = {x: torch.zeros_like(grid.deleted) for x in states}
    final = {}
    for number, x in enumerate(states):
        rates = scores(x, grid.deleted) * open_gaps_of(x, closed)[:, None]
        probability, final[x] = _solve(inflow[x], rates.sum((-2, -1)), float(number == 0), grid)
        for gap, token in torch.cartesian_prod(*map(torch.arange, rates.shape[1:])).tolist():
            y = insert(x, gap, token)
            if y in inflow:
                inflow[y] += probability * rates[:, gap, token]
    return final


def _solve(inflow: Tensor, outflow: Tensor, start: float, grid: LogTime) -> tuple[Tensor, float]:
    """Solve dp/dtau = inflow - outflow * p by Gauss collocation: p at the nodes, and at the end."""
    gains, rates = inflow.view(grid.panels, -1, 1), outflow.view(grid.panels, 1, -1)
    integrate, weights = grid.within_panel, grid.weights[: grid.order]
    # Within a panel p = start + integrate (gains - rates p), linear in what it started with.
    system = torch.eye(grid.order, dtype=torch.float64) + integrate * rates
    ones = torch.ones_like(gains)
    per_start, offset = torch.linalg.solve(system, torch.cat([ones, integrate @ gains], -1)).unbind(
        -1
    )
    nodes = []
    for panel in range(grid.panels):
        nodes.append(start * per_start[panel] + offset[panel])
        change = gains[panel, :, 0] - rates[panel, 0] * nodes[-1]
        start += float(weights @ change)
    return torch.cat(nodes), start
