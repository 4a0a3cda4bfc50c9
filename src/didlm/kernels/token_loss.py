"""The token loss of every method: sparse soft targets against softmax(hidden @ weight.T).

    loss = - sum_k target[k] log p(token[k] | row[k])

Rows x vocabulary is by far the largest array of a training step: 8,192 rows of 50,304 logits are
1.6 GB in float32, and ordinary autograd (`token_loss_plain`) holds several of that size at once.
`token_loss` goes through the rows in chunks instead. The gradient with respect to the logits of a
row is (sum of its targets) * softmax - targets, so each chunk turns its logits into that gradient
where they stand, multiplies it into the gradients of `hidden` and `weight`, and forgets it. On a
GPU in 16 bits one kernel does that (`softmax_gradient`), elsewhere torch's operations.

Shapes: R rows, D width, P vocabulary with its padding, K targets, C rows of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from didlm.kernels.here import NARROW, has_triton
from didlm.kernels.softmax_gradient import arrange, softmax_gradient_, times
from didlm.kernels.twins import in_16_bits

# At 8,192 rows, a vocabulary of 50,304 and width 768 in float32, the logits of a chunk then take
# 206 MB and the two gradients 180 MB: less than 450 MB in all, and matrix products of a good size.
CHUNK = 1024
# With the kernel there are only logits in 16 bits. Larger chunks are faster, since each one passes
# over the whole gradient of the head; a chunk's logits take about this many bytes at most.
LOGITS = 400 * 2**20


def token_loss(
    hidden: Tensor,
    weight: Tensor,
    row: Tensor,
    token: Tensor,
    target: Tensor,
    vocabulary: int,
    scale: float | Tensor = 1.0,
    chunk: int | None = None,
    is_sorted: bool = False,
    promised: bool = False,
) -> tuple[Tensor, Tensor]:
    """The token loss, with rows x vocabulary never held; the gradients are made along with it.

    The logits are computed in the dtype of the inputs, or that of autocast; the softmax and all
    sums over it in float32, or in float64 if the inputs are.

    The gradients exist before `backward` tells how large they will be, so `backward` can only
    multiply what has been rounded already. In float16 that may be nothing: a gradient below 6e-8
    is rounded to zero, and a loss scale that comes later multiplies zero. Training with a
    `GradScaler` therefore passes `scale=scaler.get_scale()`. The gradients are multiplied by it
    before they are cast to 16 bits, and `backward` divides it out of the gradient it is handed,
    which is where `scaler.scale(loss)` has put it: the two cancel. The loss is not scaled.

    Args:
        hidden: states of the rows, padding rows without targets included [R, D].
        weight: the head [P, D]; its rows from `vocabulary` on are padding, of no probability.
        row: the row of each target [K].
        token: its token, below `vocabulary` [K].
        target: how much its log-probability counts; zero costs nothing even if that is -inf [K].
        vocabulary: the number of tokens.
        scale: the loss scale of float16 training, a number or a tensor of one.
        chunk: rows worked on at a time; if not given, as many as are fast in little memory.
        is_sorted: whether `row` never decreases, which spares a GPU sorting it.
        promised: whether `backward` will be handed exactly `scale`, so that it need not multiply.

    Returns:
        The loss, and log p(token | row) of each target without gradient [K].

    Raises:
        ValueError: if shapes or dtypes do not fit, or, on the CPU, a row or token is out of range.
    """
    if torch.compiler.is_compiling():
        # A compiler would unroll the loop over chunks, anew for every number of rows.
        eager = torch.compiler.disable(token_loss)
        rest = vocabulary, scale, chunk, is_sorted, promised
        return eager(hidden, weight, row, token, target, *rest)
    _check(hidden, weight, row, token, target, vocabulary, scale, chunk)
    dtype = _matmul_dtype(hidden, weight)
    scale = torch.as_tensor(scale).detach().reshape(())
    recording = torch.is_grad_enabled()
    needed = recording and hidden.requires_grad, recording and weight.requires_grad
    # Autocast has had its say in `dtype`.
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        inputs = hidden.to(dtype), in_16_bits(weight, dtype), row, token, target, vocabulary, scale
        if _is_fused(hidden, dtype):
            loss, log_prob, *gradients = _in_chunks_fused(*inputs, chunk, needed, is_sorted)
        else:
            loss, log_prob, *gradients = _in_chunks(*inputs, chunk or CHUNK, needed)
            leaves = hidden, weight
            gradients = [x.to(like.dtype) for x, like in zip(gradients, leaves, strict=True)]
    if any(needed):
        loss = _WithGradients.apply(hidden, weight, loss, scale, promised, *gradients)  # type: ignore[no-untyped-call]
    return loss, log_prob


def token_loss_plain(
    hidden: Tensor,
    weight: Tensor,
    row: Tensor,
    token: Tensor,
    target: Tensor,
    vocabulary: int,
    scale: float | Tensor = 1.0,
    chunk: int | None = None,
    is_sorted: bool = False,
    promised: bool = False,
) -> tuple[Tensor, Tensor]:
    """The same by ordinary autograd, all logits at once; the options change nothing."""
    _check(hidden, weight, row, token, target, vocabulary, scale, chunk)
    dtype = _matmul_dtype(hidden, weight)
    logits = (hidden.to(dtype) @ weight.to(dtype).T).to(_precision(dtype))  # [R, P]
    log_prob = logits[:, :vocabulary].log_softmax(1)[row.long(), token.long()]
    return _cost(target, log_prob), log_prob.detach()


def _in_chunks(
    hidden: Tensor,
    weight: Tensor,
    row: Tensor,
    token: Tensor,
    target: Tensor,
    vocabulary: int,
    scale: Tensor,
    chunk: int,
    needed: tuple[bool, bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, log-probabilities [K] and the gradients times `scale`; empty if not needed.

    The gradient of `hidden` has its dtype. That of `weight` is a sum over the chunks and stays in
    float32 for 16-bit inputs: summed in 16 bits, it would lose digits with every further chunk.
    """
    precision = _precision(hidden.dtype)
    row, token, target = row.long(), token.long(), target.detach().to(precision)
    log_prob = torch.zeros_like(target)
    scaled = target * scale
    row_total = scaled.new_zeros(len(hidden)).index_add_(0, row, scaled)  # [R]
    hidden_grad = torch.empty_like(hidden if needed[0] else hidden[:0])
    weight_grad = torch.zeros_like(weight if needed[1] else weight[:0], dtype=precision)

    for start in range(0, len(hidden), chunk):
        states = hidden[start : start + chunk]  # [C, D]
        # Which targets lie in this chunk is known only on the device. So as not to wait for it, all
        # K take part; those of other rows land anywhere in the chunk, and count nothing there.
        inside = (row >= start) & (row < start + len(states))
        local = (row - start).remainder(len(states))

        logits = (states @ weight.T).to(precision)  # [C, P]
        logits[:, vocabulary:] = -torch.inf
        logits.sub_(logits.amax(1, keepdim=True))
        chosen = logits[local, token]
        total = logits.exp_().sum(1)
        log_prob = torch.where(inside, chosen - total.log()[local], log_prob)
        if any(needed):
            logits.mul_((row_total[start : start + chunk] / total)[:, None])
            place = local * logits.shape[1] + token
            logits.view(-1).scatter_add_(0, place, torch.where(inside, -scaled, 0))
            gradient = logits.to(hidden.dtype)
            if needed[0]:
                hidden_grad[start : start + chunk] = gradient @ weight
            if needed[1]:
                _add_product_(weight_grad, logits, gradient, states)
            del gradient
        del logits  # before the next chunk's are made, or there would be two

    return _cost(target, log_prob), log_prob, hidden_grad, weight_grad


def _in_chunks_fused(
    hidden: Tensor,
    weight: Tensor,
    row: Tensor,
    token: Tensor,
    target: Tensor,
    vocabulary: int,
    scale: Tensor,
    chunk: int | None,
    needed: tuple[bool, bool],
    is_sorted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in 16 bits on a GPU: three matrix products and one kernel for each chunk."""
    rows, chunk = len(hidden), chunk or _fused_chunk(len(hidden), len(weight))
    target = target.detach().float()
    # A number on the host can be looked at.
    is_scaled = scale.device.type != "cpu" or float(scale) != 1
    scaled = target * scale if is_scaled else target
    targets, order = arrange(row, token, scaled, rows, is_sorted)
    log_prob = torch.full_like(target, torch.nan)  # it stays so where a row is out of range
    cost = torch.empty(rows, dtype=torch.float32, device=hidden.device)
    hidden_grad = torch.empty_like(hidden if needed[0] else hidden[:0])
    weight_grad = torch.empty_like(weight if needed[1] else weight[:0], dtype=torch.float32)
    if not rows:
        weight_grad.zero_()

    for start in range(0, rows, chunk):
        states = hidden[start : start + chunk]  # [C, D]
        logits = states @ weight.T  # [C, P]
        of_rows = targets.of_rows(start, start + len(states))
        costs = cost[start : start + chunk]
        softmax_gradient_(logits, of_rows, vocabulary, log_prob, costs, any(needed))
        if needed[0]:
            torch.mm(logits, weight, out=hidden_grad[start : start + chunk])
        if needed[1]:
            # The tensor cores multiply in 16 bits and add in float32; the first chunk only writes.
            torch.addmm(
                weight_grad,
                logits.T,
                states,
                beta=1 if start else 0,
                out_dtype=torch.float32,
                out=weight_grad,
            )
        del logits  # before the next chunk's are made, or there would be two

    loss = cost.sum() / scale if is_scaled else cost.sum()
    if order is not None:
        log_prob = torch.empty_like(log_prob).index_copy_(0, order, log_prob)
    return loss, log_prob, hidden_grad, weight_grad


def _is_fused(hidden: Tensor, dtype: torch.dtype) -> bool:
    return hidden.is_cuda and dtype in NARROW and has_triton()


def _fused_chunk(rows: int, padded: int) -> int:
    """Rows of a chunk: as few chunks as `LOGITS` allows, as equal as tiles of 128 rows allow."""
    most = max(LOGITS // (2 * padded), 1)
    chunks = max(-(-rows // most), 1)
    return max(-(-rows // (128 * chunks)), 1) * 128


def _add_product_(weight_grad: Tensor, logits: Tensor, gradient: Tensor, states: Tensor) -> None:
    """Add gradient.T @ states in place; `gradient` is `logits` in the dtype of `states`."""
    if states.dtype != weight_grad.dtype and states.is_cuda:
        # The tensor cores multiply in 16 bits and add in float32.
        torch.addmm(weight_grad, gradient.T, states, out_dtype=weight_grad.dtype, out=weight_grad)
    else:
        weight_grad.addmm_(logits.T, states.to(weight_grad.dtype))


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are known, already multiplied by `scale`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        loss: Tensor,
        scale: Tensor,
        promised: bool,
        hidden_grad: Tensor,
        weight_grad: Tensor,
    ) -> Tensor:
        ctx.promised = promised
        ctx.save_for_backward(scale, hidden_grad, weight_grad)
        ctx.dtypes = hidden.dtype, weight.dtype
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, *gradients = ctx.saved_tensors
        if ctx.promised:
            gradients = [x.to(dtype) for x, dtype in zip(gradients, ctx.dtypes, strict=True)]
        else:
            gradients = _multiplied(gradients, loss_grad / scale, ctx.dtypes)
        hidden_grad, weight_grad = (
            gradient if need else None
            for gradient, need in zip(gradients, ctx.needs_input_grad[:2], strict=True)
        )
        return hidden_grad, weight_grad, None, None, None, None, None


def _multiplied(
    gradients: list[Tensor], factor: Tensor, dtypes: tuple[torch.dtype, ...]
) -> list[Tensor]:
    if factor.is_cuda and factor.dtype == torch.float32 and has_triton():
        return [times(x, factor, dtype) for x, dtype in zip(gradients, dtypes, strict=True)]
    # Elsewhere than on the CPU, asking would be waiting.
    if factor.device.type != "cpu" or factor != 1:
        return [gradient * factor for gradient in gradients]
    return gradients


def _cost(target: Tensor, log_prob: Tensor) -> Tensor:
    """- sum target * log_prob, in which nothing times minus infinity is nothing."""
    target = target.detach().to(log_prob.dtype)
    return -(target * log_prob.masked_fill(target == 0, 0)).sum()


def _precision(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _matmul_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype in which a linear layer would multiply these two."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    if hidden.dtype != weight.dtype or not hidden.is_floating_point():
        raise ValueError(
            "hidden and weight must be floating-point numbers of one dtype, or under autocast: "
            f"got {hidden.dtype} and {weight.dtype}"
        )
    return hidden.dtype


def _check(
    hidden: Tensor,
    weight: Tensor,
    row: Tensor,
    token: Tensor,
    target: Tensor,
    vocabulary: int,
    scale: float | Tensor,
    chunk: int | None,
) -> None:
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            "hidden [R, D] and weight [P, D] must be two tables of one width: "
            f"got shapes {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if not 1 <= vocabulary <= len(weight):
        raise ValueError(f"the head has {len(weight)} rows: no vocabulary of {vocabulary} tokens")
    if row.ndim != 1 or row.shape != token.shape or row.shape != target.shape:
        raise ValueError(
            "row, token and target must be one-dimensional and equally long: "
            f"got shapes {tuple(row.shape)}, {tuple(token.shape)} and {tuple(target.shape)}"
        )
    if chunk is not None and chunk < 1:
        raise ValueError(f"a chunk must have at least one row: got {chunk}")
    if isinstance(scale, Tensor) and scale.numel() != 1:
        raise ValueError(f"scale must be one number: got shape {tuple(scale.shape)}")
    for name, index, size in (("row", row, len(hidden)), ("token", token, vocabulary)):
        if index.is_floating_point() or index.dtype == torch.bool:
            raise ValueError(f"{name} must be integers: got {index.dtype}")
        # On another device, reading the values would mean waiting for it.
        if index.device.type == "cpu" and bool(((index < 0) | (index >= size)).any()):
            at = int(((index < 0) | (index >= size)).nonzero()[0])
            raise ValueError(
                f"{name} has {int(index[at])} at position {at}: "
                f"it must be at least 0 and below {size}"
            )
