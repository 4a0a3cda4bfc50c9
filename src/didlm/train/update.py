"""From gradients to new weights on a GPU, in a form that waits for nothing.

What torch's optimisers do (`make_optimisers`, whose state this uses and changes, so that
checkpoints are the same), with clipping and the moving average. A step whose loss or gradient is
not finite is skipped on the device, and counted there.
"""

from collections import defaultdict

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from didlm.kernels.adamw import Constants, Knobs, Learnt, adamw_
from didlm.kernels.twins import confirm_twin, give_twin
from didlm.train.optimiser import MovingAverage
from didlm.train.settings import Settings

WITH_TWINS = ("_in.weight", "_out.weight", "token_head")  # that are multiplied in 16 bits
SMALL = 2**16  # numbers of a tensor that is not worth a kernel of its own


class Update:
    """Changes weights, moments and averages by the gradients that are there."""

    def __init__(
        self,
        network: torch.nn.Module,
        average: MovingAverage,
        optimisers: list[torch.optim.Optimizer],
        settings: Settings,
    ) -> None:
        self._clip, self._optimisers = settings.clip, optimisers
        pairs = zip(network.parameters(), average.network.parameters(), strict=True)
        self._average_of: dict[Tensor, Tensor] = dict(pairs)
        self._twin_of: dict[Tensor, Tensor] = {}
        if next(network.parameters()).is_cuda and settings.precision == "bf16":
            self._twin_of = {
                parameter: give_twin(parameter, torch.bfloat16)
                for name, parameter in network.named_parameters()
                if name.endswith(WITH_TWINS) and parameter.requires_grad
            }
        self._constants = Constants(
            settings.beta_1,
            settings.beta_2,
            settings.epsilon,
            settings.weight_decay,
            settings.average,
        )
        device = next(network.parameters()).device
        self._learning_rate, self._step, self._skipped, self._bad = torch.zeros(4, device=device)
        self.report = torch.zeros(4, device=device)  # loss, gradient norm, skipped, bad in a row
        for optimiser in optimisers:
            for parameter in _parameters(optimiser):
                _begin(optimiser, parameter)

    @torch.no_grad()
    def restart(self, skipped: int, bad: int) -> None:
        """Weights have come from elsewhere, and so many steps been skipped, the last ones too."""
        for parameter, twin in self._twin_of.items():
            twin.copy_(parameter)
            confirm_twin(parameter)
        self._skipped.fill_(skipped)
        self._bad.fill_(bad)

    def prepare(self, learning_rate: float, step: int) -> None:
        """What the next step has to know, of which `step` others came before."""
        self._learning_rate.fill_(learning_rate)
        self._step.fill_(step + 1)

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Take a step, or skip it; `report` then tells what came of it."""
        of_optimisers = [
            [parameter for parameter in _parameters(optimiser) if parameter.grad is not None]
            for optimiser in self._optimisers
        ]
        gradients = [p.grad for some in of_optimisers for p in some if p.grad is not None]
        norm = get_total_norm(gradients, foreach=True)
        take = (loss + norm).isfinite().float()
        self._skipped += 1 - take
        self._bad.copy_((1 - take) * (self._bad + 1))
        knobs = Knobs(
            self._learning_rate,
            (self._clip / (norm + 1e-6)).clamp(max=1),
            self._step - self._skipped,
            take,
        )
        for optimiser, some in zip(self._optimisers, of_optimisers, strict=True):
            if isinstance(optimiser, torch.optim.Muon):
                self._orthogonal(optimiser, some, knobs)
            else:
                self._adaptive(optimiser, some, knobs)
        for parameter in self._twin_of:
            confirm_twin(parameter)
        self.report.copy_(torch.stack([loss, norm, self._skipped, self._bad]))

    def settle(self, taken: int) -> None:
        """Write down in the optimisers how many steps they have taken, for a checkpoint."""
        for optimiser in self._optimisers:
            for parameter in _parameters(optimiser):
                if "step" in optimiser.state[parameter]:
                    optimiser.state[parameter]["step"].fill_(taken)

    def _adaptive(
        self, optimiser: torch.optim.Optimizer, parameters: list[Tensor], knobs: Knobs
    ) -> None:
        small = [p for p in parameters if _is_small(p)]
        if small:
            self._adaptive_together(optimiser, small, knobs)
        for parameter in parameters:
            if _is_small(parameter):
                continue
            state = optimiser.state[parameter]
            learnt = Learnt(
                parameter,
                state["exp_avg"],
                state["exp_avg_sq"],
                self._average_of[parameter],
                self._twin_of.get(parameter),
            )
            assert parameter.grad is not None
            adamw_(learnt, parameter.grad, knobs, self._constants)

    def _adaptive_together(
        self, optimiser: torch.optim.Optimizer, parameters: list[Tensor], knobs: Knobs
    ) -> None:
        """The same by torch's kernel for many tensors: one by one, a kernel has little to do."""
        states = [optimiser.state[p] for p in parameters]
        torch._fused_adamw_(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [knobs.step] * len(parameters),
            lr=knobs.learning_rate,
            beta1=self._constants.beta_1,
            beta2=self._constants.beta_2,
            weight_decay=self._constants.weight_decay,
            eps=self._constants.epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=1 / knobs.factor,
            found_inf=1 - knobs.take,
        )
        self._follow(parameters, knobs)

    def _follow(self, parameters: list[Tensor], knobs: Knobs) -> None:
        """Averages and twins of parameters that have changed."""
        averages = [self._average_of[p] for p in parameters]
        steps = torch._foreach_sub(parameters, averages)
        torch._foreach_mul_(steps, (1 - knobs.keep(self._constants.average)) * knobs.take)
        torch._foreach_add_(averages, steps)
        with_twin = [p for p in parameters if p in self._twin_of]
        if with_twin:
            torch._foreach_copy_([self._twin_of[p] for p in with_twin], with_twin)

    def _orthogonal(
        self, optimiser: torch.optim.Optimizer, parameters: list[Tensor], knobs: Knobs
    ) -> None:
        """Matrices of one shape together: one at a time they are too small for a GPU."""
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            alike[parameter.shape].append(parameter)
        (group,) = optimiser.param_groups
        for some in alike.values():
            momenta = [optimiser.state[p]["momentum_buffer"] for p in some]
            # Zeros in the place of what is not a number: it must not reach the momenta.
            gradient = torch.stack([p.grad for p in some if p.grad is not None]) * knobs.factor
            gradient = torch.where(knobs.take > 0, gradient, 0)
            old = torch.stack(momenta)
            momentum = torch.where(knobs.take > 0, old.lerp(gradient, 1 - group["momentum"]), old)
            torch._foreach_copy_(momenta, list(momentum.unbind()))
            wanted = gradient.lerp(momentum, group["momentum"])
            rate = knobs.learning_rate * knobs.take
            # As large as what AdamW would do.
            size = 0.2 * max(some[0].shape) ** 0.5
            change = orthogonal(wanted, group["ns_coefficients"], group["ns_steps"], group["eps"])
            torch._foreach_mul_(some, 1 - rate * group["weight_decay"])
            torch._foreach_sub_(some, list((change * (size * rate)).unbind()))
            self._follow(some, knobs)


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, epsilon: float
) -> Tensor:
    """The nearest orthogonal matrices [N, A, B], roughly, by the iteration that Muon uses."""
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16()
    x = x.transpose(1, 2) if tall else x
    x = x / x.flatten(1).norm(dim=1).clamp(min=epsilon)[:, None, None]
    for _ in range(steps):
        products = x @ x.transpose(1, 2)
        x = torch.baddbmm(
            x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a
        )
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)


def _is_small(parameter: Tensor) -> bool:
    return parameter.is_cuda and parameter.numel() <= SMALL


def _parameters(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def _begin(optimiser: torch.optim.Optimizer, parameter: Tensor) -> None:
    """The state of a parameter as torch's optimisers begin it."""
    state = optimiser.state[parameter]
    if state:
        return
    if isinstance(optimiser, torch.optim.Muon):
        state["momentum_buffer"] = torch.zeros_like(parameter)
    else:
        state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg_sq"] = torch.zeros_like(parameter)
