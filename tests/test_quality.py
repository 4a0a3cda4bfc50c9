"""Figures about samples: each against the plainest way to compute it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.grams import copied_share, distinct_n, gram_hashes
from didlm.evaluate.order import measure_order, rank_correlation, ranks
from didlm.evaluate.quality import Verdict, cumulative, ks_distance, unigram_entropy
from didlm.generate.results import Sample

texts = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=6)
values = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


def grams(text: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(text[first : first + n]) for first in range(len(text) - n + 1)]


def all_grams(many: list[list[int]], n: int) -> list[tuple[int, ...]]:
    return [gram for text in many for gram in grams(text, n)]


class TestEntropy:
    @given(st.integers(1, 300), st.integers(1, 4), st.randoms())
    def test_of_n_distinct_tokens_it_is_log_n_however_often_each_occurs(self, n, times, random):
        tokens = list(range(n)) * times
        random.shuffle(tokens)
        assert unigram_entropy(tokens) == pytest.approx(math.log2(n), abs=1e-9)

    def test_it_is_a_sum_over_distinct_tokens_and_not_over_places(self) -> None:
        assert unigram_entropy([7, 7, 7, 8]) == pytest.approx(2 - 0.75 * math.log2(3))

    def test_an_empty_text_has_none(self) -> None:
        assert unigram_entropy([]) == 0

    def test_one_token_over_and_over_has_none(self) -> None:
        assert math.copysign(1, unigram_entropy([3, 3])) == 1


class TestLengths:
    @given(values, values)
    def test_the_distance_is_the_largest_difference_anywhere(self, a, b) -> None:
        everywhere = np.arange(-6, 7, 0.5)
        plain = max(abs(np.mean(np.array(a) <= x) - np.mean(np.array(b) <= x)) for x in everywhere)
        assert ks_distance(a, b) == pytest.approx(plain)
        assert ks_distance(b, a) == ks_distance(a, b)
        assert ks_distance(a, a) == 0

    def test_lengths_that_have_nothing_in_common_are_one_apart(self) -> None:
        assert ks_distance([1, 2], [3, 4, 5]) == 1

    def test_the_distribution_function_counts_what_is_no_larger(self) -> None:
        assert cumulative([3, 1, 1, 2], np.array([0, 1, 2, 9])).tolist() == [0, 0.5, 0.75, 1]

    @pytest.mark.parametrize("pair", [([], [1]), ([1], [])])
    def test_nothing_has_no_distribution(self, pair) -> None:
        with pytest.raises(ValueError, match="nothing"):
            ks_distance(*pair)


class TestRuns:
    @given(texts, st.integers(1, 4))
    def test_distinct_runs_are_those_of_a_set(self, many, n) -> None:
        found = all_grams(many, n)
        assert len(gram_hashes(many, n)) == len(found)
        assert distinct_n(many, n) == (len(set(found)) / len(found) if found else None)

    @given(texts, texts, st.integers(1, 4))
    def test_copied_runs_are_those_of_a_set(self, samples, training, n) -> None:
        found, known = all_grams(samples, n), set(all_grams(training, n))
        share = sum(gram in known for gram in found) / len(found) if found else None
        assert copied_share(samples, training, n) == share

    def test_training_texts_are_looked_up_in_parts(self, monkeypatch) -> None:
        monkeypatch.setattr("didlm.evaluate.grams.TOKENS_AT_A_TIME", 4)
        training = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1]]
        assert copied_share([[8, 9], [5, 6], [2, 4], [1, 1]], training, 2) == 0.75

    def test_a_text_of_its_own_is_copied_and_a_new_one_is_not(self) -> None:
        rng = np.random.default_rng(0)
        training = [rng.integers(0, 50_000, 200) for _ in range(50)]
        assert copied_share(training[:3], training) == 1
        assert copied_share([rng.integers(0, 50_000, 200)], training) == 0

    def test_samples_shorter_than_a_run_tell_nothing(self) -> None:
        assert copied_share([[1] * 12], [[1] * 100]) is None

    def test_no_run_goes_over_the_end_of_a_text(self) -> None:
        assert copied_share([[2, 3]], [[1, 2], [3, 4]], 2) == 0

    def test_a_run_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="n = 0"):
            distinct_n([[1]], 0)


class TestVerdict:
    def test_perplexity_is_a_mean_of_texts_and_nats_one_of_tokens(self) -> None:
        verdict = Verdict("j", np.array([2.0, 30.0, 0.0]), np.array([1, 10, 0]))
        assert verdict.perplexity == pytest.approx(math.exp((2 + 3) / 2))
        assert verdict.nats_per_token == pytest.approx(32 / 11)
        assert verdict.left_out == 1

    def test_nothing_to_judge_is_no_figure(self) -> None:
        verdict = Verdict("j", np.zeros(2), np.zeros(2, dtype=np.int64))
        assert (verdict.perplexity, verdict.nats_per_token, verdict.left_out) == (None, None, 2)


def born(births: list[int], tokens: list[int] | None = None, steps: int | None = None) -> Sample:
    tokens = tokens or [65] * len(births)
    steps = max(births, default=0) if steps is None else steps
    return Sample("", tokens, births, steps, steps, 0.0, 0, 0)


class TestOrder:
    tokenizer = Tokenizer.train_bpe(["a b c d"], 257)

    def measure(self, *samples: Sample, often: int = 1):
        return measure_order(samples, self.tokenizer, often)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).tolist()

    def test_equal_values_share_a_rank(self) -> None:
        assert ranks(np.array([5, 1, 5, 9])).tolist() == [1.5, 0, 1.5, 3]

    def test_correlation_is_of_ranks(self) -> None:
        assert rank_correlation(np.array([1, 2, 300]), np.array([9, 5, 4])) == pytest.approx(-1)
        assert rank_correlation(np.array([1, 1, 1]), np.array([9, 5, 4])) is None

    def test_tokens_are_named_from_the_first_to_come_to_the_last(self) -> None:
        order = self.measure(born([3, 1, 2], self.ids("abc")), born([2, 1, 3], self.ids("abc")))
        assert [(t.text, t.rank, t.count) for t in order.earliest] == [
            ("b", 0, 2), ("a", 0.75, 2), ("c", 0.75, 2),
        ]  # fmt: skip
        assert [token.text for token in order.latest] == ["c", "a", "b"]

    def test_frequent_tokens_that_come_first_correlate_negatively(self) -> None:
        order = self.measure(born([1, 2, 3, 4, 5, 6], self.ids("aaabbc")))
        assert order.frequency_correlation == pytest.approx(-1)

    def test_rare_tokens_and_given_ones_are_not_ranked(self) -> None:
        sample = born([0, 1, 2, 3, 0, 0], self.ids("caabcc"))
        order = self.measure(sample, often=2)
        assert [token.text for token in order.earliest] == ["a"]

    def test_a_token_alone_is_neither_early_nor_late(self) -> None:
        assert self.measure(born([1], self.ids("a"))).earliest == []

    def test_tokens_are_counted_by_step(self) -> None:
        order = self.measure(born([1, 2, 2, 4, 4, 4], steps=5), born([2], steps=5))
        assert order.most_per_step == 3
        assert order.per_step == pytest.approx(7 / 10)

    def test_tenths_are_of_the_steps_of_each_text(self) -> None:
        order = self.measure(born([1, 2, 2, 20], steps=20), born([10, 10], steps=10))
        assert order.per_step_by_tenth == [1.0, *[0.0] * 8, 1.0]
        assert self.measure(born([1, 2], steps=2)).per_step_by_tenth[1] is None

    def test_neighbours_born_together_are_counted(self) -> None:
        order = self.measure(born([1, 1, 2, 1]))
        assert order.together == pytest.approx(1 / 3)

    def test_given_neighbours_do_not_count(self) -> None:
        order = self.measure(born([0, 0, 3, 3, 0, 2]))
        assert order.together == 1
        assert self.measure(born([0, 0])).together is None

    @given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=2))
    def test_shuffling_is_expected_over_all_orders(self, many) -> None:
        same, pairs = 0.0, 0
        for births in many:
            places = [place for place, step in enumerate(births) if step]
            shuffles = list(itertools.permutations([births[place] for place in places]))
            there = [i for i in range(len(births) - 1) if births[i] and births[i + 1]]
            pairs += len(there)
            for shuffle in shuffles:
                dealt = dict(zip(places, shuffle, strict=True))
                same += sum(dealt[i] == dealt[i + 1] for i in there) / len(shuffles)
        order = self.measure(*map(born, many))
        if not pairs:
            assert order.together_if_shuffled is None
        else:
            assert order.together_if_shuffled == pytest.approx(same / pairs)

    def test_nothing_written_is_no_order(self) -> None:
        order = self.measure(born([]))
        assert (order.per_step, order.most_per_step, order.together) == (0, 0, None)
        assert order.frequency_correlation is None
