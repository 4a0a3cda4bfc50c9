"""Samplers against the truth: with exact scores they must give back the data distribution."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from didlm.generate import uniforms
from didlm.generate.corrector import corrected
from didlm.generate.draft import begin
from didlm.generate.driver import Writer, write
from didlm.generate.limits import Limits, clamp_fired, earliest, within
from didlm.generate.samplers import (
    CAUTION,
    Moment,
    adaptive,
    counted,
    jump_chain,
    tau_leaping,
)
from didlm.generate.scorer import Answer
from didlm.generate.stages import Plan
from didlm.generate.template import NO_LIMIT, Start
from didlm.generate.tokens import BLOCK, TokenControls, draw_tokens
from didlm.laboratory import ExactDiffusion
from didlm.laboratory.scorer import ExactScorer, OneSymbolScorer
from didlm.packed import pack
from didlm.schedule import cosine_grid, uniform_grid
from worlds import FIXED, GIVEN_FIXED, VARIABLE


def start_from(tokens=(), given=(), blank=(0,)) -> Start:
    """Given tokens with their spans; all open gaps are of one blank without limits."""
    return Start(
        tokens=np.array(tokens, dtype=np.int64),
        given=np.array(given, dtype=np.int64),
        blank=np.array(blank, dtype=np.int64),
        least=np.zeros(1, dtype=np.int64),
        most=np.full(1, NO_LIMIT),
        spaced=np.zeros(len(blank), dtype=np.bool_),
        pieces=(None,),
        exact=True,
    )


def run(scorer, plan: Plan, count: int, seed: int = 0, start: Start | None = None) -> Writer:
    draft = begin([start or start_from()] * count, bos=0)
    writer = Writer(scorer, draft, plan, seed)
    for _ in write(writer):
        pass
    return writer


def texts(writer: Writer) -> Counter[tuple[int, ...]]:
    return Counter(tuple(text.tokens.tolist()) for text in writer.finished)


def assert_drawn_from(found: Counter, data: dict, degrees_slack: float = 4.5) -> None:
    """Fail if the counts are further from the data than 4.5 standard deviations of chi-square."""
    total = sum(found.values())
    assert set(found) <= set(data), "a text that the data do not have"
    statistic = sum((found[x] - total * p) ** 2 / (total * p) for x, p in data.items())
    degrees = len(data) - 1
    assert statistic < degrees + degrees_slack * np.sqrt(2 * degrees), statistic


def total_variation(found: Counter, data: dict) -> float:
    total = sum(found.values())
    return sum(abs(found[x] / total - data.get(x, 0)) for x in {*found, *data}) / 2


class Untimed(ExactScorer):
    """Exact scores of texts of one length, which do not depend on time."""

    timed = False


class TestExactness:
    def test_the_jump_chain_writes_the_data(self) -> None:
        writer = run(Untimed(FIXED), Plan(jump_chain, [1, 0], length=3, shortest=3), 100_000)
        assert_drawn_from(texts(writer), FIXED.data)
        assert {text.calls for text in writer.finished} == {3}

    def test_the_jump_chain_writes_conditional_data(self) -> None:
        # Tokens 3 and 4 are given, with a closed gap between them.
        begun = start_from([3, 4], [1, 1], [0, -1, 0])
        plan = Plan(jump_chain, [1, 0], length=5, shortest=5)
        found = texts(run(Untimed(GIVEN_FIXED), plan, 50_000, start=begun))
        as_labels = {
            tuple({3: -1, 4: -2}.get(token, token) for token in text): n
            for text, n in found.items()
        }
        assert_drawn_from(Counter(as_labels), GIVEN_FIXED.data)

    @pytest.mark.parametrize(
        ("sampler", "grid"),
        [(tau_leaping, uniform_grid), (tau_leaping, cosine_grid), (adaptive, uniform_grid)],
    )
    def test_leaps_converge_to_the_data_as_steps_grow(self, sampler, grid) -> None:
        errors = [
            total_variation(
                texts(run(ExactScorer(VARIABLE), Plan(sampler, grid(steps).tolist()), 6000)),
                VARIABLE.data,
            )
            for steps in (4, 16, 96)
        ]
        assert errors[0] > errors[2]
        assert errors[2] < 0.04

    def test_the_adaptive_form_converges_faster_at_equal_calls(self) -> None:
        plan = Plan(adaptive, uniform_grid(16).tolist())
        writer = run(ExactScorer(VARIABLE), plan, 20_000)
        calls = round(np.mean([text.calls for text in writer.finished]))
        plain = run(ExactScorer(VARIABLE), Plan(tau_leaping, uniform_grid(calls).tolist()), 20_000)
        adaptive_error = total_variation(texts(writer), VARIABLE.data)
        assert adaptive_error < 0.9 * total_variation(texts(plain), VARIABLE.data)

    def test_counted_leaps_converge_and_always_reach_the_length(self) -> None:
        errors = []
        for steps in (1, 4, 32):
            plan = Plan(counted, uniform_grid(steps).tolist(), length=3, shortest=3, longest=3)
            found = texts(run(Untimed(FIXED), plan, 8000))
            assert {len(text) for text in found} == {3}
            errors.append(total_variation(found, FIXED.data))
        assert errors[-1] < min(0.04, errors[0])

    def test_a_corrector_with_exact_insertion_changes_nothing(self) -> None:
        grid = corrected(np.array([1.0, 0.0]), 0.5, times=3, steps=1)
        plan = Plan(jump_chain, grid.tolist(), length=3, shortest=3)
        writer = run(Untimed(FIXED), plan, 60_000)
        assert_drawn_from(texts(writer), FIXED.data)
        assert np.mean([text.calls for text in writer.finished]) > 5  # it did insert again

    def test_a_corrector_repairs_what_leaps_have_spoilt(self) -> None:
        # Two steps write anything; correcting exactly, again and again, leads back to the data.
        plan = Plan(counted, [1.0, 0.5, 0.0], length=3, shortest=3, longest=3)
        spoilt = total_variation(texts(run(Untimed(FIXED), plan, 6000)), FIXED.data)
        grid = corrected(np.array([1.0, 0.5, 0.0]), 0.7, times=2, steps=24)
        plan = Plan(counted, grid.tolist(), length=3, shortest=3, longest=3)
        repaired = total_variation(texts(run(Untimed(FIXED), plan, 6000)), FIXED.data)
        assert repaired < spoilt / 2

    def test_the_error_of_a_leaping_corrector_falls_as_its_sub_steps_grow(self) -> None:
        fine = uniform_grid(96)
        errors = []
        for steps in (1, 4, 24):
            grid = corrected(fine, 0.6, times=1, steps=steps)
            writer = run(ExactScorer(VARIABLE), Plan(adaptive, grid.tolist()), 6000)
            errors.append(total_variation(texts(writer), VARIABLE.data))
        assert errors[0] > errors[-1]
        assert errors[-1] < 0.05

    def test_corrections_on_the_way_keep_to_the_data_too(self) -> None:
        # They delete from texts of which a share is deleted already.
        grid = corrected(uniform_grid(64), 0.5, times=4, steps=32)
        writer = run(ExactScorer(VARIABLE), Plan(adaptive, grid.tolist()), 6000)
        assert total_variation(texts(writer), VARIABLE.data) < 0.035


class TestLengths:
    @pytest.mark.parametrize(("steps", "spread"), [(16, 80), (16, 200), (64, 80)])
    def test_lengths_are_right_at_few_steps(self, steps, spread) -> None:
        # One symbol, exact scores, lengths of a gamma distribution with mean 205.
        shape, size = (205 / spread) ** 2, 600 if spread < 100 else 1200
        length = torch.arange(size, dtype=torch.float64)
        log_p = (shape - 1) * length.clamp(min=0.5).log() - length * shape / 205
        probability = log_p.softmax(0)
        plan = Plan(adaptive, uniform_grid(steps).tolist(), longest=size - 1)
        writer = run(OneSymbolScorer(probability), plan, 2000)
        found = torch.tensor([len(text.tokens) for text in writer.finished])
        mean = float(probability @ length)
        assert abs(float(found.double().mean()) / mean - 1) < 0.04
        distribution = torch.bincount(found, minlength=size).cumsum(0) / len(found)
        assert float((distribution - probability.cumsum(0)).abs().max()) < 0.08

    def test_on_a_fine_grid_there_are_hardly_more_calls_than_tokens(self) -> None:
        """A text that waits for a token is not asked again at every time (Eq. first-arrival)."""
        length = torch.arange(400, dtype=torch.float64)
        probability = (-(((length - 100) / 30) ** 2)).softmax(0)
        writer = run(OneSymbolScorer(probability), Plan(adaptive, uniform_grid(256).tolist()), 500)
        lengths = np.array([len(text.tokens) for text in writer.finished])
        calls = np.array([text.calls for text in writer.finished])
        assert lengths.mean() == pytest.approx(float(probability @ length), rel=0.03)
        assert calls.mean() < lengths.mean() + 256 / 4

    def test_rounding_decides_nothing_where_limits_bind(self) -> None:
        """Then whole numbers are expected: a leap may bring the very number that it must not."""

        class Rounded(OneSymbolScorer):
            def read(self, x_t, deleted, recall=None):
                answer = super().read(x_t, deleted, recall)
                answer.log_rate.add_(torch.empty(x_t.rows).uniform_(-1e-6, 1e-6, generator=noise))
                return answer

        length = torch.arange(100, dtype=torch.float64)
        scorer = Rounded((-(((length - 60) / 10) ** 2)).softmax(0))
        plan, found = Plan(adaptive, uniform_grid(16).tolist(), longest=32), []
        for seed in range(2):
            noise = torch.Generator().manual_seed(seed)
            texts = sorted(run(scorer, plan, 400).finished, key=lambda text: text.number)
            found.append([(text.calls, text.born.tolist()) for text in texts])
        assert sum(one == other for one, other in zip(*found, strict=True)) >= 0.995 * 400

    def test_the_papers_sampler_writes_short_texts_at_few_steps(self) -> None:
        probability = torch.zeros(400, dtype=torch.float64)
        probability[10:400] = 1 / 390
        plan = Plan(tau_leaping, uniform_grid(16).tolist())
        writer = run(OneSymbolScorer(probability), plan, 500)
        assert np.mean([len(text.tokens) for text in writer.finished]) < 0.6 * 205


def test_where_then_what_equals_the_joint_draw_of_the_paper() -> None:
    """On random scores each gap has the outcome of one categorical draw, tokens or nothing."""
    generator = torch.Generator().manual_seed(0)
    scores = 0.5 * torch.rand(4, 5, generator=generator, dtype=torch.float64)  # gaps x tokens
    count, share = 60_000, 0.3

    class Scores:
        vocabulary = outputs = 5
        timed, normalised = True, False

        def dispersion(self, x_t):
            return torch.zeros(len(x_t), dtype=torch.float64)

        def read(self, x_t, deleted, recall=None):
            table = scores.repeat(len(x_t), 1)
            return Answer(table.sum(-1).log(), (table / table.sum(-1, keepdim=True)).log())

        def logits(self, features):
            return features.clone()

    begun = start_from([1, 2, 3], [1, 2, 3], [0, 0, 0, 0])
    draft = begin([begun] * count, bos=0)
    writer = Writer(Scores(), draft, Plan(tau_leaping, [1.0, 1 - share, 0.0]), seed=5)
    writer.step()
    x_t = writer.draft.x_t
    inserted = torch.full((count, 4), 5)
    new = writer.draft.born == 1
    gap = torch.cumsum(x_t.given != 0, 0) - 3 * x_t.sequence  # given tokens before it
    inserted[x_t.sequence[new], gap[new]] = x_t.tokens[new]
    expected = torch.cat([scores * share, 1 - scores.sum(-1, keepdim=True) * share], -1)
    for place in range(4):
        found = torch.bincount(inserted[:, place], minlength=6).double()
        statistic = ((found - count * expected[place]) ** 2 / (count * expected[place])).sum()
        assert statistic < 5 + 4.5 * np.sqrt(10)
    # Gaps are independent of each other.
    both = ((inserted[:, 0] < 5) & (inserted[:, 1] < 5)).double().mean()
    alone = scores.sum(-1) * share
    assert abs(float(both - alone[0] * alone[1])) < 4 * np.sqrt(0.25 / count)


class TestUniforms:
    def test_they_depend_on_seed_sample_pass_purpose_and_place_alone(self) -> None:
        keys = uniforms.sample_keys(3, torch.arange(4))
        passes = torch.full((4,), 7)
        whole = uniforms.uniforms(keys, passes, uniforms.FIRE, torch.arange(4))
        alone = uniforms.uniforms(keys[2:3], passes[2:3], uniforms.FIRE, torch.tensor([2]))
        assert torch.equal(whole[2:3], alone)
        for other in (
            uniforms.uniforms(uniforms.sample_keys(4, torch.arange(4)), passes, 0, torch.arange(4)),
            uniforms.uniforms(keys, passes + 1, uniforms.FIRE, torch.arange(4)),
            uniforms.uniforms(keys, passes, uniforms.TOKEN, torch.arange(4)),
            uniforms.uniforms(keys, passes, uniforms.FIRE, torch.arange(1, 5)),
        ):
            assert not (whole == other).any()

    def test_they_are_uniform_and_independent_of_their_neighbours(self) -> None:
        keys = uniforms.sample_keys(0, torch.arange(100))
        grid = uniforms.uniforms(
            keys[:, None, None], torch.arange(40)[:, None], uniforms.FIRE, torch.arange(100)
        )
        assert grid.unique().numel() == grid.numel()
        counts = torch.bincount((grid.flatten() * 1000).long(), minlength=1000).double()
        expected = grid.numel() / 1000
        assert ((counts - expected) ** 2 / expected).sum() < 999 + 4.5 * np.sqrt(2 * 999)
        for axis in range(3):
            left = grid.narrow(axis, 0, grid.shape[axis] - 1).flatten()
            right = grid.narrow(axis, 1, grid.shape[axis] - 1).flatten()
            assert abs(np.corrcoef(left, right)[0, 1]) < 4.5 / np.sqrt(len(left))

    @pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**80 + 5])
    def test_any_whole_number_is_a_seed(self, seed) -> None:
        assert uniforms.sample_keys(seed, torch.arange(3)).unique().numel() == 3


class TestTokens:
    def draw(self, probabilities: Tensor, count: int = 200_000, **controls) -> Tensor:
        logits = probabilities.log().repeat(count, 1)
        uniform = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        drawn = draw_tokens(logits, uniform, TokenControls(**controls))
        return torch.bincount(drawn, minlength=probabilities.numel()) / count

    P = torch.tensor([0.0, 0.4, 0.1, 0.3, 0.0, 0.2])

    def assert_close(self, found: Tensor, expected: Tensor) -> None:
        assert (found[expected == 0] == 0).all()
        assert (found - expected / expected.sum()).abs().max() < 0.006

    def test_draws_follow_the_distribution(self) -> None:
        self.assert_close(self.draw(self.P), self.P)

    def test_temperature(self) -> None:
        self.assert_close(self.draw(self.P, temperature=0.5), self.P**2)

    def test_top_k(self) -> None:
        self.assert_close(self.draw(self.P, top_k=2), torch.tensor([0, 0.4, 0, 0.3, 0, 0]))

    def test_top_p_keeps_the_smallest_set_that_reaches_it(self) -> None:
        self.assert_close(self.draw(self.P, top_p=0.65), torch.tensor([0, 0.4, 0, 0.3, 0, 0]))
        self.assert_close(self.draw(self.P, top_p=0.75), torch.tensor([0, 0.4, 0, 0.3, 0, 0.2]))
        self.assert_close(self.draw(self.P, top_p=1e-9), torch.tensor([0, 1.0, 0, 0, 0, 0]))

    def test_a_flat_nucleus_larger_than_what_is_tried_first(self) -> None:
        flat = torch.ones(1000) + torch.arange(1000) / 1000
        found = self.draw(flat, count=2000, top_p=0.5)
        order = flat.argsort(descending=True)
        inside = int((flat[order].cumsum(0) < 0.5 * flat.sum()).sum()) + 1
        assert found[order[inside:]].sum() == 0
        assert (found[order[:inside]] > 0).double().mean() > 0.9

    @given(st.integers(1, 400), st.integers(0, 10_000))
    @settings(max_examples=60, deadline=None)
    def test_the_draws_invert_the_distribution_functions(self, size, seed) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(20, size, generator=generator)
        forbidden = torch.rand(size, generator=generator) < 0.5
        forbidden[seed % size] = False
        uniform = torch.rand(20, generator=generator, dtype=torch.float64)
        uniform[0], uniform[1] = 0.0, 1 - 2.0**-53
        logits.masked_fill_(forbidden, -torch.inf)
        drawn = draw_tokens(logits, uniform, TokenControls())
        assert not forbidden[drawn].any()
        blocks = pad(logits.double().softmax(-1), (0, -size % BLOCK)).unflatten(-1, (-1, BLOCK))
        block, place = drawn // BLOCK, drawn % BLOCK
        inside = blocks[torch.arange(20), block]
        for weights, found, wanted in (
            (blocks.sum(-1), block, uniforms.once_more(uniform)),
            (inside / inside.sum(-1, keepdim=True), place, uniform),
        ):
            above = weights.cumsum(-1).gather(1, found[:, None]).squeeze(1)
            below = above - weights.gather(1, found[:, None]).squeeze(1)
            assert (wanted < above + 1e-5).all()
            assert (wanted > below - 1e-5).all()

    def test_draws_of_many_blocks_follow_the_distribution(self) -> None:
        """Block and place must be independent, so the counts are looked at token by token."""
        probabilities = torch.randn(300, generator=torch.Generator().manual_seed(3)).softmax(-1)
        count = 100_000
        found, expected = count * self.draw(probabilities, count), count * probabilities
        excess = ((found - expected) ** 2 / expected).sum()
        assert excess < 299 + 4.5 * np.sqrt(2 * 299)

    def test_rounding_seldom_changes_a_draw(self) -> None:
        generator = torch.Generator().manual_seed(4)
        logits = 2 * torch.randn(8192, generator=generator)
        nearly = logits + 1e-5 * torch.randn(8192, generator=generator)
        uniform = torch.rand(20_000, generator=generator, dtype=torch.float64)
        draws = [
            torch.cat(
                [draw_tokens(x.repeat(1000, 1), u, TokenControls()) for u in uniform.split(1000)]
            )
            for x in (logits, nearly)
        ]
        assert (draws[0] != draws[1]).sum() <= 10  # by one draw and not two it would be hundreds

    def test_the_far_tail_can_be_drawn(self) -> None:
        # Float32 uniforms would never reach a token of probability 1e-12.
        logits = torch.tensor([[0.0, np.log(1e-12)]])
        uniform = torch.tensor([1 - 5e-13], dtype=torch.float64)
        assert draw_tokens(logits, uniform, TokenControls()).item() == 1


HASTY = torch.tensor([False])  # the only text has no time left to wait


class TestLimits:
    def test_earliest_picks_the_first_arrivals_of_each_group(self) -> None:
        arrival = torch.tensor([3.0, 1.0, torch.inf, 2.0, 5.0, 4.0])
        group = torch.tensor([0, 0, 0, 1, 1, 0])
        assert earliest(arrival, group, torch.tensor([2, 5])).tolist() == [
            True, True, False, True, True, False,
        ]  # fmt: skip

    def test_first_arrivals_choose_in_proportion_to_rates(self) -> None:
        rate = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
        draws = torch.rand(60_000, 3, generator=torch.Generator().manual_seed(0)).double()
        arrival = (-torch.log1p(-draws) / rate).flatten()
        group = torch.arange(60_000).repeat_interleave(3)
        chosen = earliest(arrival, group, torch.ones(60_000, dtype=torch.int64))
        share = chosen.view(-1, 3).double().mean(0)
        assert (share - rate / 8).abs().max() < 0.01

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=30))
    @settings(max_examples=100, deadline=None)
    def test_firing_is_clamped_with_as_little_change_as_possible(self, gaps) -> None:
        fires = torch.tensor([fire for fire, _ in gaps])
        group = torch.tensor([number for _, number in gaps])
        low, high = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 4, 9])
        arrival = torch.rand(len(gaps), generator=torch.Generator().manual_seed(0)).double()
        result = clamp_fired(fires, arrival, group, low, high)
        for number in range(4):
            before, after = fires[group == number], result[group == number]
            wanted = min(max(int(before.sum()), int(low[number])), int(high[number]))
            assert int(after.sum()) == min(wanted, len(after))
            assert not (after & ~before).any() or not (before & ~after).any()

    def test_rates_keep_their_proportions(self) -> None:
        rate = torch.tensor([1.0, 3.0, 2.0, 0.0]).double()
        group = torch.tensor([0, 0, 1, 2])
        low, high = torch.tensor([0, 5, 1]), torch.tensor([2, 9, 3])
        assert within(rate, group, low, high).tolist() == [0.5, 1.5, 5.0, 0.0]

    def limits(self, most: list[int], least: list[int], inserted: list[int]) -> Limits:
        """Two blanks of one text, with two gaps each."""
        room = torch.tensor(most) - torch.tensor(inserted)
        return Limits(
            sequence=torch.zeros(4, dtype=torch.int64),
            open=torch.ones(4, dtype=torch.bool),
            shortfall=torch.tensor([0]),
            room=torch.tensor([50]),
            blank=torch.tensor([0, 0, 1, 1]),
            owner=torch.tensor([0, 0]),
            lacking=(torch.tensor(least) - torch.tensor(inserted)).clamp(min=0),
            room_in_blank=room,
            bounded=True,
        )

    def test_a_full_blank_expects_nothing_and_leaves_its_share_to_no_one(self) -> None:
        limits = self.limits(most=[3, 9], least=[0, 0], inserted=[3, 1])
        rate = torch.tensor([4.0, 4.0, 1.0, 2.0]).double()
        low, high = torch.tensor([0]), torch.tensor([6])
        # Three tokens are expected in the other blank, which is within all limits.
        assert limits.bend(rate, low, high, HASTY).tolist() == [0, 0, 1, 2]

    def test_rates_bend_towards_the_limits_of_each_blank(self) -> None:
        limits = self.limits(most=[2, 9], least=[0, 6], inserted=[0, 0])
        rate = torch.tensor([4.0, 4.0, 1.0, 2.0]).double()
        low, high = torch.tensor([0]), torch.tensor([50])
        assert limits.bend(rate, low, high, HASTY).tolist() == [1, 1, 2, 4]

    def test_a_blank_waits_for_the_model_to_expect_as_little_as_there_is_room_for(self) -> None:
        limits = self.limits(most=[1, 5], least=[1, 5], inserted=[0, 0])
        low, high = torch.tensor([0]), torch.tensor([50])

        def bent(*rates: float) -> list[float]:
            return limits.bend(torch.tensor(rates).double(), low, high, ~HASTY).tolist()

        assert bent(0.5, 0.5, 3.0, 3.0) == [0, 0, 0, 0]
        assert bent(0.2, 0.2, 2.0, 2.0) == [0, 0, 2.5, 2.5]
        # One token is all that comes, if any does, where a tenth of one is expected.
        assert bent(0.05, 0.05, 2.0, 3.4) == pytest.approx([0.5, 0.5, 2 / 1.08, 3.4 / 1.08])
        assert bent(0.05, 0.05, 3.0, 3.0) == [0.5, 0.5, 0, 0]


class TestSteps:
    def test_the_last_leap_of_counted_expects_at_most_one_token_in_any_gap(self) -> None:
        moment = self.moment([3.0, 1.0], target=0.0)
        moment = replace(moment, missing=torch.tensor([4.0]).double())
        assert counted(moment)[1].item() == pytest.approx(0.5 * 2 / 3)
        moment = replace(self.moment([0.5, 0.5], target=0.0), missing=torch.tensor([1.0]).double())
        assert counted(moment)[1].item() == 0

    def moment(self, rate, time=0.5, target=0.25, dispersion=0.0) -> Moment:
        rate = torch.tensor(rate, dtype=torch.float64)
        whole = torch.tensor([time], dtype=torch.float64)
        return Moment(
            rate=rate,
            uniform=torch.full_like(rate, 0.5),
            sequence=torch.zeros(len(rate), dtype=torch.int64),
            offsets=torch.tensor([0, len(rate)]),
            time=whole,
            target=torch.full_like(whole, target),
            latest=torch.full_like(whole, target),
            missing=torch.full_like(whole, torch.inf),
            dispersion=torch.full_like(whole, dispersion),
            flips=lambda count, chance: count,
        )

    def test_an_adaptive_step_expects_no_more_than_its_caution_in_any_gap(self) -> None:
        moment = self.moment([0.2, 40.0, *[10.0] * 30])
        _, time = adaptive(moment)
        assert float(40 * (1 - time / moment.time)) == pytest.approx(CAUTION)

    def test_where_nothing_is_clipped_it_is_the_papers_step(self) -> None:
        moment = self.moment([0.3, 0.45] * 10, target=0.3)
        for ours, theirs in zip(adaptive(moment), tau_leaping(moment), strict=True):
            assert ours.tolist() == theirs.tolist()

    def test_where_a_leap_would_bring_little_one_token_comes(self) -> None:
        """At its own time, or none until the next time of the grid (Eq. first-arrival)."""
        moment = self.moment([3.0, 2.0, 0.0], target=0.25)
        moment = replace(moment, uniform=torch.tensor([0.7, 0.1, 0.0]).double())
        fires, time = adaptive(moment)
        assert fires.tolist() == [False, True, False]
        arrival = -math.log(0.9) / 2
        assert time.item() == pytest.approx(0.5 * (1 - arrival))
        uncertain = replace(moment, dispersion=torch.tensor([2.0]).double())
        later = 0.5 * (1 - math.expm1(2 * 5 * arrival) / (2 * 5))
        assert adaptive(uncertain)[1].item() == pytest.approx(later)
        unlucky = replace(moment, uniform=torch.tensor([0.99, 0.9, 0.0]).double())
        fires, time = adaptive(unlucky)
        assert not fires.any()
        assert time.item() == 0.25
        # It may be waited for while several times of the grid pass.
        patient = replace(moment, target=torch.tensor([0.48]).double())
        fires, time = adaptive(patient)
        assert fires.tolist() == [False, True, False]
        assert time.item() == pytest.approx(0.5 * (1 - arrival))
        assert time.item() < 0.48

    @pytest.mark.parametrize("dispersion", [0.0, 0.5, 2.0])
    def test_first_arrivals_are_those_of_negative_binomial_counts(self, dispersion) -> None:
        """None of the missing tokens has come with the chance E[(1 - share)^count]."""
        many, mean, share = 40_000, 3.0, 0.2
        rate = torch.tensor([1.0, 2.0], dtype=torch.float64).repeat(many)
        rng = np.random.default_rng(0)
        moment = replace(
            self.moment([1.0]),
            rate=rate,
            uniform=torch.from_numpy(rng.random(2 * many)),
            sequence=torch.arange(many).repeat_interleave(2),
            offsets=2 * torch.arange(many + 1),
            time=torch.ones(many, dtype=torch.float64),
            target=torch.full((many,), 1 - share, dtype=torch.float64),
            latest=torch.full((many,), 1 - share, dtype=torch.float64),
            dispersion=torch.full((many,), dispersion, dtype=torch.float64),
        )
        fires, time = adaptive(moment)
        assert torch.equal(fires.view(many, 2).any(-1), time > 1 - share)
        assert fires.view(many, 2).sum(-1).max() == 1
        none = float((time == 1 - share).double().mean())
        if dispersion:
            counts = rng.negative_binomial(1 / dispersion, 1 / (1 + dispersion * mean), 10**6)
        else:
            counts = rng.poisson(mean, 10**6)
        assert none == pytest.approx(np.mean((1 - share) ** counts), abs=0.01)
        of_first = float(fires.view(many, 2)[:, 0].double().sum() / fires.sum())
        assert of_first == pytest.approx(1 / 3, abs=0.02)

    def test_time_ends_only_when_no_gap_surely_lacks_a_token(self) -> None:
        assert adaptive(self.moment([1.0, 0.1], target=0.0))[1].item() > 0
        assert adaptive(self.moment([0.2, 0.1], target=0.0))[1].item() == 0
        assert adaptive(self.moment([1.0, 0.1], time=0.003, target=0.0))[1].item() == 0


class TestGrids:
    def test_a_corrected_grid_rises_by_the_share_and_comes_back(self) -> None:
        grid = corrected(uniform_grid(4), 0.2, times=2, steps=2)
        np.testing.assert_allclose(
            grid, [1, 0.75, 0.5, 0.6, 0.55, 0.5, 0.25, 0, 0.2, 0.1, 0], atol=1e-12
        )

    def test_correcting_nothing_is_the_grid_itself(self) -> None:
        np.testing.assert_array_equal(corrected(uniform_grid(4), 0.0, 1, 1), uniform_grid(4))

    @pytest.mark.parametrize(("share", "times", "steps"), [(1.0, 1, 1), (-0.1, 1, 1), (0.1, 0, 1)])
    def test_impossible_corrections_are_refused(self, share, times, steps) -> None:
        with pytest.raises(ValueError, match="correct"):
            corrected(uniform_grid(4), share, times, steps)


def test_exact_scores_are_those_of_the_laboratory() -> None:
    world: ExactDiffusion = VARIABLE
    u = torch.tensor([0.3, 0.8], dtype=torch.float64)
    answer = ExactScorer(world).read(pack([[0], [1, 0]], bos=0), u)
    log_rate, features = answer.log_rate, answer.features
    first = world.insertion_score((0,), u[:1])[0]
    torch.testing.assert_close(log_rate[:2].exp()[:, None] * features[:2].exp(), first)
    second = world.insertion_score((1, 0), u[1:])[0]
    torch.testing.assert_close(log_rate[2:].exp()[:, None] * features[2:].exp(), second)
