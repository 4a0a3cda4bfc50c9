"""The Triton kernel of `adamw`: imported only where it runs."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from didlm.kernels.adamw import Constants, Knobs, Learnt

SIZE, WARPS = 1024, 4  # numbers that a program has, and warps


def step(learnt: Learnt, gradient: Tensor, knobs: Knobs, constants: Constants) -> None:
    """Everything in place."""
    count = learnt.parameter.numel()
    with torch.cuda.device_of(learnt.parameter):
        _adamw[(triton.cdiv(count, SIZE),)](
            learnt.parameter, gradient, learnt.first, learnt.second, learnt.average, learnt.twin,
            knobs.learning_rate, knobs.factor, knobs.step, knobs.take, count,
            constants.beta_1, constants.beta_2, math.log(constants.beta_1 or 1e-300),
            math.log(constants.beta_2 or 1e-300), constants.epsilon, constants.weight_decay,
            constants.average, SIZE, learnt.twin is not None, num_warps=WARPS,
        )  # fmt: skip


@triton.jit
def _adamw(
    parameter,
    gradient,
    first,
    second,
    average,
    twin,
    learning_rate,
    factor,
    step,
    take,
    count,
    beta_1: tl.constexpr,
    beta_2: tl.constexpr,
    log_beta_1: tl.constexpr,
    log_beta_2: tl.constexpr,
    epsilon: tl.constexpr,
    weight_decay: tl.constexpr,
    decay: tl.constexpr,
    SIZE: tl.constexpr,
    TWIN: tl.constexpr,
):
    """Some numbers of one tensor."""
    if tl.load(take) == 0:
        return
    each = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = each < count
    rate = tl.load(learning_rate)
    number = tl.load(step)
    # In float64: at the first steps these are small differences.
    sure_1 = (1 - tl.exp(number.to(tl.float64) * log_beta_1)).to(tl.float32)
    sure_2 = (1 - tl.exp(number.to(tl.float64) * log_beta_2)).to(tl.float32)
    keep = tl.minimum((1 + number) / (10 + number), decay)

    x = tl.load(parameter + each, mask=inside)
    grad = tl.load(gradient + each, mask=inside).to(tl.float32) * tl.load(factor)
    one = tl.load(first + each, mask=inside)
    one += (1 - beta_1) * (grad - one)
    two = beta_2 * tl.load(second + each, mask=inside) + (1 - beta_2) * grad * grad
    x *= 1 - rate * weight_decay
    x -= rate * (one / sure_1) / (tl.sqrt(two / sure_2) + epsilon)
    tl.store(parameter + each, x, mask=inside)
    tl.store(first + each, one, mask=inside)
    tl.store(second + each, two, mask=inside)
    mean = tl.load(average + each, mask=inside)
    tl.store(average + each, mean + (1 - keep) * (x - mean), mask=inside)
    if TWIN:
        tl.store(twin + each, x.to(twin.dtype.element_ty), mask=inside)
