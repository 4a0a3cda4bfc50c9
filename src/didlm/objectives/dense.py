"""The objectives over full tables, as the paper writes them: for tiny alphabets, and as the truth.

Shapes: scores and ratios are [..., G, V] for G gaps and V tokens, scores positive in open gaps;
`open` is [G]. Each function returns the cost of one state x_t in nats [...], before the weight that
time or the number of deleted tokens gives it (see `didlm.objectives.noise`). 0 log 0 is 0.
"""

import torch
from torch import Tensor


def dise(score: Tensor, ratio: Tensor, open: Tensor | None = None) -> Tensor:
    """Denoising insertion score entropy of one state (Eq. dise)."""
    score = _only_open(score, open)
    return (score - _times_log(ratio, score) + _constant(ratio)).sum((-2, -1))


def dse(score: Tensor, ratio: Tensor, labels: Tensor, open: Tensor | None = None) -> Tensor:
    """Denoising score entropy of one state: DISE without Jensen's inequality (Eq. dse).

    Args:
        score: insertion scores.
        ratio: insertion targets.
        labels: x_t [G - 1], given tokens negative (see `didlm.given.alignment_labels`).
        open: which gaps may receive tokens; all by default.
    """
    score = _only_open(score, open)
    group = _leftmost_gap(labels, score.shape[-1]).expand(score.shape)
    total = torch.zeros_like(score).scatter_add(-2, group, score)
    size = torch.zeros_like(score).scatter_add(-2, group, torch.ones_like(score))
    mean = total.gather(-2, group) / size.gather(-2, group)
    return (score - _times_log(ratio, mean) + _constant(ratio)).sum((-2, -1))


def dice(score: Tensor, ratio: Tensor) -> Tensor:
    """Denoising insertion cross-entropy, for scores that sum to |x_0| - |x_t| (Eq. dice)."""
    return (_times_log(ratio, ratio) - _times_log(ratio, score)).sum((-2, -1))


def normalise(score: Tensor, missing: Tensor | int, open: Tensor | None = None) -> Tensor:
    """Scale the scores of a state to the sum |x_0| - |x_t| (Eq. normalisation)."""
    score = _only_open(score, open)
    return score / score.sum((-2, -1), keepdim=True) * missing


def _times_log(ratio: Tensor, score: Tensor) -> Tensor:
    """r log s, with value and gradient zero where r is zero, even if s is too."""
    return ratio * score.masked_fill(ratio == 0, 1).log()


def _constant(ratio: Tensor) -> Tensor:
    """K(r) = r (log r - 1), the part of the score entropy that no score changes."""
    return _times_log(ratio, ratio) - ratio


def _only_open(score: Tensor, open: Tensor | None) -> Tensor:
    return score if open is None else score * open[:, None]


def _leftmost_gap(labels: Tensor, vocabulary: int) -> Tensor:
    """For each gap and token, the leftmost gap where inserting it has the same result [G, V]."""
    leftmost = torch.arange(labels.numel() + 1)[:, None].repeat(1, vocabulary)
    for gap, label in enumerate(labels.tolist(), start=1):
        if label >= 0:
            leftmost[gap, label] = leftmost[gap - 1, label]
    return leftmost.to(labels.device)
