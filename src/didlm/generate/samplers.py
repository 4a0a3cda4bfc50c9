"""Samplers: given the rates of all gaps, which of them fire, and what time it is afterwards.

Each is a small function of one `Moment`. Time is the probability of deletion u, which falls from 1
to 0; for the log-linear schedule it is t itself. Shapes: S sequences, T rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from didlm.generate.limits import earliest, first, largest
from didlm.kernels.here import runs_triton

CAUTION = 1 / 4  # no gap is expected to receive more tokens than this in one adaptive step
# A leap that would bring fewer tokens gives way to a single one. Where limits bind, whole numbers
# are expected, up to rounding, until times as round: whether they reach 2 would be left to chance.
FEW = 2 - 1e-9
PATIENCE = 4  # times of the grid that may pass while a text waits for a single token
END = 1 / 256  # from here a step goes straight to 0: models have hardly seen earlier times


@dataclass(frozen=True, eq=False)
class Moment:
    """What a sampler decides upon; all real numbers in float64."""

    rate: Tensor  # [T] how many tokens each gap still lacks, in expectation; 0 if closed or full
    uniform: Tensor  # [T] a draw for each gap
    sequence: Tensor  # [T]
    offsets: Tensor  # [S + 1] where each sequence starts, and the end
    time: Tensor  # [S]
    target: Tensor  # [S] the next time on the grid; not above the time
    latest: Tensor  # [S] the time until which a token may be waited for; not above the target
    missing: Tensor  # [S] how many tokens the text still lacks; infinite if its length is free
    dispersion: Tensor  # [S] of that number, if its length is free
    flips: Callable[[Tensor, Tensor], Tensor]  # (count [S], chance [S]) -> a binomial draw [S]
    caution: float = CAUTION

    @cached_property
    def arrival(self) -> Tensor:
        """When each gap would fire [T], were its rate to stay; the same draw as `uniform`."""
        return (-torch.log1p(-self.uniform) / self.rate).masked_fill_(self.rate <= 0, torch.inf)

    @cached_property
    def soonest(self) -> Tensor:
        """When the first gap of each text would fire [S]."""
        return -largest(-self.arrival, self.offsets)

    @cached_property
    def expected(self) -> Tensor:
        """How many tokens each text still lacks [S], in expectation."""
        return torch.zeros_like(self.time).index_add_(0, self.sequence, self.rate)


Sampler = Callable[[Moment], tuple[Tensor, Tensor]]  # which gaps fire [T], and the new time [S]


def tau_leaping(moment: Moment) -> tuple[Tensor, Tensor]:
    """The paper's sampler: straight to the next time, at most one token per gap (Eq. tau-leaping).

    Where a gap lacks many tokens the rest is lost: at few steps texts become too short.
    """
    return _leap(moment, _share(moment, moment.target)), moment.target


def adaptive(moment: Moment) -> tuple[Tensor, Tensor]:
    """Leaps no longer than the largest rate allows; where they bring little, one token at a time.

    The former is Eq. adaptive-step, the latter Eq. first-arrival. On CUDA it is a kernel, where
    Triton is there.
    """
    if not runs_triton(moment.rate):
        return adaptive_plain(moment)
    from didlm.generate import samplers_triton

    return samplers_triton.adaptive(
        moment.rate,
        moment.uniform,
        moment.offsets,
        (moment.time, moment.target, moment.latest),
        moment.dispersion,
        moment.caution,
        FEW,
        END,
    )


def adaptive_plain(moment: Moment) -> tuple[Tensor, Tensor]:
    """The same, on any device."""
    ends = (moment.target <= 0) & (moment.time <= END)
    leap = torch.where(ends, moment.target, _reachable(moment, moment.caution))
    share = _share(moment, leap)
    alone = (moment.expected * share < FEW) & (leap > 0)
    wait = torch.where(moment.latest > 0, moment.latest, torch.maximum(leap, moment.time / 2))
    comes = moment.time * (1 - _first_arrival(moment))
    single = _first(moment, comes > wait)
    time = torch.where(alone, torch.maximum(comes, wait), leap)
    return torch.where(alone[moment.sequence], single, _leap(moment, share)), time


def counted(moment: Moment) -> tuple[Tensor, Tensor]:
    """Fixed length: draw how many tokens come, then place them by rate (Eq. counted-leap)."""
    most = torch.where(moment.target > 0, moment.caution, 1.0)
    time = _reachable(moment, most)
    count = moment.flips(moment.missing, _share(moment, time))
    return earliest(moment.arrival, moment.sequence, count), time


def jump_chain(moment: Moment) -> tuple[Tensor, Tensor]:
    """Fixed length: one token at a time, without any approximation (Eq. jump-chain)."""
    one = moment.missing.clamp(max=1)
    time = moment.time * (moment.missing - one) / moment.missing.clamp(min=1)
    return _first(moment, one > 0), time


def one_by_one(moment: Moment) -> tuple[Tensor, Tensor]:
    """One token a call, in proportion to the rates, until no gap expects any; time stands still."""
    expects = moment.expected > 0
    return _first(moment, expects), torch.where(expects, moment.time, 0)


def _leap(moment: Moment, share: Tensor) -> Tensor:
    return moment.uniform < moment.rate * share[moment.sequence]


def _first_arrival(moment: Moment) -> Tensor:
    """The share of the time [S] that passes until a text receives a token (Eq. first-arrival)."""
    uncertainty = (moment.expected * moment.dispersion).clamp(min=1e-9)
    return torch.expm1(moment.soonest * uncertainty) / uncertainty


def _first(moment: Moment, wanted: Tensor) -> Tensor:
    """The gap of each text that would fire first [T], where that is wanted [S]."""
    return first(moment.arrival, moment.soonest, moment.sequence, wanted)


def _share(moment: Moment, time: Tensor) -> Tensor:
    """The chance [S] that a token missing now has come at the new time."""
    return (1 - time / moment.time).masked_fill_(moment.time <= 0, 0)


def _reachable(moment: Moment, most: Tensor | float) -> Tensor:
    """The next time on the grid, or as far as no gap expects more than `most` tokens [S]."""
    rate = largest(moment.rate, moment.offsets).clamp(min=0)
    return torch.maximum(moment.target, moment.time * (1 - (most / rate).clamp(max=1)))


SAMPLERS: dict[str, Sampler] = {
    "adaptive": adaptive,
    "tau-leaping": tau_leaping,
    "counted": counted,
    "jump-chain": jump_chain,
}
