import math

import numpy as np
import pytest
import torch

from didlm.alignment import insertion_targets, insertion_targets_batch, result_groups
from didlm.deletion import delete_exactly, delete_independently
from didlm.laboratory import bounds, subsequences, transition
from didlm.objectives import dense, noise, sparse
from didlm.packed import Packed, pack
from didlm.schedule import Geometric, LogLinear, Polynomial
from worlds import VARIABLE, arbitrary_model

VOCABULARY = 4


class Case:
    """A random packed batch with its targets, and random factored scores as leaves of a graph."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        texts = [rng.integers(0, VOCABULARY, n) for n in (0, 1, 5, 9, 14)]
        spans = [np.zeros(len(text), dtype=int) for text in texts]
        spans[3][2:5], spans[3][5:7], spans[4][:3] = 1, 2, 8
        x0 = pack(texts, bos=0, given=spans)
        keep = torch.from_numpy(rng.random(x0.rows) < 0.5) | x0.is_bos | (x0.given != 0)
        self.x_t: Packed = x0.delete(keep)
        targets = insertion_targets_batch(x0, keep)
        self.targets = targets
        self.row = torch.from_numpy(targets.gap)
        self.ratio = torch.from_numpy(targets.ratio)
        self.group = torch.from_numpy(result_groups(self.x_t, targets))
        self.missing = x0.lengths - self.x_t.lengths
        generator = torch.Generator().manual_seed(seed)
        self.log_rate = torch.randn(self.x_t.rows, generator=generator, dtype=torch.float64)
        self.logits = torch.randn(
            self.x_t.rows, VOCABULARY, generator=generator, dtype=torch.float64
        )
        self.log_rate.requires_grad_()
        self.logits.requires_grad_()

    @property
    def log_prob(self) -> torch.Tensor:
        token = torch.from_numpy(self.targets.token)
        return self.logits.log_softmax(-1)[self.row, token]

    def dense_states(self):
        """Scores, target table, labels and open gaps of each sequence."""
        full = self.targets.dense(self.x_t.rows, VOCABULARY)
        scores = self.log_rate.exp()[:, None] * self.logits.softmax(-1)
        labels = torch.where(self.x_t.given != 0, -self.x_t.given, self.x_t.tokens)
        for first, last in zip(self.x_t.offsets[:-1], self.x_t.offsets[1:], strict=True):
            rows = slice(int(first), int(last))
            yield scores[rows], torch.from_numpy(full[rows]), labels[rows][1:], self.x_t.open[rows]


def assert_same_with_gradients(case: Case, one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other)
    leaves = (case.log_rate, case.logits)
    weights = torch.arange(1.0, len(one) + 1, dtype=torch.float64)
    first = torch.autograd.grad(weights @ one, leaves, allow_unused=True)
    second = torch.autograd.grad(weights @ other, leaves, allow_unused=True)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)


SEEDS = pytest.mark.parametrize("seed", range(5))


@SEEDS
def test_sparse_dise_is_dense_dise(seed) -> None:
    case = Case(seed)
    cost = sparse.dise(case.log_rate, case.log_prob, case.row, case.ratio, case.x_t)
    expected = [dense.dise(s, r, open) for s, r, _, open in case.dense_states()]
    assert_same_with_gradients(case, cost, torch.stack(expected))


@SEEDS
def test_sparse_dse_is_dense_dse(seed) -> None:
    case = Case(seed)
    cost = sparse.dse(case.log_rate, case.log_prob, case.row, case.ratio, case.group, case.x_t)
    expected = [dense.dse(s, r, labels, open) for s, r, labels, open in case.dense_states()]
    assert_same_with_gradients(case, cost, torch.stack(expected))
    looser = sparse.dise(case.log_rate, case.log_prob, case.row, case.ratio, case.x_t)
    assert (cost <= looser + 1e-12).all()


@SEEDS
def test_sparse_dice_is_dense_dice_and_normalised_dise(seed) -> None:
    case = Case(seed)
    log_rate = sparse.normalise(case.log_rate, case.missing, case.x_t)
    cost = sparse.dice(log_rate, case.log_prob, case.row, case.ratio, case.x_t)
    expected = []
    for (s, r, _, open), missing in zip(case.dense_states(), case.missing, strict=True):
        expected.append(dense.dice(dense.normalise(s, missing, open), r))
    assert_same_with_gradients(case, cost, torch.stack(expected))
    same = sparse.dise(log_rate, case.log_prob, case.row, case.ratio, case.x_t)
    torch.testing.assert_close(cost, same)


def test_normalised_rates_sum_to_what_is_missing_over_the_open_gaps() -> None:
    x_t = pack([[1, 2, 3], [], [4, 4]], bos=0, given=[[1, 1, 0], [], [2, 2]])
    x_t = x_t.close(torch.tensor([5, 7]))  # nothing open in the last sequence
    log_rate = torch.randn(x_t.rows, dtype=torch.float64, requires_grad=True)
    rates = sparse.normalise(log_rate, torch.tensor([5, 0, 0]), x_t).exp()
    assert rates[:4].sum().item() == pytest.approx(5)
    assert rates[1] == 0  # inside the span
    assert rates[4:].tolist() == [0.0] * 4
    (gradient,) = torch.autograd.grad(rates[:4].square().sum(), log_rate)
    assert gradient.isfinite().all()


def test_rates_may_span_hundreds_of_powers_of_ten() -> None:
    x_t = pack([[1, 2]], bos=0)
    log_rate = torch.tensor([-900.0, 0.0, 900.0], dtype=torch.float64)
    result = sparse.normalise(log_rate, torch.tensor([3]), x_t)
    torch.testing.assert_close(result, log_rate - 900 + math.log(3))


def test_sixteen_bit_scores_are_summed_in_float32() -> None:
    x_t = pack([[1] * 2000], bos=0)
    none, numbers = torch.empty(0, dtype=torch.int64), torch.empty(0)
    for dtype in (torch.bfloat16, torch.float16):
        zeros = torch.zeros(x_t.rows, dtype=dtype)
        assert sparse.dise(zeros, numbers.to(dtype), none, numbers, x_t).tolist() == [2001.0]
        total = sparse.normalise(zeros, torch.tensor([7]), x_t).exp().sum()
        assert total.item() == pytest.approx(7, rel=1e-5)


def test_what_a_closed_gap_says_changes_nothing_however_large() -> None:
    x_t = pack([[1, 2]], bos=0, given=[[1, 1]])
    log_rate = torch.tensor([0.0, 5000.0, 0.0], dtype=torch.float64, requires_grad=True)
    none, numbers = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    cost = sparse.dise(log_rate, numbers, none, numbers, x_t)
    assert cost.tolist() == [2.0]
    assert torch.autograd.grad(cost.sum(), log_rate)[0].tolist() == [1.0, 0.0, 1.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x_t, row, ratio = pack([[1]], bos=0), torch.tensor([0, 1]), torch.ones(2)
    with pytest.raises(ValueError, match="2 rows"):
        sparse.dise(torch.zeros(3), torch.zeros(2), row, ratio, x_t)
    with pytest.raises(ValueError, match="as many log rates and log probabilities"):
        sparse.dice(torch.zeros(2), torch.zeros(1), row, ratio, x_t)


def test_zero_log_zero_is_zero() -> None:
    x_t, row = pack([[]], bos=0), torch.tensor([0, 0])
    ratio = torch.tensor([0.0, 1.0], dtype=torch.float64)
    log_prob = torch.tensor([-torch.inf, -1.0], dtype=torch.float64)
    log_rate = torch.zeros(1, dtype=torch.float64)
    assert sparse.dise(log_rate, log_prob, row, ratio, x_t).tolist() == [1.0]  # 1 + 1 - 1
    assert sparse.dice(log_rate, log_prob, row, ratio, x_t).tolist() == [1.0]
    table = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert dense.dise(table, table).item() == 0
    assert dense.dice(table, table).item() == 0
    # An impossible token that is wanted costs infinitely much.
    wanted = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert sparse.dise(log_rate, log_prob, row, wanted, x_t).tolist() == [math.inf]


def test_an_empty_batch_costs_nothing() -> None:
    x_t, none = pack([], bos=0), torch.empty(0, dtype=torch.int64)
    numbers = torch.empty(0, dtype=torch.float64)
    assert sparse.dise(numbers, numbers, none, numbers, x_t).shape == (0,)
    assert sparse.dse(numbers, numbers, none, numbers, none, x_t).shape == (0,)


# Monte Carlo: the draws of `noise` estimate the exact bounds of the laboratory.

TEXT = (1, 1, 0, 0)
MODEL = arbitrary_model(VARIABLE.vocabulary, seed=2)


def state_cost(draw: noise.Noise, rng: np.random.Generator, cost=dense.dise) -> float:
    """Corrupt the text as the draw says; the cost of the state under the model."""
    if draw.count is None:
        keep = delete_independently(len(TEXT), 1 - draw.deleted, rng)
    else:
        keep = delete_exactly(len(TEXT), draw.count, rng)
    x_t = tuple(np.array(TEXT)[keep].tolist())
    table = insertion_targets(TEXT, keep).dense(len(x_t) + 1, VARIABLE.vocabulary)
    u = torch.tensor([draw.deleted], dtype=torch.float64)
    return float(cost(MODEL(x_t, u), torch.from_numpy(table)))


def assert_mean(samples: list[float], expected: float) -> None:
    error = np.std(samples) / math.sqrt(len(samples))
    assert abs(np.mean(samples) - expected) < 4.5 * error
    assert error < 0.05 * abs(expected)


def test_exact_and_untouched_draws_together_estimate_dise() -> None:
    rng, length, samples = np.random.default_rng(0), len(TEXT), []
    for _ in range(5000):
        parts = noise.exact(length, rng), noise.untouched(length, rng)
        samples.append(sum(part.weight * state_cost(part, rng) for part in parts))
    assert_mean(samples, bounds.over_time(bounds.dise, MODEL, TEXT, VARIABLE.vocabulary))


def test_exact_draws_alone_estimate_dice() -> None:
    def cost(scores, ratios):
        return dense.dice(dense.normalise(scores, ratios.sum()), ratios)

    rng = np.random.default_rng(5)
    draws = [noise.exact(len(TEXT), rng) for _ in range(5000)]
    samples = [draw.weight * state_cost(draw, rng, cost) for draw in draws]
    assert_mean(samples, bounds.over_time(bounds.dice, MODEL, TEXT, VARIABLE.vocabulary))


def assert_law(draws: list[float], distribution) -> None:
    """Kolmogorov-Smirnov: the largest distance of the two distribution functions."""
    values = np.sort(draws)
    expected = np.array([float(distribution(value)) for value in values])
    steps = np.arange(1, len(values) + 1) / len(values)
    assert np.abs(steps - expected).max() < 2.2 / math.sqrt(len(values))


def test_the_laws_of_the_draws() -> None:
    rng, length, many = np.random.default_rng(6), 5, 20_000
    # Beta(1, b) has the distribution function 1 - (1 - u)^b.
    drawn = [noise.untouched(length, rng).deleted for _ in range(many)]
    assert_law(drawn, lambda u: 1 - (1 - u) ** (length + 1))
    # Over a uniform number deleted, u is uniform: Beta densities of k = 1..m sum to m.
    assert_law([noise.exact(length, rng).deleted for _ in range(many)], lambda u: u)
    assert_law([noise.simple(length, rng).deleted for _ in range(many)], lambda u: u)
    # No cut-off: times reach down to where so many uniform draws must reach.
    times = [noise.integral(LogLinear(), rng).deleted for _ in range(many)]
    assert_law(times, lambda u: u)
    assert min(times) < 20 / many


def test_simple_draws_estimate_the_unweighted_integral() -> None:
    rng = np.random.default_rng(1)
    draws = [noise.simple(len(TEXT), rng) for _ in range(5000)]
    assert {draw.weight for draw in draws} == {1.0}
    assert {draw.count for draw in draws} == set(range(len(TEXT) + 1))
    # The same integral with t uniform and independent deletions, by quadrature.
    nodes, weights = np.polynomial.legendre.leggauss(60)
    u = torch.from_numpy((nodes + 1) / 2)
    expected = torch.zeros_like(u)
    for x in subsequences(TEXT):
        table = bounds.target_table(x, TEXT, VARIABLE.vocabulary)
        expected += transition(x, TEXT, u) * dense.dise(MODEL(x, u), table)
    integral = float(torch.from_numpy(weights / 2) @ expected)
    assert_mean([state_cost(draw, rng) for draw in draws], integral)


@pytest.mark.parametrize("schedule", [LogLinear(), Polynomial(3.0), Geometric()], ids=str)
def test_integral_draws_estimate_an_integral_over_du_over_u(schedule) -> None:
    rng = np.random.default_rng(2)
    draws = [noise.integral(schedule, rng) for _ in range(5000)]
    assert all(draw.count is None and 0 < draw.deleted <= 1 for draw in draws)
    # f(u) = u (1 + cos u) keeps the variance finite.
    samples = [draw.weight * draw.deleted * (1 + math.cos(draw.deleted)) for draw in draws]
    assert_mean(samples, 1 + math.sin(1))


def test_draws_come_with_the_deletion_probability_of_their_count() -> None:
    """Of m + 1 order statistics the k-th is the mean of Beta(k, m - k + 1)."""
    rng = np.random.default_rng(3)
    draws = [noise.exact(9, rng) for _ in range(9000)]
    for count in range(1, 10):
        own = [draw.deleted for draw in draws if draw.count == count]
        assert abs(np.mean(own) - count / 10) < 5 * np.std(own) / math.sqrt(len(own))
        assert abs(len(own) - 1000) < 5 * math.sqrt(1000)


def test_texts_without_free_tokens_have_only_the_untouched_part() -> None:
    rng = np.random.default_rng(4)
    with pytest.raises(ValueError, match="nothing can be deleted"):
        noise.exact(0, rng)
    draw = noise.untouched(0, rng)
    assert draw.count == 0
    assert draw.weight == pytest.approx(1 / draw.deleted)
    with pytest.raises(ValueError, match="cannot have -2 tokens"):
        noise.simple(-2, rng)
