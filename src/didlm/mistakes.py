"""Mistakes: tokens of a noised text that are not those of the text, as when a model errs.

A sampler reads its own words, some of them wrong; noised data never are. A network that has only
seen the latter takes a wrong token for one whose surroundings are missing, and asks for more:
texts grow too long. So some of the kept tokens of some training examples are replaced by other
tokens of the same text, while the targets stay: what is missing is missing all the same.
"""

import numpy as np

MOST = 0.2  # of the kept tokens of an example


def with_mistakes(
    tokens: np.ndarray, free: np.ndarray, text: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    """The tokens of one noised text, in a share of the cases some of them wrong.

    Args:
        tokens: what is left of the text [n].
        free: which of these may be wrong [n]: not BOS, and nothing given.
        text: all of the text.
        share: of the cases.
        rng: for all draws.
    """
    if rng.random() >= share or not text.size:
        return tokens
    wrong = free & (rng.random(tokens.size) < MOST * rng.random())
    return np.where(wrong, text[rng.integers(text.size, size=tokens.size)], tokens)
