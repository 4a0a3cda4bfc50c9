"""Which of several continuations a model prefers: their conditional bounds, with common noise.

A bound is an average over noised states, and what matters here is the difference between options.
So all options of a question are noised alike: as large a share of each is taken away, and the same
places where they are as long. Much of the noise is then the same in all, and drops out of the
differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from didlm._inputs import FloatArray
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound
from didlm.given import GivenText, given_prefix
from didlm.pretrained import Model

BATCH = 64


@dataclass(frozen=True)
class Question:
    """Options, each with what is given before it; mostly that is the same for all."""

    prompts: Sequence[str]
    options: Sequence[str]


def option_scores(
    model: Model, questions: Sequence[Question], draws: int = 32, seed: int = 0, common: bool = True
) -> list[FloatArray]:
    """A lower bound on log p(option | its prompt), or the exact value, of all options.

    Where a prompt and an option are too long together, the prompt loses its beginning.

    Args:
        model: the model.
        questions: what to score.
        draws: noised states of each option.
        seed: of the noise.
        common: whether the options of a question share their noise.

    Raises:
        ValueError: if the method has no bound.
    """
    if not model.method.bounded:
        raise ValueError(f"the method '{model.method.name}' has no bound on the likelihood")
    scores = [np.zeros(len(question.options)) for question in questions]
    # Noise depends on the place in a corpus: all first options come in one, all second ones in the
    # next, and those with the most options stand first, so that a question keeps its place.
    order = sorted(range(len(questions)), key=lambda n: -len(questions[n].options))
    for column in range(max(map(len, scores), default=0)):
        some = [number for number in order if column < len(scores[number])]
        pairs = [(questions[n].prompts[column], questions[n].options[column]) for n in some]
        texts, givens = _prepared(model, pairs)
        corpus = Corpus.of(texts)
        bound = likelihood_bound(
            model.network,
            model.method,
            corpus,
            budget_for(corpus, min(BATCH, len(corpus))),
            draws,
            seed if common else seed + (column << 32),
            givens,
        )
        for number, nats in zip(some, bound.nats, strict=True):
            scores[number][column] = -nats
    return scores


def _prepared(
    model: Model, pairs: Sequence[tuple[str, str]]
) -> tuple[list[np.ndarray], list[GivenText]]:
    """Whole texts that the model could write, and what of them is given."""
    prompts = model.tokenizer.encode_batch([prompt for prompt, _ in pairs])
    options = model.tokenizer.encode_batch([option for _, option in pairs])
    texts, givens = [], []
    for prompt, option in zip(prompts, options, strict=True):
        option = option[: model.longest]
        prompt = prompt[max(0, len(prompt) + len(option) - model.longest) :]
        text = np.append(prompt, option)
        whole, given = model.method.whole(text, given_prefix(len(text), len(prompt)))
        assert given is not None
        texts.append(whole)
        givens.append(given)
    return texts, givens
