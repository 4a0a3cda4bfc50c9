"""What a model writes, in figures: variety, lengths, copying, pace, and what a judge says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from didlm._inputs import FloatArray, IntArray, Integers
from didlm.data.corpus import Corpus
from didlm.evaluate.grams import copied_share, distinct_n
from didlm.evaluate.judge import Judge
from didlm.generate.results import Sample
from didlm.pretrained import Model

RUN = 13  # tokens in a row that count as copied
LONGEST_GRAM = 4  # of `distinct`


@dataclass(frozen=True, eq=False)
class Verdict:
    """How likely texts are to a judge."""

    judge: str
    nats: FloatArray  # of each text
    tokens: IntArray  # of each text, in the judge's own

    @property
    def left_out(self) -> int:
        """Texts without tokens, about which a judge has nothing to say."""
        return int((self.tokens == 0).sum())

    @property
    def perplexity(self) -> float | None:
        """exp of the mean over texts of each one's nats per token, as in the paper."""
        some = self.tokens > 0
        if not some.any():
            return None
        with np.errstate(over="ignore"):
            return float(np.exp((self.nats[some] / self.tokens[some]).mean()))

    @property
    def nats_per_token(self) -> float | None:
        """All nats over all tokens: long texts count for more than short ones."""
        some = self.tokens > 0
        return float(self.nats[some].sum() / self.tokens[some].sum()) if some.any() else None


@dataclass(frozen=True, eq=False)
class Quality:
    """Figures about samples; those for which something was missing are None."""

    method: str
    steps: float  # of the sampler, a text
    nfe: float  # network calls, a text
    seconds: float  # a text, of which
    network_seconds: float  # the network took these
    entropy_bits: float  # of the tokens within a text
    lengths: IntArray  # of each text, in tokens
    data_lengths: IntArray | None
    distinct: dict[int, float | None]  # by n
    copied: float | None  # share of the runs of 13 tokens
    verdict: Verdict | None

    @property
    def sampling_seconds(self) -> float:
        """A text, of all that is not the network."""
        return self.seconds - self.network_seconds

    @property
    def length_ks(self) -> float | None:
        """How far the lengths are from those of the data (Kolmogorov-Smirnov)."""
        return None if self.data_lengths is None else ks_distance(self.lengths, self.data_lengths)

    def summary(self) -> dict[str, object]:
        """What is written as JSON; what is absent, or no number, is null."""
        data, verdict = self.data_lengths, self.verdict
        figures: dict[str, object] = {
            "method": self.method,
            "samples": len(self.lengths),
            "steps": self.steps,
            "nfe": self.nfe,
            "seconds": self.seconds,
            "network_seconds": self.network_seconds,
            "sampling_seconds": self.sampling_seconds,
            "entropy_bits": self.entropy_bits,
            "length_mean": float(self.lengths.mean()),
            "length_std": float(self.lengths.std()),
            "lengths": self.lengths.tolist(),
            "data_length_mean": None if data is None else float(data.mean()),
            "length_ks": self.length_ks,
            "distinct": {str(n): share for n, share in self.distinct.items()},
            "copied_13_grams": self.copied,
            "judge": verdict.judge if verdict else None,
            "generative_perplexity": verdict.perplexity if verdict else None,
            "generative_nats_per_token": verdict.nats_per_token if verdict else None,
            "texts_not_judged": verdict.left_out if verdict else None,
        }
        return {name: _finite(value) for name, value in figures.items()}


def measure(
    model: Model,
    samples: Sequence[Sample],
    data: Sequence[str] | None = None,
    training: Sequence[str] | None = None,
    judge: Judge | None = None,
) -> Quality:
    """Put figures on what a model has written.

    Args:
        model: the model.
        samples: its texts.
        data: documents with whose lengths theirs are compared.
        training: documents from which they may have been copied.
        judge: another model, to say how likely they are (see `didlm.evaluate.judge`).

    Raises:
        ValueError: if there are no samples, or the data is too short for the model.
    """
    if not samples:
        raise ValueError("there are no samples to measure")
    texts = [sample.tokens for sample in samples]
    copied = None
    if training is not None:
        copied = copied_share(texts, model.tokenizer.encode_batch(training), RUN)
    verdict = None
    if judge is not None:
        verdict = Verdict(judge.name, *judge.nats([sample.text for sample in samples]))
    return Quality(
        method=model.method.name,
        steps=_mean([sample.steps for sample in samples]),
        nfe=_mean([sample.nfe for sample in samples]),
        seconds=_mean([sample.seconds for sample in samples]),
        network_seconds=_mean([sample.network_seconds for sample in samples]),
        entropy_bits=_mean([unigram_entropy(text) for text in texts]),
        lengths=np.array([len(text) for text in texts]),
        data_lengths=None if data is None else data_lengths(model, data),
        distinct={n: distinct_n(texts, n) for n in range(1, LONGEST_GRAM + 1)},
        copied=copied,
        verdict=verdict,
    )


def data_lengths(model: Model, documents: Sequence[str]) -> IntArray:
    """How long texts like these documents are to the model: cut, or in chunks, as in training.

    Raises:
        ValueError: if the model is of fixed-length text, and there is not enough for one.
    """
    method, tokenizer = model.method, model.tokenizer
    corpus = Corpus.of(tokenizer.encode_batch(documents), tokenizer.separator)
    return np.array([method.finish(text) for text in method.lay_out(corpus, model.longest)])


def unigram_entropy(tokens: Integers) -> float:
    """The entropy in bits of how often each token occurs in a text: 0 if all are the same.

    The sum is over the distinct tokens of the text, each with its share N/L of the L places:
    H = -sum (N/L) log2 (N/L). The paper prints a sum over all places 1 to L, in which a token would
    count once for each of its N places; but the figures there, about 8.1 bits at 1,024 tokens where
    no text can have more than log2 1024 = 10, are those of the sum over distinct tokens.
    """
    _, times = np.unique(np.asarray(tokens, np.int64), return_counts=True)
    share = times / max(1, times.sum())
    return max(0.0, float(-(share * np.log2(share)).sum()))  # of one token, 0 and not -0


def cumulative(values: Sequence[float] | np.ndarray, places: np.ndarray) -> FloatArray:
    """The share of the values that are no larger than each of the places."""
    return np.searchsorted(np.sort(values), places, "right") / len(values)


def ks_distance(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """The largest difference between two empirical distribution functions, from 0 to 1.

    Raises:
        ValueError: if either is of nothing.
    """
    if not len(a) or not len(b):
        raise ValueError("there is no distance to a distribution of nothing")
    places = np.union1d(a, b)  # between these, neither function moves
    return float(np.abs(cumulative(a, places) - cumulative(b, places)).max())


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _finite(value: object) -> object:
    """JSON knows neither infinity nor what is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
