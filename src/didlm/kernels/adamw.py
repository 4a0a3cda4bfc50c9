"""One step of AdamW for one tensor, its gradient clipped, and its moving average: one pass.

Everything that changes from step to step is on the device, so that a step can be captured in a
graph and need not wait for anything: the learning rate, by what to multiply the gradient, how many
steps have been taken, and whether this one is to be taken at all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from didlm.kernels.here import runs_triton


@dataclass(frozen=True)
class Constants:
    """What is the same in every step."""

    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    average: float  # decay of the moving average


@dataclass(frozen=True, eq=False)
class Knobs:
    """What changes from step to step: tensors of one number each, in float32."""

    learning_rate: Tensor
    factor: Tensor  # of the gradient: below 1 where it is clipped
    step: Tensor  # counted from 1
    take: Tensor  # 0 if the step is to be skipped, else 1

    def keep(self, decay: float) -> Tensor:
        """How much of the moving average stays: less at first, so that the start is forgotten."""
        return ((1 + self.step) / (10 + self.step)).clamp(max=decay)


@dataclass(frozen=True, eq=False)
class Learnt:
    """A parameter and all that changes with it."""

    parameter: Tensor
    first: Tensor  # moment of its gradient
    second: Tensor
    average: Tensor  # the moving one
    twin: Tensor | None = None  # in 16 bits


def adamw_(learnt: Learnt, gradient: Tensor, knobs: Knobs, constants: Constants) -> None:
    """Change a parameter, its moments, its moving average and its twin in place."""
    parameter = learnt.parameter
    tensors = parameter, learnt.first, learnt.second, learnt.average
    dense = all(tensor.is_contiguous() for tensor in tensors)
    if dense and parameter.dtype == torch.float32 and runs_triton(parameter):
        from didlm.kernels import adamw_triton

        adamw_triton.step(learnt, gradient.contiguous(), knobs, constants)
    else:
        adamw_plain_(learnt, gradient, knobs, constants)


def adamw_plain_(learnt: Learnt, gradient: Tensor, knobs: Knobs, constants: Constants) -> None:
    """The same, operation by operation."""
    parameter, first, second = learnt.parameter, learnt.first, learnt.second
    gradient = gradient.to(parameter.dtype) * knobs.factor
    new_first = first.lerp(gradient, 1 - constants.beta_1)
    new_second = constants.beta_2 * second + (1 - constants.beta_2) * gradient.square()
    step = knobs.step.double()
    sure_1, sure_2 = (1 - beta**step for beta in (constants.beta_1, constants.beta_2))
    spread = (new_second / sure_2.to(second.dtype)).sqrt() + constants.epsilon
    change = new_first / sure_1.to(first.dtype) / spread
    new = parameter * (1 - knobs.learning_rate * constants.weight_decay)
    new = new - knobs.learning_rate * change
    take = knobs.take > 0
    for old, other in ((parameter, new), (first, new_first), (second, new_second)):
        old.copy_(torch.where(take, other, old))
    average, keep = learnt.average, knobs.keep(constants.average).to(learnt.average.dtype)
    average.copy_(torch.where(take, average + (1 - keep) * (parameter - average), average))
    if learnt.twin is not None:
        learnt.twin.copy_(parameter)
