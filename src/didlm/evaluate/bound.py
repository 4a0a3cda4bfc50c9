"""The likelihood bound of a model on documents, with noise that is the same at every call."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from didlm.alignment import InsertionTargets, result_groups
from didlm.data.batch import Batch, Budget, fill, make_batch
from didlm.data.corpus import Corpus
from didlm.given import GivenText, given_prefix
from didlm.loss import Loss, batch_loss, sequence_costs
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.model.transformer import Network
from didlm.objectives.sparse import log_group_mean

DOCUMENTS_AT_A_TIME = 64


@dataclass(frozen=True)
class Bound:
    """An upper bound on -log p, estimated without bias from a few states of each document."""

    nats: np.ndarray  # of each document
    tokens: int  # in all documents, given ones not counted
    tight: np.ndarray | None = None  # of each document, by the tighter bound (Eq. dse), if any

    @property
    def nats_per_document(self) -> float:
        """The mean over documents."""
        return float(self.nats.mean())

    @property
    def nats_per_token(self) -> float:
        """All nats over all tokens; ending the document is paid for too."""
        return float(self.nats.sum() / max(1, self.tokens))

    @property
    def standard_error(self) -> float:
        """Of `nats_per_document`, from the spread over documents."""
        return float(self.nats.std() / math.sqrt(len(self.nats)))

    def bits_per_byte(self, size: int) -> float:
        """In bits, over the bytes of the documents' text."""
        return float(self.nats.sum() / math.log(2) / max(1, size))


def byte_label(lossless: bool) -> str:
    """What to call bits per byte.

    Args:
        lossless: whether the tokenizer gives texts back exactly; if not, only bytes of what it
            gives back can be counted, and a comparison with other figures would be unfair.
    """
    return "bits per byte" if lossless else "bits per byte of normalised text"


@torch.no_grad()
def likelihood_bound(
    network: Network,
    method: Method,
    corpus: Corpus,
    budget: Budget,
    draws: int,
    seed: int = 0,
    givens: Sequence[GivenText] | None = None,
    validating: bool = False,
) -> Bound:
    """Estimate the bound of every document (Eq. dise-by-count, Eq. dice-by-count).

    Args:
        network: the network, on the device to use.
        method: which states to visit.
        corpus: the documents.
        budget: the most a batch may hold.
        draws: states visited per document; more are more precise.
        seed: of the noise: the same for every network that is to be compared.
        givens: what is given of each document, for conditional bounds.
        validating: whether a loss will do where the method has no bound.
    """
    was_training, device = network.training, network.token_head.device
    network.eval()
    nats, tight = np.zeros(len(corpus)), np.zeros(len(corpus))

    def stream() -> Iterator[Examples]:
        for first in range(0, len(corpus), DOCUMENTS_AT_A_TIME):
            numbers = range(first, min(first + DOCUMENTS_AT_A_TIME, len(corpus)))
            texts = [corpus[number] for number in numbers]
            given = [givens[number] for number in numbers] if givens else None
            if validating:
                yield method.validation_examples(texts, numbers, seed, draws, given)
            else:
                yield method.evaluation_examples(texts, numbers, seed, draws, given)

    for examples in fill(stream(), budget):
        batch = make_batch(examples).to(device)
        loss = batch_loss(network, batch)
        costs = sequence_costs(loss, batch)
        np.add.at(nats, examples.number, costs.cpu().double().numpy())
        if method.aligned:
            costs = costs + _by_grouping(loss, batch, examples)
            np.add.at(tight, examples.number, costs.cpu().double().numpy())
    network.train(was_training)
    return Bound(nats, _free(method, corpus, givens), tight if method.aligned else None)


def prompts_of(corpus: Corpus) -> list[GivenText] | None:
    """What is given of each text; None if nothing is given of any."""
    if not corpus.has_prompts:
        return None
    lengths = enumerate(corpus.lengths.tolist())
    return [given_prefix(length, corpus.prompt(number)) for number, length in lengths]


def _free(method: Method, corpus: Corpus, givens: Sequence[GivenText] | None) -> int:
    """How many tokens are scored: neither given ones nor padding."""
    lengths = [method.finish(corpus[number]) for number in range(len(corpus))]
    if givens is None:
        return sum(lengths)
    pairs = zip(givens, lengths, strict=True)
    return sum(int((given.spans[:length] == 0).sum()) for given, length in pairs)


def _by_grouping(loss: Loss, batch: Batch, examples: Examples) -> Tensor:
    """How much the cost of each sequence changes [S] if insertions of one result count as one."""
    targets = InsertionTargets(examples.row, examples.token, examples.target)
    group = torch.from_numpy(result_groups(batch.x_t, targets)).to(batch.token.device)
    row = batch.target_rows[batch.row]
    score = loss.log_rate[row] + loss.log_prob
    gain = batch.target * (score - log_group_mean(score, group)).masked_fill(batch.target == 0, 0)
    return torch.zeros_like(batch.constant).index_add_(0, batch.x_t.sequence[row], gain)
