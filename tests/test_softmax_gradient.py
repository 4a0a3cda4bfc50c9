"""The fast twin runs on a GPU; or anywhere, slowly, with Triton and TRITON_INTERPRET=1."""

import os

import pytest
import torch
from torch import Tensor

from didlm.kernels import softmax_gradient as module
from didlm.kernels.here import has_triton
from didlm.kernels.softmax_gradient import (
    Targets,
    arrange,
    softmax_gradient_,
    softmax_gradient_plain_,
    times,
)

# The interpreter counts with numpy, which warns of infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and has_triton()
DEVICE = "cuda" if CUDA else "cpu"
FAST = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CUDA and not INTERPRETED, reason="there is no CUDA device"),
]
TWINS = pytest.mark.parametrize(
    "twin", [pytest.param(softmax_gradient_, marks=FAST), softmax_gradient_plain_]
)
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def fast(function):
    for mark in FAST:
        function = mark(function)
    return function


def targets_of(row: Tensor, token: Tensor, weight: Tensor, rows: int) -> Targets:
    """Targets sorted and pooled by the definition."""
    order = row.sort(stable=True).indices
    row, token, weight = row[order], token[order], weight[order]
    same = (row[:, None] == row) & (token[:, None] == token)
    starts = torch.searchsorted(row, torch.arange(rows + 1), out_int32=True)
    return Targets(starts, token, weight, (same * weight).sum(1))


def move(targets: Targets, device: str = DEVICE) -> Targets:
    return Targets(*(x.to(device) for x in vars(targets).values()))


def truth(logits: Tensor, row: Tensor, targets: Targets, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Gradient and log-probabilities in float64."""
    log_softmax = logits[:, :vocabulary].double().log_softmax(1)
    gradient = torch.zeros_like(logits, dtype=torch.float64)
    gradient.index_put_((row, targets.token), targets.weight.double(), accumulate=True)
    gradient[:, :vocabulary] -= log_softmax.exp() * gradient.sum(1, keepdim=True)
    return -gradient, log_softmax[row, targets.token]


def draw(seed: int, dtype: torch.dtype, rows: int, count: int, vocabulary: int, padded: int):
    """Logits, and targets that leave out the third row and repeat themselves."""
    generator = torch.Generator().manual_seed(seed)
    logits = (4 * torch.randn(rows, padded, generator=generator)).to(dtype)
    logits[:, vocabulary:] = 1e4  # that padding would win
    row = torch.randint(0, max(rows, 1), (count,), generator=generator)
    row[row == 2] = 0
    row = row.sort().values
    token = torch.randint(0, vocabulary, (count,), generator=generator)
    weight = torch.rand(count, generator=generator)
    weight[::5] = 0
    return logits, row, targets_of(row, token, weight, rows)


SHAPES = pytest.mark.parametrize(
    ("rows", "count", "vocabulary", "padded"),
    [
        (9, 60, 200, 256),
        (5, 40, 61, 61),
        (6, 7, 33, 40),
        (1, 1, 16, 16),
        (1, 200, 3, 1000),  # many targets, most of them the same
        (4, 300, 250, 256),
        (3, 0, 33, 40),
        (0, 0, 33, 40),
        (3, 5, 1, 8),
    ],
)


@TWINS
@DTYPES
@SHAPES
def test_both_twins_round_the_truth_once(
    twin, dtype, rows, count, vocabulary, padded, monkeypatch
) -> None:
    monkeypatch.setattr(module, "LANES", 16)  # several turns, at these sizes
    logits, row, targets = draw(0, dtype, rows, count, vocabulary, padded)
    gradient, expected = truth(logits, row, targets, vocabulary)
    values, log_prob = logits.to(DEVICE, copy=True), torch.full((count,), torch.nan, device=DEVICE)
    cost = torch.full((rows,), torch.nan, device=DEVICE)
    twin(values, move(targets), vocabulary, log_prob, cost)
    costs = torch.zeros(rows, dtype=torch.float64)
    costs.index_add_(0, row, -targets.weight.double() * expected)
    torch.testing.assert_close(cost.cpu(), costs.float(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(log_prob.cpu(), expected.float(), atol=1e-5, rtol=1e-6)
    # Half a unit in the last place, of which float32 takes a little.
    unit = torch.finfo(dtype).eps / 2 * 1.01
    if not CUDA and dtype == torch.bfloat16:
        unit *= 2  # the interpreter cuts digits off instead of rounding
    torch.testing.assert_close(values.cpu().double(), gradient, atol=2e-6, rtol=unit)
    assert (values[:, vocabulary:] == 0).all()
    if rows > 2:
        assert (values[2] == 0).all()


@fast
@DTYPES
def test_the_fast_twin_is_no_less_exact(dtype) -> None:
    if not CUDA and dtype == torch.bfloat16:
        pytest.skip("the interpreter does not round to bfloat16")
    errors = []
    for twin in (softmax_gradient_, softmax_gradient_plain_):
        logits, row, targets = draw(1, dtype, 20, 100, 1000, 1024)
        gradient, expected = truth(logits, row, targets, 1000)
        log_prob = torch.empty(100, device=DEVICE)
        values = logits.to(DEVICE, copy=True)
        twin(values, move(targets), 1000, log_prob, torch.empty(20, device=DEVICE))
        error = (values.cpu().double() - gradient).norm(), (log_prob.cpu() - expected).norm()
        errors.append(torch.stack(error))
    assert (errors[0] <= 1.1 * errors[1]).all(), errors


@TWINS
@DTYPES
def test_part_of_the_rows_sees_its_own_targets_only(twin, dtype) -> None:
    logits, _, targets = draw(2, dtype, 7, 40, 50, 64)
    targets, whole, log_prob = (
        move(targets),
        logits.to(DEVICE, copy=True),
        torch.empty(40, device=DEVICE),
    )
    whole_cost, part_cost = (torch.empty(number, device=DEVICE) for number in (7, 3))
    twin(whole, targets, 50, log_prob, whole_cost)
    part, noted = logits[3:6].to(DEVICE, copy=True), torch.full((40,), 7.0, device=DEVICE)
    twin(part, targets.of_rows(3, 6), 50, noted, part_cost)
    first, last = targets.starts[3], targets.starts[6]
    assert torch.equal(part, whole[3:6])
    assert torch.equal(part_cost, whole_cost[3:6])
    assert torch.equal(noted[first:last], log_prob[first:last])
    assert (noted[:first] == 7).all()
    assert (noted[last:] == 7).all()


@TWINS
@DTYPES
def test_logits_stay_if_no_gradient_is_asked_for(twin, dtype) -> None:
    logits, row, targets = draw(3, dtype, 7, 40, 50, 64)
    values, log_prob = logits.to(DEVICE, copy=True), torch.empty(40, device=DEVICE)
    twin(values, move(targets), 50, log_prob, torch.empty(7, device=DEVICE), gradient=False)
    assert torch.equal(values.cpu(), logits)
    expected = truth(logits, row, targets, 50)[1].float()
    torch.testing.assert_close(log_prob.cpu(), expected, atol=1e-5, rtol=1e-6)


@TWINS
@DTYPES
def test_what_is_impossible_costs_nothing_if_nobody_wants_it(twin, dtype) -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0, 9.0]], dtype=dtype, device=DEVICE)
    targets = targets_of(
        torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]), rows=1
    )
    log_prob, cost = torch.empty(2, device=DEVICE), torch.empty(1, device=DEVICE)
    twin(logits, move(targets), 3, log_prob, cost)
    assert cost.item() == pytest.approx(0.693147)
    assert log_prob.tolist() == [pytest.approx(-0.693147), -torch.inf]
    assert logits.tolist() == [[-0.5, 0, 0.5, 0]]


@TWINS
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_logits_that_are_not_finite_are_not_hidden(twin, bad) -> None:
    logits = torch.tensor([[0.0, bad, 0.0, 0.0], [bad] * 4], dtype=torch.float16, device=DEVICE)
    targets = targets_of(torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0]), rows=2)
    log_prob, cost = torch.empty(1, device=DEVICE), torch.empty(2, device=DEVICE)
    twin(logits, move(targets), 4, log_prob, cost)
    assert cost.isfinite().tolist() == [False, True]
    assert not log_prob.isfinite().any()
    assert not logits[0].isfinite().all()
    assert (logits[1] == 0).all()  # without targets it does not matter


@fast
@pytest.mark.parametrize("integers", [torch.int64, torch.int32, torch.int16])
def test_targets_are_sorted_and_pooled(integers) -> None:
    generator = torch.Generator().manual_seed(4)
    row = torch.randint(0, 20, (500,), generator=generator)
    row[:200] = 3  # more than are looked at together
    token, weight = torch.randint(0, 9, (500,), generator=generator), torch.rand(500)
    expected = targets_of(row, token, weight, 20)
    given = (x.to(DEVICE) for x in (row.to(integers), token.to(integers), weight))
    targets, order = arrange(*given, rows=20)
    again, none = arrange(
        row.sort().values.to(DEVICE, integers), targets.token, targets.weight, 20, is_sorted=True
    )
    assert torch.equal(row[order.cpu()], row.sort().values)
    assert none is None
    for name, exact in vars(expected).items():
        for found in (targets, again):
            torch.testing.assert_close(getattr(found, name).cpu(), exact, check_dtype=False)


@fast
def test_what_is_out_of_range_is_not_a_number_and_harms_nothing() -> None:
    row, token = torch.tensor([-1, 0, 0, 1, 70_000]), torch.tensor([0, 1, 40, -3, 0])
    targets, _ = arrange(row.to(DEVICE), token.to(DEVICE), torch.ones(5, device=DEVICE), rows=2)
    logits = torch.zeros(4, 8, dtype=torch.bfloat16, device=DEVICE)
    log_prob = torch.full((5,), torch.nan, device=DEVICE)
    cost = torch.empty(2, device=DEVICE)
    softmax_gradient_(logits[1:3], targets, 4, log_prob, cost)
    assert cost.isnan().all()
    assert log_prob.isnan().tolist() == [True, False, True, True, True]
    assert (logits[[0, 3]] == 0).all()


@fast
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 5), (70, 100), (0, 5)])
def test_times_one_factor(dtype, shape) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    factor = torch.tensor(0.3, device=DEVICE)
    for layout in (values, values.T):
        products = times(layout, factor, dtype)
        assert products.dtype == dtype
        torch.testing.assert_close(products, (layout * factor).to(dtype), rtol=0.008, atol=0)
