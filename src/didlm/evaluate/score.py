"""The likelihood bound of a single text, with its standard error."""

import math
from dataclasses import dataclass

from didlm._inputs import IntArray
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound
from didlm.given import GivenText
from didlm.methods.method import Method
from didlm.model.transformer import Network

REPEATS = 8  # independent estimates, whose spread gives the standard error


@dataclass(frozen=True)
class Score:
    """A lower bound on log p(text), or on log p(text | what is given), in nats."""

    log_likelihood: float
    standard_error: float  # of the estimate of the bound
    tokens: int  # that are scored

    @property
    def nats_per_token(self) -> float:
        """The upper bound on -log p, over the tokens that are scored."""
        return -self.log_likelihood / max(1, self.tokens)


def score_text(
    network: Network,
    method: Method,
    tokens: IntArray,
    given: GivenText | None,
    draws: int,
    seed: int,
) -> Score:
    """Estimate the bound in several independent ways.

    Args:
        network: the network.
        method: which states to visit.
        tokens: of the whole text.
        given: what is given of it.
        draws: states to visit in all.
        seed: of the draws.
    """
    if draws < REPEATS:
        raise ValueError(
            f"a score with a standard error takes {REPEATS} draws or more: got {draws}"
        )
    if method.length is not None and not (
        len(tokens) if given is None else (given.spans == 0).sum()
    ):
        return Score(0.0, 0.0, 0)  # nothing is left to chance
    corpus = Corpus.of([tokens] * REPEATS)
    givens = None if given is None else [given] * REPEATS
    bound = likelihood_bound(
        network, method, corpus, budget_for(corpus, REPEATS), draws // REPEATS, seed, givens
    )
    return Score(
        log_likelihood=-bound.nats_per_document,
        standard_error=float(bound.nats.std(ddof=1)) / math.sqrt(REPEATS),
        tokens=bound.tokens // REPEATS,
    )
