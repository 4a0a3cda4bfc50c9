"""The paper's dynamic programme in the log domain, in plain torch: the windowed one's yardstick.

It fills the whole table of N(x_t[:i], x_0[:j]), vectorised over gaps and batch, with one logaddexp
per position of x_0, on whatever device the inputs are. Time and memory grow with m x n.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from didlm._inputs import Booleans, Integers
from didlm.alignment.targets import InsertionTargets, read_batch, read_inputs
from didlm.packed import Packed


def insertion_targets_reference(
    x0: Integers, keep: Booleans, given: Integers | None = None
) -> InsertionTargets:
    """The same as `insertion_targets`, by the paper's algorithm."""
    labels, mask = read_inputs(x0, keep, given)
    device = x0.device if isinstance(x0, Tensor) else torch.device("cpu")
    return _targets([torch.from_numpy(labels).to(device)], [torch.from_numpy(mask).to(device)])


def insertion_targets_batch_reference(x0: Packed, keep: Booleans) -> InsertionTargets:
    """The same as `insertion_targets_batch`, by the paper's algorithm, on the batch's device."""
    labels, mask = (torch.from_numpy(x).to(x0.tokens.device) for x in read_batch(x0, keep))
    rows = x0.offsets.diff().tolist()
    return _targets([x[1:] for x in labels.split(rows)], [k[1:] for k in mask.split(rows)])


def _targets(texts: list[Tensor], masks: list[Tensor]) -> InsertionTargets:
    if not texts:
        return InsertionTargets(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    kept = [text[mask] for text, mask in zip(texts, masks, strict=True)]
    # A suffix count is a prefix count of the reversed sequences: both run as one batch.
    tables = log_prefix_counts(
        [*texts, *(text.flip(0) for text in texts)], [*kept, *(x_t.flip(0) for x_t in kept)]
    )
    first_row, parts = 0, []
    for b, text in enumerate(texts):
        m, n = text.numel(), kept[b].numel()
        prefix = tables[: m + 1, : n + 1, b]
        suffix = tables[: m + 1, : n + 1, len(texts) + b].flip(0, 1)
        # Eq. insertion-target: token j lies in gap i if i kept tokens are before it, n - i after.
        log_ratio = prefix[:-1] + suffix[1:] - prefix[m, n]
        j, gap = log_ratio.isfinite().nonzero(as_tuple=True)
        places, inverse = torch.stack([gap + first_row, text[j]]).unique(dim=1, return_inverse=True)
        ratio = prefix.new_zeros(places.shape[1]).index_add_(0, inverse, log_ratio[j, gap].exp())
        parts.append((*places, ratio))
        first_row += n + 1
    gaps, tokens, ratios = (torch.cat(field).cpu().numpy() for field in zip(*parts, strict=True))
    return InsertionTargets(gaps, tokens, ratios)


def log_prefix_counts(texts: list[Tensor], kept: list[Tensor]) -> Tensor:
    """log N(x_t[:i], x_0[:j]) for every j, i and sequence: [j, i, batch] (Eq. prefix-count)."""
    # Entry (j, i) looks at x_0[:j] and x_t[:i] alone, so what the padding holds does not matter.
    x0, x_t = pad_sequence(texts), pad_sequence(kept)  # [m, batch], [n, batch]
    (m, batch), n = x0.shape, x_t.shape[0]
    table = torch.full((m + 1, n + 1, batch), -torch.inf, dtype=torch.float64, device=x0.device)
    table[:, 0] = 0.0
    for j in range(m):
        matched = table[j, :-1].masked_fill(x_t != x0[j], -torch.inf)
        torch.logaddexp(table[j, 1:], matched, out=table[j + 1, 1:])
    return table
