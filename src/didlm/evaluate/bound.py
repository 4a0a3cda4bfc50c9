"""The likelihood bound of a model on documents, with noise that is the same at every call."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from didlm.data.batch import Budget, fill, make_batch
from didlm.data.loader import Corpus
from didlm.loss import batch_loss, sequence_costs
from didlm.methods.did import DID, GivenText
from didlm.methods.examples import Examples
from didlm.model.transformer import Network

DOCUMENTS_AT_A_TIME = 64


@dataclass(frozen=True)
class Bound:
    """An upper bound on -log p, estimated without bias from a few states of each document."""

    nats: np.ndarray  # of each document
    tokens: int  # in all documents, given ones not counted

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


@torch.no_grad()
def likelihood_bound(
    network: Network,
    method: DID,
    corpus: Corpus,
    budget: Budget,
    draws: int,
    seed: int = 0,
    givens: Sequence[GivenText] | None = None,
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
    """
    was_training, device = network.training, network.token_head.device
    network.eval()
    nats = np.zeros(len(corpus))

    def stream() -> Iterator[Examples]:
        for first in range(0, len(corpus), DOCUMENTS_AT_A_TIME):
            numbers = range(first, min(first + DOCUMENTS_AT_A_TIME, len(corpus)))
            texts = [corpus[number] for number in numbers]
            given = [givens[number] for number in numbers] if givens else None
            yield method.evaluation_examples(texts, numbers, seed, draws, given)

    for examples in fill(stream(), budget):
        batch = make_batch(examples).to(device)
        costs = sequence_costs(batch_loss(network, batch), batch)
        np.add.at(nats, examples.number, costs.cpu().double().numpy())
    network.train(was_training)
    free = len(corpus.tokens) - sum(int((given.spans != 0).sum()) for given in givens or ())
    return Bound(nats, free)
