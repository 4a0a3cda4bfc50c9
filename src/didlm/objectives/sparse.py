"""The objectives in the form that training uses: gap rate times token distribution, sparse targets.

Score s[row, v] = rate[row] * p(v | row) (Eq. factored-score). The token distribution is needed only
where there is a target, so nothing of size rows x vocabulary appears here.

Shapes: T rows of the packed x_t, K targets, S sequences. Each function returns the cost of every
sequence's state in nats [S], before the weight of its time or number of deleted tokens.
"""

import torch
from torch import Tensor

from didlm.packed import Packed


def dise(log_rate: Tensor, log_prob: Tensor, row: Tensor, ratio: Tensor, x_t: Packed) -> Tensor:
    """Denoising insertion score entropy (Eq. factored-dise).

    Args:
        log_rate: log of the rate of each gap [T].
        log_prob: log p(token | row) of each target [K].
        row: the row of each target [K].
        ratio: its insertion target r [K].
        x_t: the batch; rates of its closed gaps do not count.
    """
    log_rate, log_score = _scores(log_rate, log_prob, row, ratio, x_t)
    return _rates_cost(log_rate, x_t) + _targets_cost(log_score, row, ratio, x_t, poisson=True)


def dse(
    log_rate: Tensor, log_prob: Tensor, row: Tensor, ratio: Tensor, group: Tensor, x_t: Packed
) -> Tensor:
    """Denoising score entropy, the tighter bound (Eq. dse).

    The arguments are those of `dise`, and `group` [K] from `didlm.alignment.result_groups`.
    """
    log_rate, log_score = _scores(log_rate, log_prob, row, ratio, x_t)
    log_score = log_group_mean(log_score, group)
    return _rates_cost(log_rate, x_t) + _targets_cost(log_score, row, ratio, x_t, poisson=True)


def dice(log_rate: Tensor, log_prob: Tensor, row: Tensor, ratio: Tensor, x_t: Packed) -> Tensor:
    """Denoising insertion cross-entropy, for rates from `normalise` (Eq. dice)."""
    _, log_score = _scores(log_rate, log_prob, row, ratio, x_t)
    return _targets_cost(log_score, row, ratio, x_t, poisson=False)


def normalise(log_rate: Tensor, missing: Tensor, x_t: Packed) -> Tensor:
    """Log rates that sum to the number of missing tokens over a sequence's open gaps.

    Args:
        log_rate: any real numbers [T].
        missing: |x_0| - |x_t| of each sequence [S] (Eq. normalisation).
        x_t: the batch; its closed gaps get rate zero. Where something is missing, a gap is open.
    """
    log_rate = _wide(log_rate).masked_fill(~x_t.open, -torch.inf)
    total = _log_sum_exp(log_rate, x_t.sequence, len(x_t), x_t.offsets)
    # Where nothing is missing the rates are zero, also if no gap is open and the total is empty.
    shift = (missing.to(log_rate.dtype).log() - total).masked_fill(missing == 0, -torch.inf)
    return log_rate + shift.index_select(0, x_t.sequence)  # its gradient needs no sorting


def _scores(
    log_rate: Tensor, log_prob: Tensor, row: Tensor, ratio: Tensor, x_t: Packed
) -> tuple[Tensor, Tensor]:
    """Log rates [T] and log scores of the targets [K], in at least float32: these are summed up."""
    if log_rate.shape != (x_t.rows,) or not log_prob.shape == row.shape == ratio.shape:
        raise ValueError(
            f"{x_t.rows} rows and {tuple(row.shape)} targets need as many log rates and log "
            f"probabilities: got {tuple(log_rate.shape)} and {tuple(log_prob.shape)}"
        )
    log_rate = _wide(log_rate)
    return log_rate, log_rate[row] + log_prob.to(log_rate.dtype)


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _rates_cost(log_rate: Tensor, x_t: Packed) -> Tensor:
    # Masked before the exponential: a closed gap's may overflow, and its gradient would be 0 * inf.
    rates = log_rate.masked_fill(~x_t.open, -torch.inf).exp()
    return _sum_by(rates, x_t.sequence, len(x_t))


def _targets_cost(
    log_score: Tensor, row: Tensor, ratio: Tensor, x_t: Packed, poisson: bool
) -> Tensor:
    """Sum of r (log r - log s), and of -r where the rates are not normalised."""
    ratio = ratio.to(log_score.dtype)
    cost = torch.xlogy(ratio, ratio) - _times(ratio, log_score) - (ratio if poisson else 0)
    return _sum_by(cost, x_t.sequence[row], len(x_t))


def _times(ratio: Tensor, log_score: Tensor) -> Tensor:
    """Their product, zero where the ratio has underflowed, even if the score has too."""
    return ratio * log_score.masked_fill(ratio == 0, 0)


def log_group_mean(log_score: Tensor, group: Tensor) -> Tensor:
    """The log of the mean score of the group that each target is in [K] (Eq. dse)."""
    groups = int(group.max()) + 1 if group.numel() else 0
    size = _sum_by(torch.ones_like(log_score), group, groups)
    return (_log_sum_exp(log_score, group, groups) - size.log())[group]


def _sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    return values.new_zeros(size).index_add(0, index, values)


def _log_sum_exp(values: Tensor, index: Tensor, size: int, offsets: Tensor | None = None) -> Tensor:
    if offsets is not None and values.is_cuda:
        # Where equals stand side by side: so many threads adding to one number take their time.
        largest = torch.segment_reduce(
            values.detach(), "max", offsets=offsets, initial=-torch.inf, unsafe=True
        )
    else:
        largest = values.detach().new_full((size,), -torch.inf)
        largest = largest.scatter_reduce(0, index, values.detach(), "amax")
    largest = largest.masked_fill(~largest.isfinite(), 0)
    return _sum_by((values - largest[index]).exp(), index, size).log() + largest
