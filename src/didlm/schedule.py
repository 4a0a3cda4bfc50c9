"""Noise schedules: how likely a token is to have survived until time t, and the grids to walk back.

Every schedule here has survival exactly 1 at t = 0 and exactly 0 at t = 1, so the bounds need no
terms for the ends. Time runs over [0, 1]; arguments may be floats, numpy arrays or torch tensors,
and the answer is of the same kind.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch

Real = TypeVar("Real", float, np.ndarray, torch.Tensor)


class Schedule(ABC):
    """A noise schedule, fixed by its survival probability (Eq. survival)."""

    @abstractmethod
    def survival(self, t: Real) -> Real:
        """Probability that a token is still there at time t (Eq. survival)."""

    @abstractmethod
    def deleted(self, t: Real) -> Real:
        """One minus survival, with full relative accuracy near t = 0."""

    @abstractmethod
    def rate(self, t: Real) -> Real:
        """Rate sigma(t) at which a token disappears (Eq. survival); infinite at t = 1."""

    @abstractmethod
    def weight(self, t: Real) -> Real:
        """Weight of the loss and scale of the insertion rates (Eq. loss-weight); infinite at 0.

        Computed in a closed form without the 0 * infinity of the naive product at t = 1.
        """

    @abstractmethod
    def time_at_deleted(self, deleted: Real) -> Real:
        """The inverse of `deleted`: use it near t = 0, where survival has lost its digits."""

    @abstractmethod
    def time_at_survival(self, survival: Real) -> Real:
        """The inverse of `survival`: use it near t = 1."""


@dataclass(frozen=True)
class LogLinear(Schedule):
    """Survival 1 - t, the paper's schedule: a token is equally likely to go at any moment."""

    def survival(self, t: Real) -> Real:
        """1 - t."""
        return 1 - _unit(t, "t")

    def deleted(self, t: Real) -> Real:
        """The time itself."""
        return _unit(t, "t")

    def rate(self, t: Real) -> Real:
        """1 / (1 - t)."""
        return _quotient(1.0, 1 - _unit(t, "t"))

    def weight(self, t: Real) -> Real:
        """1 / t."""
        return _quotient(1.0, _unit(t, "t"))

    def time_at_deleted(self, deleted: Real) -> Real:
        """The probability itself."""
        return _unit(deleted, "the probability of deletion")

    def time_at_survival(self, survival: Real) -> Real:
        """1 - survival."""
        return 1 - _unit(survival, "survival")


@dataclass(frozen=True)
class Polynomial(Schedule):
    """Survival 1 - t^power: above 1 the early deletions are slower, below 1 faster."""

    power: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.power < float("inf"):
            raise ValueError(f"the power of a polynomial schedule must be positive: {self.power}")

    def survival(self, t: Real) -> Real:
        """1 - t^power, without cancellation near t = 1."""
        t = _unit(t, "t")
        return abs(_math(t).expm1(self.power * _log(t)))

    def deleted(self, t: Real) -> Real:
        """t^power."""
        return _unit(t, "t") ** self.power

    def rate(self, t: Real) -> Real:
        """power t^(power - 1) / (1 - t^power)."""
        survival = self.survival(t)
        with np.errstate(divide="ignore"):
            return _quotient(self.power * _unit(t, "t") ** (self.power - 1), survival)

    def weight(self, t: Real) -> Real:
        """Power / t."""
        return _quotient(self.power, _unit(t, "t"))

    def time_at_deleted(self, deleted: Real) -> Real:
        """deleted^(1 / power)."""
        return _unit(deleted, "the probability of deletion") ** (1 / self.power)

    def time_at_survival(self, survival: Real) -> Real:
        """(1 - survival)^(1 / power)."""
        survival = _unit(survival, "survival")
        return _math(survival).exp(_log1p(-survival) / self.power)


@dataclass(frozen=True)
class Geometric(Schedule):
    """Integrated rate sigma_min^(1 - t) sigma_max^t, with its ends pinned (Eq. pinned-geometric).

    The schedule as usually written keeps a token at t = 1 with probability e^-sigma_max and has
    already lost one at t = 0 with probability 1 - e^-sigma_min. Stretching the survival between
    these two values to [0, 1] removes both defects and leaves its shape alone.
    """

    sigma_min: float = 1e-3
    sigma_max: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.sigma_min < self.sigma_max < float("inf"):
            raise ValueError(
                "a geometric schedule needs 0 < sigma_min < sigma_max: "
                f"got {self.sigma_min} and {self.sigma_max}"
            )

    @property
    def _log_ratio(self) -> float:
        return float(np.log(self.sigma_max / self.sigma_min))

    @property
    def _total(self) -> float:
        return self.sigma_max - self.sigma_min

    def _since_start(self, t: Real) -> Real:
        return self.sigma_min * _math(t).expm1(t * self._log_ratio)

    def _until_end(self, t: Real) -> Real:
        return abs(self.sigma_max * _math(t).expm1((t - 1) * self._log_ratio))

    def _slope(self, t: Real) -> Real:
        return self.sigma_max * self._log_ratio * _math(t).exp((t - 1) * self._log_ratio)

    def survival(self, t: Real) -> Real:
        """The pinned survival, accurate near both ends."""
        t, xp = _unit(t, "t"), _math(t)
        left = xp.expm1(-self._until_end(t)) / np.expm1(-self._total)
        return xp.exp(-self._since_start(t)) * left

    def deleted(self, t: Real) -> Real:
        """One minus the pinned survival."""
        t = _unit(t, "t")
        return _math(t).expm1(-self._since_start(t)) / np.expm1(-self._total)

    def rate(self, t: Real) -> Real:
        """The slope of the integrated rate over 1 - e^(-what remains of it)."""
        t = _unit(t, "t")
        return _quotient(self._slope(t), -_math(t).expm1(-self._until_end(t)))

    def weight(self, t: Real) -> Real:
        """The slope of the integrated rate over e^(what has passed of it) - 1."""
        t = _unit(t, "t")
        return _quotient(self._slope(t), _math(t).expm1(self._since_start(t)))

    def time_at_deleted(self, deleted: Real) -> Real:
        """Solve for the integrated rate, then for its logarithm."""
        deleted = _unit(deleted, "the probability of deletion")
        return self._time(-_log1p(deleted * np.expm1(-self._total)))

    def time_at_survival(self, survival: Real) -> Real:
        """Solve for the integrated rate, then for its logarithm."""
        survival = _unit(survival, "survival")
        remaining = np.exp(-self._total) - survival * np.expm1(-self._total)
        return self._time(-_math(survival).log(remaining))

    def _time(self, since_start: Real) -> Real:
        time = _math(since_start).log1p(since_start / self.sigma_min) / self._log_ratio
        return time.clip(0, 1) + 0.0  # not -0.0, at which the weight would be -infinite


SCHEDULES = {"log-linear": LogLinear(), "polynomial": Polynomial(), "geometric": Geometric()}


def uniform_grid(steps: int) -> np.ndarray:
    """Times 1 = t_N > ... > t_0 = 0, equally far apart (Eq. time-grids)."""
    return np.arange(_positive(steps), -1, -1) / steps


def cosine_grid(steps: int) -> np.ndarray:
    """Times t_i = cos(pi/2 (1 - i/N)) from 1 to 0, denser near 1 (Eq. time-grids)."""
    # The sine is the same function, and exact at both ends.
    return np.sin(np.pi / 2 * uniform_grid(steps))


def _positive(steps: int) -> int:
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"a time grid needs a whole number of steps, at least one: got {steps}")
    return int(steps)


def _math(value: Any) -> ModuleType:
    return torch if isinstance(value, torch.Tensor) else np


def _unit(value: Real, name: str) -> Real:
    """The value as something that divides by zero like IEEE does, checked to lie in [0, 1]."""
    if isinstance(value, torch.Tensor):
        # On an accelerator the check would stall the device.
        outside = value.device.type == "cpu" and not bool(((value >= 0) & (value <= 1)).all())
    else:
        value = np.float64(value) if np.ndim(value) == 0 else np.asarray(value)  # type: ignore[assignment]
        outside = not np.all((value >= 0) & (value <= 1))
    if outside:
        raise ValueError(f"{name} must lie between 0 and 1: got {value}")
    return value


def _quotient(numerator: Any, denominator: Real) -> Real:
    with np.errstate(divide="ignore"):
        return numerator / denominator


def _log(value: Real) -> Real:
    with np.errstate(divide="ignore"):
        return _math(value).log(value)


def _log1p(value: Real) -> Real:
    with np.errstate(divide="ignore"):
        return _math(value).log1p(value)
