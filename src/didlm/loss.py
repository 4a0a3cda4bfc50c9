"""The one loss of every method: rates against counts, tokens against sparse targets, a stop."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from didlm.data.batch import Batch
from didlm.kernels.rows import with_rows
from didlm.kernels.token_loss import token_loss
from didlm.model.transformer import Network
from didlm.objectives import sparse


@dataclass(frozen=True)
class Loss:
    """The cost of a batch in nats, with the weights of its examples, and where it comes from."""

    total: Tensor  # summed over the sequences, with the constant that no network changes
    log_rate: Tensor  # [T] zero where there is none; detached
    row_cost: Tensor  # [T] how many tokens are missing, and where; detached
    stop_cost: Tensor  # [S] whether any are missing at all; detached
    log_prob: Tensor  # [K] of the targets; detached


def batch_loss(network: Network, batch: Batch, scale: float = 1.0, promised: bool = False) -> Loss:
    """Run the network on a batch and cost it (Eq. factored-dise, Eq. dice).

    Args:
        network: the network.
        batch: what to read, and the targets.
        scale: by what the loss will be multiplied before its backward pass, as in fp16 training: it
            enters before gradients are made 16-bit.
        promised: whether it will be exactly that, which spares a pass over the gradients.
    """
    states = network(batch.x_t, batch.deleted, batch.longest)
    hidden, with_targets = with_rows(states, batch.target_rows)
    row_cost, stop_cost = torch.zeros_like(batch.count), torch.zeros_like(batch.constant)
    log_rate = torch.zeros_like(batch.count)
    if network.config.rates:
        log_rate = _log_rate(network, batch, hidden)
        row_cost = -batch.count * log_rate
        if not network.config.normalised:
            row_cost = row_cost + batch.count_weight * log_rate.exp()
    if network.config.stop:
        stop_cost = binary_cross_entropy_with_logits(
            network.stop_logit(hidden, batch.x_t),
            batch.complete,
            batch.complete_weight,
            reduction="none",
        )
    features, head = network.readout(with_targets)
    tokens, log_prob = token_loss(
        features,
        head,
        batch.row,
        batch.token,
        batch.target,
        network.config.vocabulary,
        scale,
        is_sorted=True,
        promised=promised,
    )
    total = tokens + row_cost.sum() + stop_cost.sum() + batch.constant.sum()
    return Loss(total, log_rate.detach(), row_cost.detach(), stop_cost.detach(), log_prob)


def _log_rate(network: Network, batch: Batch, hidden: Tensor) -> Tensor:
    log_rate = network.log_rate(hidden, batch.deleted, batch.x_t)
    if network.config.normalised:
        # A distribution over the open gaps; the constant has the number of missing tokens.
        log_rate = sparse.normalise(log_rate, torch.ones_like(batch.deleted), batch.x_t)
    return log_rate.masked_fill(~batch.x_t.open, 0)  # else 0 * infinity in what follows


def sequence_costs(loss: Loss, batch: Batch) -> Tensor:
    """The part of the cost that each sequence of the batch has [S], in nats."""
    sequence = batch.x_t.sequence
    cost = (batch.constant + loss.stop_cost).index_add_(0, sequence, loss.row_cost)
    tokens = -batch.target * loss.log_prob.masked_fill(batch.target == 0, 0)
    return cost.index_add_(0, sequence[batch.target_rows[batch.row]], tokens)
