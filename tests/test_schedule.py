import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given as forall
from hypothesis import strategies as st

from didlm.schedule import Geometric, LogLinear, Polynomial, cosine_grid, uniform_grid

SCHEDULES = [
    LogLinear(),
    Polynomial(2.0),
    Polynomial(0.5),
    Polynomial(3.7),
    Geometric(),
    Geometric(1e-2, 400.0),
]
EACH = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
times = st.floats(0, 1, allow_subnormal=False)


def precise_survival(schedule, t):
    """Survival with 60 digits, straight from the definition."""
    if isinstance(schedule, LogLinear):
        return 1 - t
    if isinstance(schedule, Polynomial):
        return 1 - t ** mpmath.mpf(schedule.power)
    low, high = mpmath.mpf(schedule.sigma_min), mpmath.mpf(schedule.sigma_max)
    raw = [mpmath.exp(-(low ** (1 - s)) * high**s) for s in (mpmath.mpf(0), t, mpmath.mpf(1))]
    return (raw[1] - raw[2]) / (raw[0] - raw[2])


@EACH
def test_survival_is_exactly_one_at_zero_and_zero_at_one(schedule) -> None:
    assert schedule.survival(0.0) == 1
    assert schedule.survival(1.0) == 0
    assert schedule.deleted(0.0) == 0
    assert schedule.deleted(1.0) == 1
    assert schedule.rate(1.0) == np.inf
    assert schedule.weight(0.0) == np.inf


@EACH
@pytest.mark.parametrize(
    "t", [1e-60, 1e-30, 1e-9, 0.01, 0.37, 0.5, 0.99, 1 - 1e-9, 1 - 2**-50, 1.0]
)
def test_every_quantity_keeps_its_digits_near_both_ends(schedule, t) -> None:
    with mpmath.workdps(400):
        exact = mpmath.mpf(t)
        survival = precise_survival(schedule, exact)
        slope = -mpmath.diff(lambda s: precise_survival(schedule, s), exact)
        assert float(schedule.survival(t)) == pytest.approx(float(survival), rel=1e-12)
        assert float(schedule.deleted(t)) == pytest.approx(float(1 - survival), rel=1e-12)
        # Eq. loss-weight: sigma e^-sigma_bar / (1 - e^-sigma_bar), finite also where sigma is not.
        assert float(schedule.weight(t)) == pytest.approx(float(slope / (1 - survival)), rel=1e-11)
        assert np.isfinite(schedule.weight(t))
        if t < 1:
            assert float(schedule.rate(t)) == pytest.approx(float(slope / survival), rel=1e-11)


@EACH
@forall(t=times)
def test_the_inverses_undo_survival_and_deletion(schedule, t) -> None:
    # Two times with the same survival in float64 cannot be told apart, so compare what comes back.
    deleted, survival = schedule.deleted(t), schedule.survival(t)
    back = schedule.time_at_deleted(deleted)
    assert schedule.deleted(back) == pytest.approx(deleted, rel=1e-9, abs=1e-300)
    back = schedule.time_at_survival(survival)
    assert schedule.survival(back) == pytest.approx(survival, rel=1e-9, abs=1e-15)


@EACH
def test_the_inverses_find_ordinary_times_to_twelve_digits(schedule) -> None:
    t = np.linspace(0.05, 0.9, 18)
    keep = (schedule.deleted(t) < 1 - 1e-4) & (schedule.survival(t) < 1 - 1e-4)
    np.testing.assert_allclose(
        schedule.time_at_deleted(schedule.deleted(t))[keep], t[keep], rtol=1e-11
    )
    np.testing.assert_allclose(
        schedule.time_at_survival(schedule.survival(t))[keep], t[keep], rtol=1e-11
    )
    assert schedule.time_at_deleted(0.0) == schedule.time_at_survival(1.0) == 0
    assert schedule.weight(schedule.time_at_survival(1.0)) == np.inf  # and not at -0.0
    assert schedule.time_at_deleted(1.0) == pytest.approx(1)
    assert schedule.time_at_survival(0.0) == pytest.approx(1)


@EACH
def test_floats_arrays_and_tensors_agree(schedule) -> None:
    t = np.linspace(0.0, 1.0, 9)
    for name in ("survival", "deleted", "rate", "weight", "time_at_deleted", "time_at_survival"):
        function = getattr(schedule, name)
        array, tensor = function(t), function(torch.from_numpy(t))
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-13)
        np.testing.assert_allclose([function(float(x)) for x in t], array, rtol=1e-13)


@EACH
def test_times_outside_zero_and_one_are_refused(schedule) -> None:
    for bad in (-0.1, 1.5, float("nan"), np.array([0.5, 2.0]), torch.tensor([0.5, -1.0])):
        with pytest.raises(ValueError, match="between 0 and 1"):
            schedule.survival(bad)
        with pytest.raises(ValueError, match="between 0 and 1"):
            schedule.time_at_deleted(bad)


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match="power"):
        Polynomial(0.0)
    with pytest.raises(ValueError, match="sigma_min < sigma_max"):
        Geometric(2.0, 1.0)


@pytest.mark.parametrize("grid", [uniform_grid, cosine_grid])
@pytest.mark.parametrize("steps", [1, 2, 7, 1024])
def test_grids_fall_from_one_to_zero(grid, steps) -> None:
    times = grid(steps)
    assert times.shape == (steps + 1,)
    assert times[0] == 1
    assert times[-1] == 0
    assert (np.diff(times) < 0).all()


def test_grids_are_the_papers() -> None:
    i = np.arange(17)
    np.testing.assert_allclose(uniform_grid(16)[::-1], i / 16)
    expected = np.cos(np.pi / 2 * (1 - i / 16))
    np.testing.assert_allclose(cosine_grid(16)[::-1], expected, atol=1e-16)


def test_a_grid_needs_a_step() -> None:
    for steps in (0, -3, 2.5):
        with pytest.raises(ValueError, match=f"at least one: got {steps}"):
            uniform_grid(steps)
