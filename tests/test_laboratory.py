import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from didlm.alignment import count_occurrences, insertion_targets
from didlm.deletion import delete_independently
from didlm.laboratory import (
    ExactDiffusion,
    bounds,
    free_length,
    likelihood,
    open_gaps_of,
    reverse_chain,
    same_result,
    subsequences,
    transition,
)
from didlm.objectives import dense
from didlm.schedule import Geometric, LogLinear, Polynomial
from worlds import FIXED, GIVEN_FIXED, VARIABLE, WORLDS, arbitrary_model

EACH = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
EACH_FIXED = pytest.mark.parametrize("world", [FIXED, GIVEN_FIXED], ids=["fixed", "given, fixed"])
SCHEDULES = pytest.mark.parametrize(
    "schedule", [LogLinear(), Polynomial(2.0), Geometric()], ids=lambda s: type(s).__name__
)
U = torch.tensor([1e-3, 0.1, 0.5, 0.8, 1.0], dtype=torch.float64)


@EACH
def test_transition_probabilities_sum_to_one(world) -> None:
    for text in world.data:
        total = sum(transition(x, text, U) for x in subsequences(text))
        torch.testing.assert_close(total, torch.ones_like(U), rtol=0, atol=1e-12)
    total = sum(world.marginal(x, U) for x in world.states)
    torch.testing.assert_close(total, torch.ones_like(U), rtol=0, atol=1e-12)


@EACH
def test_two_deletions_in_a_row_are_one(world) -> None:
    """Chapman-Kolmogorov: from 0 to s, then from s to t, survival being the product."""
    first, second = torch.tensor([0.3]).double(), torch.tensor([0.45]).double()
    both = 1 - (1 - first) * (1 - second)
    for text in world.data:
        for x in subsequences(text):
            way = sum(
                transition(x, y, second) * transition(y, text, first) for y in subsequences(text)
            )
            torch.testing.assert_close(way, transition(x, text, both))


@pytest.mark.parametrize("text", [(1, 1, 0, 0), (0, 0, -1, -2, -3, 0)])
def test_transition_probabilities_match_simulation(text) -> None:
    rng, draws, u = np.random.default_rng(0), 20_000, 0.4
    labels = np.array(text)
    given = np.where(labels < 0, -labels, 0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        keep = delete_independently(len(text), 1 - u, rng, given)
        state = tuple(labels[keep].tolist())
        seen[state] = seen.get(state, 0) + 1
    assert set(seen) <= set(subsequences(text))
    for state in subsequences(text):
        p = float(transition(state, text, torch.tensor([u]).double()))
        assert abs(seen.get(state, 0) / draws - p) < 5 * math.sqrt(p * (1 - p) / draws) + 1e-12


@EACH
def test_target_tables_are_the_insertion_targets(world) -> None:
    for text in world.data:
        labels = np.array(text, dtype=int)
        given = np.where(labels < 0, -labels, 0)  # each its own span: spans only close gaps
        x0 = np.where(labels < 0, 0, labels)
        for bits in range(2 ** len(text)):
            keep = np.array([bits >> j & 1 for j in range(len(text))], dtype=bool)
            if keep[labels < 0].all():
                x_t = tuple(labels[keep].tolist())
                table = insertion_targets(x0, keep, given).dense(len(x_t) + 1, world.vocabulary)
                expected = bounds.target_table(x_t, text, world.vocabulary)
                np.testing.assert_allclose(table, expected, atol=1e-12)


@EACH
def test_the_concrete_score_is_the_stated_average_of_insertion_scores(world) -> None:
    u = U[:-1]
    for x in world.states:
        scores = world.insertion_score(x, u)
        for y in world.states:
            if insertions := same_result(x, y):
                assert len(insertions) == count_occurrences(x, y)
                mean = sum(scores[:, gap, token] for gap, token in insertions) / len(insertions)
                expected = (1 - u) / u * mean
                torch.testing.assert_close(world.concrete_score(x, y, u), expected)


@EACH
@SCHEDULES
def test_the_reverse_rate_is_the_sum_of_the_rates_of_insertions(world, schedule) -> None:
    t = 0.6
    u = torch.tensor([float(schedule.deleted(t))], dtype=torch.float64)
    for x in world.states:
        scores = world.insertion_score(x, u)
        for y in world.states:
            insertions = sum(float(scores[0, gap, token]) for gap, token in same_result(x, y))
            expected = float(schedule.weight(t)) * insertions
            assert world.reverse_rate(x, y, schedule, t) == pytest.approx(expected, rel=1e-9)


@EACH
def test_the_reverse_chain_with_exact_scores_ends_in_the_data(world) -> None:
    final = reverse_chain(world.insertion_score, world.states, world.closed)
    for x, probability in final.items():
        assert probability == pytest.approx(world.data.get(x, 0.0), abs=1e-10)


def test_the_likelihoods_of_a_model_sum_to_one() -> None:
    """Over all texts of up to 9 equal tokens, for a model that hardly ever writes more."""

    def scores(state, u):
        return (u * 1.5 / (1 + len(state)) ** 2)[:, None, None].expand(-1, len(state) + 1, 1)

    total = sum(likelihood(scores, (0,) * length) for length in range(10))
    assert total == pytest.approx(1, abs=1e-6)


def test_the_likelihood_of_a_model_solved_by_hand() -> None:
    """One symbol, rate c u in every gap: lengths grow like a pure birth process."""
    c = 0.8

    def scores(state, u):
        return (c * u)[:, None, None].expand(-1, len(state) + 1, 1)

    # n + 1 gaps of rate c for unit time: p(n) is geometric with success e^-c.
    for length in range(6):
        expected = math.exp(-c) * (1 - math.exp(-c)) ** length
        assert likelihood(scores, (0,) * length) == pytest.approx(expected, rel=1e-10)


@EACH
@pytest.mark.parametrize("seed", range(4))
def test_both_objectives_bound_the_likelihood_of_any_model(world, seed) -> None:
    model = arbitrary_model(world.vocabulary, seed)
    gaps = []
    for text in world.data:
        truth = -math.log(likelihood(model, text, world.closed))
        dse, dise = (
            bounds.over_time(cost, model, text, world.vocabulary, world.closed)
            for cost in (bounds.dse, bounds.dise)
        )
        assert truth <= dse + 1e-9
        assert dse <= dise + 1e-9
        gaps += [dse - truth, dise - dse]
    assert max(gaps) > 0.01  # the inequalities are not all equalities


@EACH
def test_with_exact_scores_both_bounds_are_the_likelihood(world) -> None:
    for text, probability in world.data.items():
        for cost in (bounds.dise, bounds.dse):
            for form in (bounds.over_time, bounds.over_count):
                bound = form(cost, world.insertion_score, text, world.vocabulary, world.closed)
                assert bound == pytest.approx(-math.log(probability), abs=1e-8)


@EACH
def test_the_exact_insertion_score_minimises_expected_dise(world) -> None:
    u = torch.tensor([0.35], dtype=torch.float64)

    def expected_dise(x, scores):
        return sum(
            p
            * transition(x, text, u)[0]
            * dense.dise(scores, bounds.target_table(x, text, world.vocabulary))
            for text, p in world.data.items()
            if count_occurrences(x, text)
        )

    for x in world.states:
        exact = world.insertion_score(x, u)[0]
        support = exact > 0  # elsewhere the least cost is at the edge, score zero
        scores = exact.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(expected_dise(x, scores), scores)
        torch.testing.assert_close(gradient[support], torch.zeros_like(gradient[support]))
        assert (gradient[~support] > 0).all()
        for factor in (0.9, 1.1):
            assert expected_dise(x, exact * factor) >= expected_dise(x, exact)


@EACH
@pytest.mark.parametrize("cost", [bounds.dise, bounds.dse], ids=["dise", "dse"])
def test_the_sum_over_counts_is_the_integral_over_time(world, cost) -> None:
    model = arbitrary_model(world.vocabulary, seed=11)
    for text in world.data:
        over_time = bounds.over_time(cost, model, text, world.vocabulary, world.closed)
        over_count = bounds.over_count(cost, model, text, world.vocabulary, world.closed)
        assert over_count == pytest.approx(over_time, rel=1e-10)


@EACH_FIXED
def test_scores_of_fixed_length_text_know_no_time_and_sum_to_what_is_missing(world) -> None:
    total = free_length(next(iter(world.data)))
    for x in world.states:
        scores = world.insertion_score(x, U)
        torch.testing.assert_close(scores, scores[:1].expand_as(scores))
        missing = float(total - free_length(x))
        assert float(scores[0].sum()) == pytest.approx(missing, abs=1e-12)


@EACH_FIXED
def test_dice_is_dise_under_the_normalisation_and_a_sum_of_divergences(world) -> None:
    model = arbitrary_model(world.vocabulary, seed=5, timed=False)
    total = free_length(next(iter(world.data)))

    def normalised(state, u):
        missing = total - free_length(state)
        return dense.normalise(model(state, u), missing, open_gaps_of(state, world.closed))

    for text in world.data:
        arguments = (text, world.vocabulary, world.closed)
        dise = bounds.over_time(bounds.dise, normalised, *arguments)
        dice = bounds.over_time(bounds.dice, model, *arguments)
        by_count = bounds.over_count(bounds.dice, model, *arguments)
        assert dice == pytest.approx(dise, rel=1e-10)
        assert by_count == pytest.approx(dice, rel=1e-10)
        # Eq. dice-by-count: one Kullback-Leibler divergence per insertion, nothing else.
        divergences, one = 0.0, torch.ones(1, dtype=torch.float64)
        for x in subsequences(text):
            count = total - free_length(x)
            if count:
                share = count_occurrences(x, text) / math.comb(total, count)
                target = bounds.target_table(x, text, world.vocabulary) / count
                model_share = normalised(x, one)[0] / count
                divergence = torch.xlogy(target, target) - torch.xlogy(target, model_share)
                divergences += share * float(divergence.sum())
        assert divergences == pytest.approx(dice, rel=1e-10)
        assert dice >= -math.log(likelihood(normalised, text, world.closed)) - 1e-9


@EACH_FIXED
def test_dice_with_exact_scores_is_the_likelihood(world) -> None:
    for text, probability in world.data.items():
        for form in (bounds.over_time, bounds.over_count):
            dice = form(bounds.dice, world.insertion_score, text, world.vocabulary, world.closed)
            assert dice == pytest.approx(-math.log(probability), abs=1e-8)


def test_states_outside_the_data_have_no_score() -> None:
    with pytest.raises(ValueError, match="contained in no text"):
        VARIABLE.insertion_score((2, 2), U)


@SCHEDULES
def test_no_bound_depends_on_the_schedule(schedule) -> None:
    """Eq. change-of-time: integrate over t itself with the schedule's weight."""
    model = arbitrary_model(VARIABLE.vocabulary, seed=3)
    # t = z^6 gathers the nodes near t = 0, where the integrand has a logarithm.
    edges = torch.linspace(0, 1, 41, dtype=torch.float64)
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(20))
    z = torch.cat([(a + b) / 2 + (b - a) / 2 * nodes for a, b in pairwise(edges)])
    dz = torch.cat([(b - a) / 2 * weights for a, b in pairwise(edges)])
    t, dt = z**6, 6 * z**5 * dz
    u = schedule.deleted(t)
    for text in VARIABLE.data:
        cost = torch.zeros_like(t)
        for x in subsequences(text):
            table = bounds.target_table(x, text, VARIABLE.vocabulary)
            cost += transition(x, text, u) * dense.dise(model(x, u), table)
        integral = float((dt * schedule.weight(t) * cost).sum())
        expected = bounds.over_time(bounds.dise, model, text, VARIABLE.vocabulary)
        assert integral == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "positive probabilities that sum to one"),
        ({(0,): 0.5}, "positive probabilities that sum to one"),
        ({(0,): 1.5, (): -0.5}, "positive probabilities that sum to one"),
        ({(5,): 1.0}, "outside the vocabulary of 2"),
        ({(0, -1): 0.5, (0,): 0.5}, "the same given tokens in the same order"),
    ],
)
def test_impossible_data_are_refused(data, message) -> None:
    with pytest.raises(ValueError, match=message):
        ExactDiffusion(data, vocabulary=2)
