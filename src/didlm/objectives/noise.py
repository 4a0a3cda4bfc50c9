"""How much to delete, and how much that state counts: the draws behind each form of the objectives.

The cost of a text is an integral over time of the cost of its states. Every function here draws one
state to visit, with a weight such that the mean of weight x cost is that integral. Draws speak of
the probability of deletion u = 1 - survival rather than of t: `Schedule.time_at_deleted(u)` is the
time to tell the network, and none of the weights depends on the schedule (Eq. change-of-time).

`length` counts the tokens that can be deleted: those of the text less those given. A caller that
spreads the numbers deleted evenly over a batch passes its own uniformly distributed `count`.
"""

from dataclasses import dataclass, replace

import numpy as np

from didlm.schedule import Schedule

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Noise:
    """One draw: delete `count` tokens, or each with probability `deleted` if count is None."""

    deleted: float
    count: int | None
    weight: float


def integral(schedule: Schedule, rng: np.random.Generator, t: float | None = None) -> Noise:
    """The paper's form: t uniform on (0, 1], tokens deleted independently (Eq. dise).

    Its variance is infinite: near t = 0 a state with something missing has a probability of about
    length * t but a weight of 1/t. Use `exact` and `untouched`.
    """
    t = 1 - rng.random() if t is None else t  # never zero, where the weight is infinite
    return Noise(float(schedule.deleted(t)), None, float(schedule.weight(t)))


def exact(length: int, rng: np.random.Generator, count: int | None = None) -> Noise:
    """The part of DISE where something is deleted: no cut-off, finite variance (Eq. dise-by-count).

    The number deleted is uniform on 1..length, u given it is Beta distributed, the weight is
    length / count. With normalised scores, which cost nothing where nothing is deleted and know no
    time, this alone is the whole bound (Eq. dice-by-count).
    """
    if length < 1:
        raise ValueError("nothing can be deleted from a text without free tokens")
    count = int(rng.integers(1, length + 1)) if count is None else count
    return Noise(float(rng.beta(count, length - count + 1)), count, length / count)


def untouched(length: int, rng: np.random.Generator) -> Noise:
    """The rest of DISE: nothing is deleted, and the rates should vanish (Eq. dise-by-count)."""
    _check(length)
    deleted = float(rng.beta(1, length + 1))
    return Noise(deleted, 0, 1 / ((length + 1) * deleted))


def simple(length: int, rng: np.random.Generator, count: int | None = None) -> Noise:
    """The unweighted form for training: u uniform, every state counting once (Eq. simple)."""
    _check(length)
    count = int(rng.integers(0, length + 1)) if count is None else count
    return Noise(float(rng.beta(count + 1, length - count + 1)), count, 1.0)


def stratified(length: int, draws: int, rng: np.random.Generator) -> list[Noise]:
    """Draws of `exact` whose numbers deleted are spread evenly, and whose mean is their sum."""
    noises = []
    places = (np.arange(draws) + rng.random(draws)) / draws  # before all that depends on the length
    for place in places.tolist() if length else []:
        noise = exact(length, rng, min(1 + int(place * length), length))
        noises.append(replace(noise, weight=noise.weight / draws))
    return noises


def evenly(seed: int, number: int) -> float:
    """A number in [0, 1) for each example: uniform, and consecutive examples spread evenly."""
    # Examples are seeded with pairs: a triple is apart from all of them.
    return float((np.random.default_rng((seed, 0, 2)).random() + number * GOLDEN) % 1.0)


def _check(length: int) -> None:
    if length < 0:
        raise ValueError(f"a text cannot have {length} tokens")
