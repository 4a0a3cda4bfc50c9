"""What a sampler asks of a model: where tokens are missing, and which.

Anything that answers these two questions can be sampled from: a network, or the exact laboratory.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from didlm.model.length_prior import missing_dispersion
from didlm.model.memory import Memory
from didlm.model.transformer import Network
from didlm.packed import Packed

PLACES = 8  # empty texts that share the room behind the others, see `desk`


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says about S texts with T rows."""

    log_rate: Tensor  # [T] of the gaps
    features: Tensor  # [T, D] for `logits`
    stop: Tensor | None = None  # [S] whether a text is complete, if the model can tell
    memory: Tensor | None = None  # [T, ...] what spares the model reading these rows again


@dataclass(frozen=True, eq=False)
class Recall:
    """The memory of earlier answers, row by row; it may be the batch's own, and no copy."""

    memory: Tensor  # [T, ...], into which the model may write at new rows
    new: Tensor  # [N] rows to be read now: the last ones of their texts, in rising order


class Scorer(Protocol):
    """Rates of all gaps first, token distributions of a few gaps after (Eq. factored-score)."""

    vocabulary: int
    outputs: int  # how many logits there are: those after the vocabulary are padding of the head
    timed: bool  # whether the answer depends on the time
    normalised: bool  # whether rates are only known up to a factor per sequence (fixed length)

    def read(self, x_t: Packed, deleted: Tensor, recall: Recall | None = None) -> Answer:
        """What the model says at times `deleted` [S], given what it remembers."""
        ...

    def logits(self, features: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the tokens [R, V], in memory of their own."""
        ...

    def dispersion(self, x_t: Packed) -> Tensor:
        """How uncertain the number of missing tokens is [S]: (variance - mean) / mean^2."""
        ...


class NetworkScorer:
    """A trained network."""

    def __init__(self, network: Network, longest: int | None = None) -> None:
        """Take a network.

        Args:
            network: the network.
            longest: no text that it reads has more tokens than this, if that is known.
        """
        self.network, self.longest = network, longest
        self.vocabulary = network.config.vocabulary
        self.outputs = network.config.padded_vocabulary
        self.timed = network.time is not None
        self.normalised = network.config.normalised

    def read(self, x_t: Packed, deleted: Tensor, recall: Recall | None = None) -> Answer:
        """One call of the network."""
        network, u = self.network, deleted.float()
        hidden = network(x_t, u, self._longest(x_t))
        if network.config.rates:
            log_rate = network.log_rate(hidden, u, x_t)
        else:  # every open gap lacks one token
            log_rate = torch.zeros(x_t.rows, device=hidden.device)
        stop = None
        if network.config.stop:
            stop = network.stop_logit(hidden, x_t) > network.config.dialect.stop_log_odds
        return Answer(log_rate, hidden[: x_t.rows], stop)

    @property
    def recordable(self) -> bool:
        """Whether a GPU can record how the network answers: nothing then depends on lengths."""
        head, leading = self.network.token_head, self.network.config.dialect.leading
        short = head.dtype in (torch.bfloat16, torch.float16)  # attention in float32 is a loop
        known = self.longest is not None and leading is None
        return known and short and head.is_cuda and not torch.is_autocast_enabled("cuda")

    def fits(self, rows: int) -> bool:
        """Whether there is memory for a batch of so many rows where a GPU can record it."""
        return True

    def nothing(self, rows: int) -> Answer:
        """In the shape of an answer about so many rows."""
        head = self.network.token_head
        kind = torch.promote_types(head.dtype, torch.float32)
        log_rate = torch.full((rows,), -torch.inf, dtype=kind, device=head.device)
        return Answer(log_rate, head.new_zeros(rows, head.shape[-1]))

    def logits(self, features: Tensor) -> Tensor:
        """The vocabulary head, in float32 at least."""
        return _logits(self.network, features)

    def dispersion(self, x_t: Packed) -> Tensor:
        """As far as lengths tell."""
        config = self.network.config
        return missing_dispersion(x_t, config.mean_length, config.length_dispersion)

    def _longest(self, x_t: Packed) -> int:
        """No text has more rows than this."""
        if self.longest is None:
            return int(x_t.lengths.max()) + 1
        # The room behind the texts may be longer.
        return max(self.longest + 1, -(-x_t.rows // PLACES))


class CausalScorer(NetworkScorer):
    """A causal network: it remembers what it has read, and reads the rows that it is told to."""

    def read(self, x_t: Packed, deleted: Tensor, recall: Recall | None = None) -> Answer:
        """One call of the network, on the rows that are new, or on all without a memory."""
        if recall is None or not recall.memory.numel():
            new = torch.arange(x_t.rows, device=x_t.tokens.device)
            recall = Recall(self._no_memory(x_t.rows), new)
        memory = Memory(recall.memory, recall.new, self._longest(x_t))
        hidden = self.network.extend(x_t, memory)
        features = hidden.new_zeros(x_t.rows, hidden.shape[-1]).index_copy(0, recall.new, hidden)
        log_rate = torch.zeros(x_t.rows, device=hidden.device)  # what is open lacks one token
        return Answer(log_rate, features, memory=recall.memory)

    def fits(self, rows: int) -> bool:
        """Whether the memory of all rows fits six times: it is laid out, and moved, in copies."""
        head = self.network.token_head
        if not head.is_cuda:
            return True
        free, _ = torch.cuda.mem_get_info(head.device)
        kept = torch.cuda.memory_reserved(head.device) - torch.cuda.memory_allocated(head.device)
        config = self.network.config
        return 6 * rows * config.layers * 2 * config.width * head.itemsize <= free + kept

    def nothing(self, rows: int) -> Answer:
        """In the shape of an answer about so many rows."""
        return replace(super().nothing(rows), memory=self._no_memory(rows))

    def dispersion(self, x_t: Packed) -> Tensor:
        """None: one token is missing until the text ends."""
        return torch.zeros(len(x_t), dtype=torch.float64, device=x_t.tokens.device)

    def _no_memory(self, rows: int) -> Tensor:
        config = self.network.config
        return self.network.token_head.new_zeros(rows, config.layers, 2, config.width)


def scorer_of(network: Network, longest: int | None = None) -> Scorer:
    """The network as a scorer of texts of at most `longest` tokens."""
    return (CausalScorer if network.config.causal else NetworkScorer)(network, longest)


def _logits(network: Network, features: Tensor) -> Tensor:
    logits = network.logits(features)
    return logits if logits.dtype == torch.float64 else logits.float()
