"""What a sampler asks of a model: where tokens are missing, and which.

Anything that answers these two questions can be sampled from: a network, or the exact laboratory.
"""

from typing import Protocol

import torch
from torch import Tensor

from didlm.model.transformer import Network
from didlm.packed import Packed


class Scorer(Protocol):
    """Rates of all gaps first, token distributions of a few gaps after (Eq. factored-score)."""

    vocabulary: int
    outputs: int  # how many logits there are: those after the vocabulary are padding of the head
    timed: bool  # whether the answer depends on the time
    normalised: bool  # whether rates are only known up to a factor per sequence (fixed length)

    def read(self, x_t: Packed, deleted: Tensor) -> tuple[Tensor, Tensor]:
        """Log rates [T] of the gaps and features [T, D] for `logits`, at times `deleted` [S]."""
        ...

    def logits(self, features: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the tokens [R, V], in memory of their own."""
        ...


class NetworkScorer:
    """A trained network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.vocabulary = network.config.vocabulary
        self.outputs = network.config.padded_vocabulary
        self.timed = network.time is not None
        self.normalised = network.config.normalised

    def read(self, x_t: Packed, deleted: Tensor) -> tuple[Tensor, Tensor]:
        """One call of the network."""
        u = deleted.float()
        hidden = self.network(x_t, u, int(x_t.lengths.max()) + 1)
        return self.network.log_rate(hidden, u, x_t.sequence), hidden

    def logits(self, features: Tensor) -> Tensor:
        """The vocabulary head, in float32 at least."""
        logits = features @ self.network.token_head.T.to(features.dtype)
        return logits if logits.dtype == torch.float64 else logits.float()
