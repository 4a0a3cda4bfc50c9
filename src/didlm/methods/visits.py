"""Which states of texts an evaluation visits: several of each, with noise of its own."""

from collections.abc import Callable, Sequence

import numpy as np

from didlm.given import GivenText, nothing_given
from didlm.objectives.noise import Noise

Visits = tuple[
    list[np.ndarray], list[GivenText], list[Noise], list[np.random.Generator], np.ndarray
]


def visited(
    texts: Sequence[np.ndarray],
    numbers: Sequence[int],
    seed: int,
    givens: Sequence[GivenText] | None,
    noises_of: Callable[[int, np.random.Generator], list[Noise]],
) -> Visits:
    """The text, what is given, the noise, the generator and the number of every state.

    Texts that have a number in common, as options of one question may, are noised alike, however
    long they are: every state has a generator of its own.

    Args:
        texts: the texts.
        numbers: of the texts: their noise depends on (seed, number) alone.
        seed: of the noise.
        givens: what is given of each text.
        noises_of: the draws for a text with so many free tokens.
    """
    states, of_given, noises, rngs, documents = [], [], [], [], []
    for place, (text, number) in enumerate(zip(texts, numbers, strict=True)):
        rng = np.random.default_rng((seed, number))
        given = givens[place] if givens else nothing_given(len(text))
        for draw, noise in enumerate(noises_of(int((given.spans == 0).sum()), rng)):
            states.append(text)
            of_given.append(given)
            noises.append(noise)
            rngs.append(np.random.default_rng((seed, number, draw, 1)))  # as none in training
            documents.append(number)
    return states, of_given, noises, rngs, np.array(documents, dtype=np.int64)
