"""A tighter bound for texts of one length: importance-weighted, over whole insertion paths.

A path is a text with its tokens deleted one by one, in a random order. Each step of it costs a
network call, so a path of m tokens costs m calls; the more paths, the tighter (Eq. path-bound).
"""

import math

import numpy as np
import torch
from torch import Tensor

from didlm.methods.did import DID
from didlm.methods.method import Method
from didlm.model.transformer import Network
from didlm.objectives.sparse import normalise
from didlm.packed import pack

ROWS_AT_A_TIME = 2**14


@torch.no_grad()
def path_bound(
    network: Network, method: Method, text: np.ndarray, paths: int, rng: np.random.Generator
) -> float:
    """An upper bound on -log p(text) in nats, whose mean falls towards it with more paths.

    Args:
        network: of a model of fixed-length text.
        method: its method.
        text: the tokens.
        paths: how many.
        rng: of the orders.

    Raises:
        ValueError: if the model does not insert into texts of fixed length, or there are no paths.
    """
    check_paths(method, paths)
    weights = [path_log_weight(network, method.bos, text, rng) for _ in range(paths)]
    return math.log(paths) - float(np.logaddexp.reduce(weights))


def check_paths(method: Method, paths: int) -> None:
    """Refuse what has no such bound."""
    if not isinstance(method, DID) or method.length is None:
        raise ValueError(
            "a bound over insertion paths needs a model of the method 'did-fixed': "
            f"this one's is '{method.name}'"
        )
    if paths < 1:
        raise ValueError(f"a bound over paths takes at least one of them: got {paths}")


def path_log_weight(
    network: Network, bos: int, text: np.ndarray, rng: np.random.Generator
) -> float:
    """log p(path) - log q(path), of a path drawn from q: the reverse of deleting at random."""
    order = rng.permutation(len(text))  # of insertion
    total, first = 0.0, 0
    while first < len(text):
        # States of up to `last` tokens fill a batch.
        last, rows = first, 0
        while last < len(text) and (rows == 0 or rows + last + 1 <= ROWS_AT_A_TIME):
            rows, last = rows + last + 1, last + 1
        total += _log_weights(network, bos, text, order, range(first, last))
        first = last
    return total


def _log_weights(
    network: Network, bos: int, text: np.ndarray, order: np.ndarray, sizes: range
) -> float:
    """The part of the weight that the insertions into states of these sizes have."""
    states: list[np.ndarray] = []
    gaps: list[int] = []  # those of all groups, with the token and the state of each
    tokens: list[int] = []
    owner: list[int] = []
    log_q = 0.0
    for number, size in enumerate(sizes):
        there = np.sort(order[:size])
        state, token = text[there], text[order[size]]
        place = int(np.searchsorted(there, order[size]))
        # All gaps around a run of the same token give one result.
        before = place
        while before > 0 and state[before - 1] == token:
            before -= 1
        after = place
        while after < size and state[after] == token:
            after += 1
        states.append(state)
        gaps += range(before, after + 1)
        tokens += [int(token)] * (after + 1 - before)
        owner += [number] * (after + 1 - before)
        log_q += math.log((after + 1 - before) / (size + 1))
    device = network.token_head.device
    x_t = pack(states, bos).to(device)
    sequence = torch.tensor(owner, device=device)
    rows = x_t.offsets[sequence] + torch.tensor(gaps, device=device)
    nothing = torch.zeros(len(x_t), device=device)
    hidden = network(x_t, nothing, int(x_t.lengths.max()) + 1)
    log_rate = network.log_rate(hidden, nothing, x_t)
    log_rate = normalise(log_rate, torch.ones_like(nothing), x_t)
    log_prob = _log_prob(network, hidden[rows], torch.tensor(tokens, device=device))
    joint = (log_rate[rows] + log_prob).double()
    largest = torch.full((len(x_t),), -torch.inf, dtype=torch.float64, device=device)
    largest = largest.scatter_reduce(0, sequence, joint, "amax")
    summed = torch.zeros_like(largest).index_add_(0, sequence, (joint - largest[sequence]).exp())
    return float((summed.log() + largest).sum()) - log_q


def _log_prob(network: Network, hidden: Tensor, tokens: Tensor) -> Tensor:
    """log p(token | row), some rows at a time."""
    vocabulary, size = network.config.vocabulary, 1024
    parts = []
    for some, wanted in zip(hidden.split(size), tokens.split(size), strict=True):
        logits = network.logits(some).float()[:, :vocabulary]
        parts.append(logits.log_softmax(-1).gather(1, wanted[:, None]).squeeze(1))
    return torch.cat(parts)
