"""Small data distributions, and models with arbitrary scores, for the laboratory."""

import torch
from torch import Tensor

from didlm.laboratory import ExactDiffusion, Scores, State

# Runs of equal tokens abound, so that different insertions often have one result.
VARIABLE = ExactDiffusion({(0, 1): 0.3, (0, 0, 1): 0.2, (): 0.1, (1, 1, 0, 0): 0.15, (2,): 0.25}, 3)
ONE_SYMBOL = ExactDiffusion({(): 0.2, (0,): 0.1, (0, 0, 0): 0.45, (0, 0, 0, 0, 0): 0.25}, 1)
FIXED = ExactDiffusion({(0, 0, 1): 0.4, (1, 0, 0): 0.25, (2, 2, 2): 0.2, (0, 1, 0): 0.15}, 3)
# Given tokens are negative; -1 and -2 are one span with a closed gap, -3 is another right behind.
GIVEN = ExactDiffusion(
    {
        (0, -1, -2, 1, -3): 0.3,
        (0, 0, -1, -2, -3, 0): 0.2,
        (-1, -2, -3): 0.1,
        (1, 1, 0, -1, -2, 0, 0, -3): 0.15,
        (1, -1, -2, -3): 0.25,
    },
    vocabulary=2,
    closed={-1},
)
GIVEN_FIXED = ExactDiffusion(
    {(0, 0, -1, -2, 1): 0.5, (0, -1, -2, 1, 1): 0.3, (-1, -2, 0, 0, 0): 0.2}, 2, closed={-1}
)
WORLDS = {
    "variable": VARIABLE,
    "one symbol": ONE_SYMBOL,
    "fixed": FIXED,
    "given": GIVEN,
    "given, fixed": GIVEN_FIXED,
}


def arbitrary_model(vocabulary: int, seed: int, timed: bool = True) -> Scores:
    """Positive scores u f(x, u), drawn at random state by state; without time, f(x)."""
    tables: dict[State, Tensor] = {}

    def scores(state: State, u: Tensor) -> Tensor:
        if state not in tables:
            generator = torch.Generator().manual_seed(hash((seed, state)) % 2**31)
            shape = (2, len(state) + 1, vocabulary)
            tables[state] = torch.randn(shape, generator=generator, dtype=torch.float64).exp()
        constant, slope = tables[state]
        time = u[:, None, None]
        return time * (constant + slope * time) if timed else constant.expand(len(u), -1, -1)

    return scores
