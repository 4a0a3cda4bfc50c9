"""From logits to their gradient, where they stand: the elementwise half of the token loss.

    loss = - sum_k weight[k] log softmax(logits)[row[k], token[k]]
    gradient = (sum of the weights of a row) * softmax - weights

A chunk of logits is the largest array of a training step, and every pass over it costs as much as a
third of a matrix product. Torch needs about ten passes, in float32. The fast twin reads the 16-bit
logits of a row once from memory and once from the cache, and writes once.

Shapes: C rows of a chunk, R rows in all, P vocabulary with its padding, K targets.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

LANES, WARPS = 1024, 16  # the best of 128 to 2,048 and 4 to 32 on an H200


@dataclass(frozen=True)
class Targets:
    """What rows of logits should hold, row after row."""

    starts: Tensor  # [R + 1] where the targets of each row start, and the end; int32
    token: Tensor  # [K]
    weight: Tensor  # [K] how much the log-probability of the token counts, in float32
    pooled: Tensor  # [K] the sum of the weights of all targets of the same row and token

    def of_rows(self, first: int, last: int) -> "Targets":
        """The targets of the rows from `first` to before `last`."""
        return replace(self, starts=self.starts[first : last + 1])


def softmax_gradient_(
    logits: Tensor,
    targets: Targets,
    vocabulary: int,
    log_prob: Tensor,
    cost: Tensor,
    gradient: bool = True,
) -> None:
    """Turn logits into the gradient of the loss in place, and note the log-probabilities.

    All arithmetic is in float32, and a gradient is rounded to the dtype of the logits once. A row
    without targets gets zeros, whatever its logits are.

    Args:
        logits: in 16 bits, contiguous; overwritten [C, P].
        targets: of these rows; other rows' may stand before and after them.
        vocabulary: columns from here on are padding, of no probability and no gradient.
        log_prob: takes log p(token | row) of the targets of these rows, in float32 [K].
        cost: takes the loss of each row, in float32; a weight of zero costs nothing [C].
        gradient: if not, the logits stay as they are.
    """
    from didlm.kernels import softmax_gradient_triton as fast

    rows, padded = logits.shape
    assert logits.is_contiguous()
    if rows:
        # A program has a row, and a lane 8 of its columns at a time: 16 bytes. The rows at work
        # have to fit the cache together, or the second reading would go to memory: hence so many
        # warps for one row.
        with torch.cuda.device_of(logits):
            fast.softmax_gradient[(rows,)](
                logits,
                targets.starts,
                targets.token,
                targets.weight,
                targets.pooled,
                log_prob,
                cost,
                vocabulary,
                padded,
                gradient=gradient,
                LANES=min(LANES, fast.next_power_of_2(-(-padded // 8))),
                TARGETS=32,
                num_warps=WARPS,
            )


def softmax_gradient_plain_(
    logits: Tensor,
    targets: Targets,
    vocabulary: int,
    log_prob: Tensor,
    cost: Tensor,
    gradient: bool = True,
) -> None:
    """The same in plain torch, on any device."""
    count = len(targets.token)
    place = torch.arange(count, device=logits.device, dtype=targets.starts.dtype)
    row = torch.searchsorted(targets.starts, place, right=True) - 1
    inside = (row >= 0) & (row < len(logits))
    row, token, weight = row[inside], targets.token[inside], targets.weight[inside]
    log_softmax = logits[:, :vocabulary].float().log_softmax(1)
    log_prob[inside] = log_softmax[row, token]
    wanted = -weight * log_prob[inside].masked_fill(weight == 0, 0)
    cost.zero_().index_add_(0, row, wanted)
    if gradient:
        total = weight.new_zeros(len(logits)).index_add_(0, row, weight)
        dense = log_softmax.exp_().mul_(total[:, None])
        dense.index_put_((row, token), -weight, accumulate=True)
        dense[targets.starts.diff() == 0] = 0
        logits[:, :vocabulary] = dense
        logits[:, vocabulary:] = 0


def arrange(
    row: Tensor, token: Tensor, weight: Tensor, rows: int, is_sorted: bool = False
) -> tuple[Targets, Tensor | None]:
    """Sort targets by row if need be, and find those of each row, without waiting for the device.

    Args:
        row: the row of each target [K].
        token: its token [K].
        weight: its weight, in float32 [K].
        rows: the number of rows.
        is_sorted: whether `row` never decreases.

    Returns:
        The targets, and where each stood before [K], unless they were sorted.
    """
    from didlm.kernels import softmax_gradient_triton as fast

    order = None
    if not is_sorted:
        # The fewer bits, the fewer passes of the sort. A row out of range stays so, and its targets
        # belong to none.
        kinds = torch.int16, torch.int32, torch.int64
        narrow = next(x for x in kinds if rows <= torch.iinfo(x).max)
        row, order = row.clamp(-1, rows).to(narrow).sort(stable=True)
        token, weight = token[order], weight[order]
    count, pooled = len(row), torch.empty_like(weight)
    starts = torch.empty(rows + 1, dtype=torch.int32, device=row.device)
    grid = (-(-max(count, rows + 1) // 32),)
    bits = count.bit_length()
    with torch.cuda.device_of(row):
        fast.arrange[grid](
            row, token, weight, starts, pooled, count, rows, bits, SIZE=32, OTHERS=64
        )
    return Targets(starts, token, weight, pooled), order


def times(values: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """Values times one factor on the device, cast to a dtype, in one pass over memory.

    Torch takes more than twice as long where one of the operands is a single number on the device.
    The values must be dense, in whatever order.
    """
    from didlm.kernels import softmax_gradient_triton as fast

    products = torch.empty_like(values, dtype=dtype)
    if values.numel():
        grid = (-(-values.numel() // 4096),)
        with torch.cuda.device_of(values):
            fast.multiply[grid](values, factor, products, values.numel(), SIZE=4096, num_warps=8)
    return products
