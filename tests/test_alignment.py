import threading
import time
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from didlm.alignment import (
    count_occurrences,
    insertion_targets,
    insertion_targets_batch,
    insertion_targets_batch_reference,
    insertion_targets_reference,
    leftmost_occurrence,
    result_groups,
)
from didlm.alignment.windowed import window_cells
from didlm.packed import pack
from oracles import assert_targets, big_integer_targets, exhaustive_targets

BOTH = pytest.mark.parametrize("targets", [insertion_targets, insertion_targets_reference])
BATCHES = pytest.mark.parametrize(
    "targets", [insertion_targets_batch, insertion_targets_batch_reference]
)


def random_spans(length: int, rng: np.random.Generator) -> list[int]:
    """Up to three spans, touching or apart, numbered in no particular order."""
    given = np.zeros(length, dtype=int)
    numbers = rng.permutation(9)[:3] + 1
    cuts = np.sort(rng.integers(0, length + 1, size=6)).reshape(3, 2)
    for number, (start, stop) in zip(numbers, cuts, strict=True):
        given[start:stop] = number
    return given.tolist()


@BOTH
def test_ten_thousand_random_cases_equal_exhaustion(targets) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        length, symbols = rng.integers(0, 11), rng.integers(1, 5)
        x0 = rng.integers(0, symbols, length).tolist()
        keep = (rng.random(length) < rng.random()).tolist()
        assert_targets(targets(x0, keep), exhaustive_targets(x0, keep), absolute=1e-10)


@BOTH
def test_given_spans_equal_exhaustion_over_alignments_that_keep_them(targets) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        length, symbols = rng.integers(0, 11), rng.integers(1, 4)
        x0 = rng.integers(0, symbols, length).tolist()
        given = random_spans(length, rng)
        keep = (rng.random(length) < rng.random()) | (np.array(given, dtype=int) != 0)
        expected = exhaustive_targets(x0, keep.tolist(), given)
        assert_targets(targets(x0, keep, given), expected, absolute=1e-10)


@BOTH
@pytest.mark.parametrize("symbols", [2, 4, 60])
def test_length_300_equals_big_integers(targets, symbols) -> None:
    rng = np.random.default_rng(symbols)
    for density in (0.1, 0.5, 0.9):
        x0 = rng.integers(0, symbols, 300).tolist()
        keep = (rng.random(300) < density).tolist()
        assert_targets(targets(x0, keep), big_integer_targets(x0, keep), relative=1e-9)


@BOTH
def test_one_repeated_symbol_of_length_4096(targets) -> None:
    keep = np.random.default_rng(0).permutation(4096) < 2048
    result = targets(np.full(4096, 7), keep)
    assert result.gap.tolist() == list(range(2049))
    assert set(result.token.tolist()) == {7}
    np.testing.assert_allclose(result.ratio, 2048 / 2049, rtol=1e-9)


def test_one_repeated_symbol_of_length_16384_is_finite() -> None:
    keep = np.random.default_rng(0).permutation(16_384) < 8192
    result = insertion_targets(np.zeros(16_384, dtype=int), keep)
    assert np.isfinite(result.ratio).all()
    np.testing.assert_allclose(result.ratio, 8192 / 8193, rtol=1e-9)


def test_counts_far_apart_keep_their_digits() -> None:
    """A skip that is 2^-2000 as likely as a take must neither overflow nor disturb the rest."""
    # x_t is a 1 and half of the zeros after it; the 1 may be the early one or the late one.
    x0 = np.r_[1, np.zeros(2400, dtype=int), 1, np.zeros(1300, dtype=int)]
    keep = np.zeros(x0.size, dtype=bool)
    keep[0] = True
    keep[1 : 1 + 2 * 1300 : 2] = True
    result = insertion_targets(x0, keep)
    assert_targets(result, big_integer_targets(x0.tolist(), keep.tolist()), relative=1e-9)


def test_counts_that_jump_by_several_exponents_are_read_on() -> None:
    """Three places for the 1: at the middle one the count jumps, at the first one it is read."""
    x0 = np.r_[1, np.zeros(5, dtype=int), 1, np.zeros(1300, dtype=int), 1, np.zeros(500, dtype=int)]
    keep = np.r_[True, np.zeros(1307, dtype=bool), np.ones(500, dtype=bool)]
    result = insertion_targets(x0, keep)
    expected = big_integer_targets(x0.tolist(), keep.tolist())
    assert_targets(result, expected, relative=1e-9, absolute=1e-300)


sequences = st.integers(1, 6).flatmap(
    lambda symbols: st.lists(st.tuples(st.integers(0, symbols - 1), st.booleans()), max_size=60)
)


@forall(sequences)
@settings(max_examples=300, deadline=None)
def test_ratios_sum_to_the_number_of_missing_tokens(pairs) -> None:
    x0, keep = [token for token, _ in pairs], [kept for _, kept in pairs]
    for targets in (insertion_targets, insertion_targets_reference):
        result = targets(x0, keep)
        assert result.ratio.sum() == pytest.approx(len(x0) - sum(keep), rel=1e-9)
        order = list(zip(result.gap, result.token, strict=True))
        assert order == sorted(set(order))


def test_ratios_of_long_texts_sum_to_the_number_of_missing_tokens() -> None:
    rng = np.random.default_rng(3)
    for symbols, length in [(1, 3000), (2, 3000), (4, 5000), (1000, 20_000)]:
        for density in (0.001, 0.2, 0.5, 0.97):
            x0, keep = rng.integers(0, symbols, length), rng.random(length) < density
            total = insertion_targets(x0, keep).ratio.sum()
            assert total == pytest.approx((~keep).sum(), rel=1e-9)


@BOTH
def test_nothing_kept_all_kept_and_the_shortest_texts(targets) -> None:
    assert_targets(targets([], []), {})
    assert_targets(targets([5], [True]), {})
    assert_targets(targets([5], [False]), {(0, 5): 1})
    assert_targets(targets([5, 3, 5], [True] * 3), {})
    assert_targets(targets([5, 3, 5], [False] * 3), {(0, 3): 1, (0, 5): 2}, absolute=1e-12)
    assert targets([], []).gap.dtype == np.int64
    assert targets([], []).ratio.dtype == np.float64


@BOTH
def test_the_papers_example(targets) -> None:
    b, a, g = 0, 1, 2
    x0, x_t = [b, a, b, g, b, a, g], [b, a, g]
    assert count_occurrences(x_t, x0) == 5
    keep = leftmost_occurrence(x_t, x0)
    assert_targets(targets(x0, keep), exhaustive_targets(x0, keep.tolist()), absolute=1e-12)


@BOTH
def test_only_x_t_matters_not_which_occurrence_was_kept(targets) -> None:
    x0 = [0, 1, 0, 2, 0, 1, 2]
    one = targets(x0, [True, True, False, True, False, False, False])
    other = targets(x0, [False, False, False, False, True, True, True])
    np.testing.assert_array_equal(one.gap, other.gap)
    np.testing.assert_array_equal(one.token, other.token)
    np.testing.assert_allclose(one.ratio, other.ratio)


@BATCHES
def test_the_id_of_bos_inside_a_text_changes_nothing_about_bos(targets) -> None:
    x0, keep = [3, 0, 3, 3, 1], [False, True, True, False, True]
    alone = insertion_targets(x0, keep)
    for bos in (3, 0, 99):
        batch = pack([x0], bos=bos)
        result = targets(batch, [True, *keep])
        np.testing.assert_array_equal(result.gap, alone.gap)
        np.testing.assert_array_equal(result.token, alone.token)
        np.testing.assert_allclose(result.ratio, alone.ratio)


@BATCHES
def test_a_batch_is_its_sequences_one_after_the_other(targets) -> None:
    rng = np.random.default_rng(4)
    texts, keeps, spans = [], [], []
    for length in [7, 0, 1, 40, 300, 0]:
        texts.append(rng.integers(0, 3, length))
        spans.append(random_spans(length, rng))
        keeps.append((rng.random(length) < 0.5) | (np.array(spans[-1], dtype=int) != 0))
    batch = pack(texts, bos=0, given=spans)
    keep = np.concatenate([np.r_[True, k] for k in keeps])
    result, x_t = targets(batch, keep), batch.delete(torch.from_numpy(keep))
    for s, (text, mask, span) in enumerate(zip(texts, keeps, spans, strict=True)):
        alone = insertion_targets(text, mask, span)
        first, last = x_t.offsets[s : s + 2].tolist()
        mine = (result.gap >= first) & (result.gap < last)
        np.testing.assert_array_equal(result.gap[mine] - first, alone.gap)
        np.testing.assert_array_equal(result.token[mine], alone.token)
        np.testing.assert_allclose(result.ratio[mine], alone.ratio, rtol=1e-9)


def test_window_cells_are_counted() -> None:
    m, n = 30, 12
    keep = np.arange(m) < n
    batch = pack([np.zeros(m, dtype=int), np.arange(m)], bos=0)
    mask = np.r_[True, keep, True, keep]
    # One symbol: every gap reaches everywhere. All different: only the last gap has a choice.
    assert window_cells(batch, mask) == (n + 1) * (m - n + 1) + n + (m - n + 1)


@BATCHES
def test_an_empty_batch_has_no_targets(targets) -> None:
    assert targets(pack([], bos=0), []).gap.size == 0


def test_ids_may_be_as_large_as_an_int64() -> None:
    large = 2**62
    result = insertion_targets([large, 5, large, 5], [False, True, False, False], [0, 1, 0, 0])
    assert_targets(result, {(0, large): 1, (1, 5): 1, (1, large): 1})


def test_ratios_too_small_for_a_float_become_zero_and_stay_listed() -> None:
    # The 1 can be the first or the last; with the last there is one alignment among 2^4000.
    x0 = np.r_[1, np.zeros(3000, dtype=int), 1, np.zeros(1500, dtype=int)]
    keep = np.r_[True, np.zeros(3000, dtype=bool), False, np.ones(1500, dtype=bool)]
    result = insertion_targets(x0, keep)
    assert result.ratio.min() == 0
    assert (result.gap[0], result.token[0], result.ratio[0]) == (0, 0, 0.0)
    assert result.ratio.sum() == pytest.approx(3001, rel=1e-9)
    reference = insertion_targets_reference(x0, keep)
    np.testing.assert_array_equal(result.gap, reference.gap)
    np.testing.assert_allclose(result.ratio, reference.ratio, rtol=1e-9, atol=1e-300)


def test_tensors_arrays_and_lists_are_all_accepted() -> None:
    x0, keep = [1, 2, 1, 1], [True, False, False, True]
    expected = exhaustive_targets(x0, keep)
    assert_targets(insertion_targets(torch.tensor(x0), torch.tensor(keep)), expected, 1e-12)
    assert_targets(insertion_targets(np.array(x0, np.uint16), np.array(keep)), expected, 1e-12)
    assert_targets(insertion_targets(tuple(x0), tuple(keep)), expected, 1e-12)


BAD = {
    "lengths": (([1, 2, 3], [True, False]), "keep has 2 entries, but x0 has 3"),
    "negative": (([1, -2, 3], [True] * 3), "negative id, -2, at position 1"),
    "numbers as keep": (([1, 2], [1, 0]), "keep must be booleans: got int64"),
    "floats": (([1.0, 2.0], [True, True]), "x0 must be integers: got float64"),
    "booleans": (([True, False], [True, True]), "x0 must be integers: got bool"),
    "tables": (([[1, 2]], [True, True]), r"x0 must be one-dimensional: got shape \(1, 2\)"),
    "ragged": (([[1], [2, 3]], [True, True]), "x0 must be one-dimensional"),
    "none": ((None, [True]), "x0 must be one-dimensional"),
    "words": (("abc", [True]), "x0 must be one-dimensional"),
    "bfloat16": ((torch.ones(2, dtype=torch.bfloat16), [True] * 2), "x0 must be a plain tensor"),
    "too large": (([2**63], [True]), "too large"),
    "given too short": (([1, 2], [True, True], [0]), "given has 1 entries, but x0 has 2"),
    "negative span": (([1, 2], [True, True], [0, -1]), r"given\[1\] is -1"),
    "broken span": (
        ([1, 2, 3], [True] * 3, [4, 0, 4]),
        "span 4 of given starts a second time at position 2",
    ),
    "given deleted": (([1, 2, 3], [True, False, True], [0, 6, 6]), "position 1 of x0 is given"),
}


@BOTH
@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_a_sentence(targets, arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        targets(*arguments)


@BATCHES
def test_a_batch_mask_that_deletes_bos_or_given_tokens_is_refused(targets) -> None:
    batch = pack([[1, 2], [3]], bos=0, given=[[0, 0], [5]])
    with pytest.raises(ValueError, match=r"row 3 \(sequence 1, before the text\) is BOS"):
        targets(batch, [True, True, True, False, True])
    with pytest.raises(ValueError, match=r"row 4 \(sequence 1, at position 0\) is given"):
        targets(batch, [True, True, True, True, False])
    with pytest.raises(ValueError, match="keep must be 5 booleans"):
        targets(batch, [True, True])


def test_x_t_that_is_not_contained_is_refused() -> None:
    with pytest.raises(ValueError, match="token 7 at position 1 does not occur from position 2"):
        leftmost_occurrence([4, 7], [7, 4, 5])
    with pytest.raises(ValueError, match="not contained"):
        leftmost_occurrence([1, 1], [1])


@forall(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=4))
def test_count_occurrences_counts_index_subsets(x0, x_t) -> None:
    count = sum(list(chosen) == x_t for chosen in combinations(x0, len(x_t)))
    assert count_occurrences(x_t, x0) == count


def test_the_lock_is_released_while_aligning() -> None:
    """Another thread goes on counting while one long alignment runs."""
    keep = np.random.default_rng(0).permutation(12_000) < 6000
    x0 = np.zeros(12_000, dtype=int)
    insertion_targets(x0[:4], keep[:4])  # compiled before the clock starts
    span = {}

    def align() -> None:
        span["start"] = time.perf_counter()
        insertion_targets(x0, keep)
        span["stop"] = time.perf_counter()

    worker = threading.Thread(target=align)
    worker.start()
    ticks = []
    while worker.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    worker.join()
    middle = (span["start"] + span["stop"]) / 2
    width = (span["stop"] - span["start"]) / 4
    assert any(abs(tick - middle) < width for tick in ticks)


def test_groups_are_the_insertions_with_one_result() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        length = rng.integers(0, 9)
        x0 = rng.integers(0, 2, length)
        spans = np.array(random_spans(length, rng), dtype=int)
        keep = (rng.random(length) < 0.6) | (spans != 0)
        batch = pack([x0, x0], bos=0, given=[spans, spans])
        mask = torch.from_numpy(np.tile(np.r_[True, keep], 2))
        x_t, found = batch.delete(mask), insertion_targets_batch(batch, mask)
        groups = result_groups(x_t, found)
        # A given token is a thing of its own: mark it, then compare whole results.
        marks = torch.where(x_t.given != 0, -1 - torch.arange(x_t.rows), x_t.tokens)
        marks[x_t.offsets[:-1]] = -1000 - torch.arange(2)
        results = [
            (*marks[: row + 1].tolist(), token, *marks[row + 1 :].tolist())
            for row, token in zip(found.gap.tolist(), found.token.tolist(), strict=True)
        ]
        same = np.equal.outer(groups, groups)
        expected = np.array([[a == b for b in results] for a in results]).reshape(same.shape)
        np.testing.assert_array_equal(same, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_reference_runs_on_the_device_of_its_inputs() -> None:
    rng = np.random.default_rng(6)
    batch = pack([rng.integers(0, 3, length) for length in (0, 50, 300)], bos=0)
    keep = torch.from_numpy(rng.random(batch.rows) < 0.5) | batch.is_bos
    there = insertion_targets_batch_reference(batch.to("cuda"), keep)
    here = insertion_targets_batch(batch, keep)
    np.testing.assert_array_equal(there.gap, here.gap)
    np.testing.assert_array_equal(there.token, here.token)
    np.testing.assert_allclose(there.ratio, here.ratio, rtol=1e-9)
    text, mask = batch.unpack()[2].cuda(), keep[-300:].cuda()
    one, same = insertion_targets_reference(text, mask), insertion_targets(text, mask)
    np.testing.assert_allclose(one.ratio, same.ratio, rtol=1e-9)


@pytest.mark.long
def test_a_hundred_thousand_random_cases_with_given_spans_equal_exhaustion() -> None:
    rng = np.random.default_rng(7)
    for _ in range(100_000):
        length, symbols = rng.integers(0, 11), rng.integers(1, 5)
        x0 = rng.integers(0, symbols, length).tolist()
        given = random_spans(length, rng) if rng.random() < 0.5 else [0] * length
        keep = (rng.random(length) < rng.random()) | (np.array(given, dtype=int) != 0)
        expected = exhaustive_targets(x0, keep.tolist(), given)
        assert_targets(insertion_targets(x0, keep, given), expected, absolute=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("length", [1000, 2000])
def test_long_adversarial_texts_equal_big_integers(length) -> None:
    """Runs of very different lengths, so that neighbouring counts differ by thousands of bits."""
    rng = np.random.default_rng(length)
    for _ in range(6):
        runs = rng.geometric(8 / length, 40)
        x0 = np.repeat(rng.integers(0, 2, runs.size), runs)[:length]
        keep = rng.random(x0.size) < np.repeat(rng.random(x0.size // 50 + 1), 50)[: x0.size]
        expected = big_integer_targets(x0.tolist(), keep.tolist())
        assert_targets(insertion_targets(x0, keep), expected, relative=1e-9, absolute=1e-300)
