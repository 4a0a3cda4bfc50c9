"""Middles of texts: how likely they are with both ends given, and how well others take their place.

A model that writes from left to right knows the left end alone. One that masks is told how many
tokens are missing; one that inserts has to find out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from didlm._inputs import FloatArray, IntArray
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound
from didlm.generate.template import Blank, Parts, match
from didlm.given import GivenText, given_prefix
from didlm.pretrained import Model

BATCH = 64
_SPACE = re.compile(r"(?<=\S) (?=\S)")


@dataclass(frozen=True)
class Middle:
    """A text in three parts, which end to end are the text."""

    left: str
    middle: str
    right: str

    @property
    def text(self) -> str:
        """All of it."""
        return self.left + self.middle + self.right


def cut_middles(documents: Sequence[str]) -> list[Middle]:
    """The middle third of the words of each document that has three words or more."""
    middles = []
    for text in documents:
        spaces = [found.start() for found in _SPACE.finditer(text)]
        if len(spaces) < 2:
            continue
        first, last = spaces[len(spaces) // 3], spaces[max(1, 2 * len(spaces) // 3)]
        middles.append(Middle(text[:first], text[first:last], text[last:]))
    return middles


def middle_nats(
    model: Model, middles: Sequence[Middle], draws: int = 8, seed: int = 0
) -> FloatArray:
    """-log p(middle | both ends) of each text: an upper bound.

    Of a model that writes from left to right it is -log p(middle | left), and exact. No text may
    be longer than those that the model has learnt from.

    Args:
        model: the model.
        middles: the texts.
        draws: noised states of each.
        seed: of the noise.

    Raises:
        ValueError: if the method has no bound.
    """
    parts: list[tuple[Parts, str]] = [([x.left, Blank(), x.right], x.text) for x in middles]
    matched = [match(template, text, model.tokenizer) for template, text in parts]
    if not model.network.config.causal:
        return _nats(model, [_whole(model, *each) for each in matched], draws, seed)
    # What comes after the left end, less what comes after the middle.
    after_left, after_middle = [], []
    for tokens, given in matched:
        (free,) = np.nonzero(given.spans == 0)
        first, last = (free[0], free[-1] + 1) if len(free) else (len(tokens), len(tokens))
        after_left.append((tokens, given_prefix(len(tokens), int(first))))
        after_middle.append((tokens, given_prefix(len(tokens), int(last))))
    return _nats(model, after_left, 1, seed) - _nats(model, after_middle, 1, seed)


def fill_middles(
    model: Model, middles: Sequence[Middle], seed: int, batch_size: int, **controls: Any
) -> list[Middle]:
    """The same ends with middles that a model has written.

    One that writes from left to right is given the left end, and writes at most as many tokens as
    the middle had; one that masks writes exactly as many.

    Args:
        model: the model.
        middles: the texts.
        seed: of the draws.
        batch_size: how many texts are written together.
        **controls: see `Model.generate`.
    """
    causal, told = model.network.config.causal, model.method.keeps_length
    templates: list[Parts] = []
    for text, tokens in zip(
        middles, model.tokenizer.encode_batch([x.middle for x in middles]), strict=True
    ):
        room = Blank(len(tokens) if told else 0, len(tokens) if told or causal else None)
        templates.append([text.left, room, "" if causal else text.right])
    if told:  # padding in the middle would end the text there
        controls = {"banned": [model.tokenizer.separator], **controls}
    samples = model.infill_each(templates, seed, batch_size, **controls)
    filled = []
    for text, sample in zip(middles, samples, strict=True):
        end = len(sample.text) - (0 if causal else len(text.right))
        filled.append(replace(text, middle=sample.text[len(text.left) : end]))
    return filled


def right_nats(judge: Model, middles: Sequence[Middle]) -> tuple[FloatArray, IntArray]:
    """-log p(right end | left end and middle) of each text, and the tokens of the right end.

    The tokens that are scored are the same whatever the middle is: how expected they are tells
    whether it leads there. The end of the text is paid for. Text before the right end that the
    judge has no room for is left out at the beginning.

    Args:
        judge: a model that writes from left to right.
        middles: the texts.
    """
    lefts, rights = (
        judge.tokenizer.encode_batch(texts)
        for texts in ([x.left + x.middle for x in middles], [x.right for x in middles])
    )
    texts = []
    for left, right in zip(lefts, rights, strict=True):
        left = left[max(0, len(left) + len(right) - judge.longest) :]
        tokens = np.append(left, right)
        texts.append((tokens, given_prefix(len(tokens), len(left))))
    return _nats(judge, texts, 1, 0), np.array([len(right) for right in rights])


def _whole(model: Model, tokens: IntArray, given: GivenText) -> tuple[IntArray, GivenText]:
    """A text that the model could write, and what is given of it."""
    whole, of_whole = model.method.whole(tokens, given)
    assert of_whole is not None
    return whole, of_whole


def _nats(
    model: Model, texts: Sequence[tuple[IntArray, GivenText]], draws: int, seed: int
) -> FloatArray:
    corpus, givens = Corpus.of([tokens for tokens, _ in texts]), [given for _, given in texts]
    budget = budget_for(corpus, min(BATCH, len(corpus)))
    return likelihood_bound(model.network, model.method, corpus, budget, draws, seed, givens).nats
