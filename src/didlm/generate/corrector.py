"""Self-correction: raise the time, delete accordingly, and let the model insert again."""

import numpy as np


def corrected(grid: np.ndarray, share: float, times: int, steps: int) -> np.ndarray:
    """A grid that goes back up `times` times, evenly spread, the last time at its end.

    Tokens deleted while time rises and inserted again while it falls leave the distribution alone
    if insertion is exact (Eq. corrector); a model's mistakes get a second chance.

    Args:
        grid: falling from 1 to 0.
        share: of the tokens, deleted each time.
        times: how often.
        steps: in which the deleted tokens come back each time.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share of tokens to correct must be at least 0 and below 1: {share}")
    if times < 1 or steps < 1:
        raise ValueError(f"a corrector needs at least one step and one time: {steps} and {times}")
    if share == 0:
        return grid
    turns = np.round(np.arange(1, times + 1) / times * (len(grid) - 1)).astype(int).clip(min=1)
    walk = [grid[:1]]
    for start, turn in zip(np.r_[0, turns[:-1]], turns, strict=True):
        low = grid[turn]
        high = low + share * (1 - low)  # at which a token has gone with probability `share`
        walk += [grid[start + 1 : turn + 1], np.linspace(high, low, steps + 1)]
    return np.concatenate(walk)
