"""In which order a model writes: which tokens come first, how many at once, and which together.

All of it is read off `Sample.born`, the step at which each token of a finished text came. Tokens
that were given have no such step and are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from didlm._inputs import FloatArray
from didlm.data.tokenizer import Tokenizer
from didlm.generate.results import Sample

OFTEN = 10  # a token that comes less often tells nothing about its kind
NAMED = 10  # tokens at either end
PARTS = 10  # of the steps of a text


@dataclass(frozen=True)
class TokenRank:
    """When a token comes on average, among the tokens of its text."""

    text: str
    rank: float  # 0 first .. 1 last
    count: int  # in all samples


@dataclass(frozen=True)
class Order:
    """The order of writing, over all samples; what cannot be known is None."""

    earliest: list[TokenRank]
    latest: list[TokenRank]  # the last one first
    frequency_correlation: float | None  # of count and rank; negative if frequent tokens are first
    per_step: float  # tokens that come in one step of one text
    most_per_step: int
    per_step_by_tenth: list[float | None]  # from the first tenth of the text's steps to the last
    together: float | None  # share of neighbours that came in the same step
    together_if_shuffled: float | None  # the same if the births of a text were dealt out at random

    def summary(self) -> dict[str, object]:
        """What is written as JSON."""
        return {
            "earliest": [vars(token) for token in self.earliest],
            "latest": [vars(token) for token in self.latest],
            "frequency_correlation": self.frequency_correlation,
            "insertions_per_step": self.per_step,
            "insertions_per_step_most": self.most_per_step,
            "insertions_per_step_by_tenth": self.per_step_by_tenth,
            "neighbours_together": self.together,
            "neighbours_together_if_shuffled": self.together_if_shuffled,
        }


def measure_order(samples: Sequence[Sample], tokenizer: Tokenizer, often: int = OFTEN) -> Order:
    """Put figures on the order in which samples were written.

    Args:
        samples: the texts.
        tokenizer: of the model.
        often: how many times a token must occur to be ranked.
    """
    earliest, latest, correlation = _token_ranks(samples, tokenizer, often)
    per_step, most, by_tenth = _pace(samples)
    together, shuffled = _neighbours(samples)
    return Order(
        earliest=earliest,
        latest=latest,
        frequency_correlation=correlation,
        per_step=per_step,
        most_per_step=most,
        per_step_by_tenth=by_tenth,
        together=together,
        together_if_shuffled=shuffled,
    )


def ranks(values: np.ndarray) -> FloatArray:
    """The place of each value in order, from 0 on; equal values share the mean of their places."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[which]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's: the correlation of the ranks; None if either does not vary."""
    a, b = ranks(a), ranks(b)
    if len(a) < 2 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _token_ranks(
    samples: Sequence[Sample], tokenizer: Tokenizer, often: int
) -> tuple[list[TokenRank], list[TokenRank], float | None]:
    tokens, places = [np.empty(0, np.int64)], [np.empty(0)]
    for sample in samples:
        born = np.array(sample.born, dtype=np.int64)
        written = born > 0
        if written.sum() > 1:  # a token alone is neither early nor late
            tokens.append(np.array(sample.tokens)[written])
            places.append(ranks(born[written]) / (written.sum() - 1))
    kind, which, count = np.unique(np.concatenate(tokens), return_inverse=True, return_counts=True)
    mean = np.bincount(which, np.concatenate(places), len(kind)) / count
    some = count >= often
    kind, count, mean = kind[some], count[some], mean[some]
    by_rank = np.lexsort((kind, mean))  # equal ones in the order of their ids
    named = [
        TokenRank(tokenizer.token_text(int(kind[i])), float(mean[i]), int(count[i]))
        for i in by_rank
    ]
    return named[:NAMED], named[::-1][:NAMED], rank_correlation(count, mean)


def _pace(samples: Sequence[Sample]) -> tuple[float, int, list[float | None]]:
    """Tokens a step: on average, at most, and on average in each tenth of a text's steps."""
    births, steps = np.zeros(PARTS), np.zeros(PARTS)
    most = 0
    for sample in samples:
        born = np.array(sample.born, dtype=np.int64)
        in_step = np.bincount(born[born > 0], minlength=sample.steps + 1)[1:]
        part = np.arange(len(in_step)) * PARTS // max(1, len(in_step))
        births += np.bincount(part, in_step, PARTS)
        steps += np.bincount(part, minlength=PARTS)
        most = max(most, int(in_step.max(initial=0)))
    by_tenth = [float(b / s) if s else None for b, s in zip(births, steps, strict=True)]
    return float(births.sum() / max(1, steps.sum())), most, by_tenth


def _neighbours(samples: Sequence[Sample]) -> tuple[float | None, float | None]:
    """The share of neighbours born together, and its expectation over all orders of the births.

    Of n births, of which c came in step s, two different places hold the same step with
    probability sum over s of c (c - 1) / (n (n - 1)), whichever two they are.
    """
    pairs, same, expected = 0, 0, 0.0
    for sample in samples:
        born = np.array(sample.born, dtype=np.int64)
        both = (born[1:] > 0) & (born[:-1] > 0)
        count = np.bincount(born[born > 0]).astype(np.float64)
        written = count.sum()
        if both.any():
            pairs += int(both.sum())
            same += int((both & (born[1:] == born[:-1])).sum())
            chance = (count * (count - 1)).sum() / (written * (written - 1))
            expected += both.sum() * chance
    return (same / pairs, float(expected / pairs)) if pairs else (None, None)
