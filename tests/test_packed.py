import numpy as np
import pytest
import torch
from hypothesis import given as forall
from hypothesis import strategies as st

from didlm.given import open_gaps
from didlm.packed import Packed, pack

texts = st.lists(st.lists(st.integers(0, 4), max_size=8), max_size=6)


def assert_same(one: Packed, other: Packed) -> None:
    for field in ("tokens", "offsets", "given", "open"):
        assert torch.equal(getattr(one, field), getattr(other, field)), field


@forall(texts)
def test_unpack_undoes_pack(lists) -> None:
    batch = pack(lists, bos=9)
    assert [text.tolist() for text in batch.unpack()] == lists
    assert len(batch) == len(lists)
    assert batch.lengths.tolist() == [len(text) for text in lists]
    assert batch.rows == sum(len(text) + 1 for text in lists)
    assert batch.tokens[batch.is_bos].tolist() == [9] * len(lists)
    assert batch.sequence.tolist() == [
        s for s, text in enumerate(lists) for _ in range(len(text) + 1)
    ]


@forall(texts, st.randoms(use_true_random=False))
def test_inserting_what_was_deleted_gives_the_batch_back(lists, random) -> None:
    batch = pack(lists, bos=0)
    keep = torch.tensor([random.random() < 0.5 for _ in range(batch.rows)], dtype=torch.bool)
    keep |= batch.is_bos
    left = batch.delete(keep)
    assert [text.tolist() for text in left.unpack()] == [
        text[k[1:]].tolist()
        for text, k in zip(batch.unpack(), keep.split(batch.offsets.diff().tolist()), strict=True)
    ]
    last_kept = keep.cumsum(0) - 1
    assert_same(left.insert(last_kept[~keep], batch.tokens[~keep]), batch)


def test_tokens_are_inserted_after_their_row_in_the_order_listed() -> None:
    batch = pack([[1, 2], [], [3]], bos=0)  # rows: 0 1 2 | 3 | 4 5
    many = batch.insert([1] * 40, list(range(40)))  # beyond what an unstable sort leaves in order
    assert many.unpack()[0].tolist() == [1, *range(40), 2]
    grown = batch.insert(torch.tensor([5, 0, 3, 0, 2]), torch.tensor([7, 8, 9, 6, 5]))
    assert [text.tolist() for text in grown.unpack()] == [[8, 6, 1, 2, 5], [9], [3, 7]]
    assert_same(batch.insert(torch.empty(0, dtype=int), torch.empty(0, dtype=int)), batch)


def test_gaps_inside_a_span_are_closed_and_between_spans_open() -> None:
    batch = pack([[1, 2, 3, 4, 5]], bos=0, given=[[7, 7, 2, 2, 0]])
    assert batch.open.tolist() == [True, False, True, False, True, True]
    assert open_gaps(np.array([1, 1, 2])).tolist() == [True, False, True, True]
    assert open_gaps(np.array([], dtype=int)).tolist() == [True]


def test_deletion_and_insertion_carry_given_and_open_along() -> None:
    batch = pack([[1, 2, 3, 4]], bos=0, given=[[1, 1, 0, 2]])
    left = batch.delete(torch.tensor([True, True, True, False, True]))
    assert left.given.tolist() == [0, 1, 1, 2]
    assert left.open.tolist() == [True, False, True, True]  # between two spans: open
    grown = left.insert(torch.tensor([2, 2]), torch.tensor([8, 9]))
    assert grown.tokens.tolist() == [0, 1, 2, 8, 9, 4]
    assert grown.given.tolist() == [0, 1, 1, 0, 0, 2]
    assert grown.open.tolist() == [True, False, True, True, True, True]


def test_only_gaps_without_free_tokens_beside_them_can_be_closed() -> None:
    batch = pack([[1, 2, 3]], bos=0, given=[[1, 1, 0]])
    assert batch.close([0]).open.tolist() == [False, False, True, True]
    for row in (2, 3):
        with pytest.raises(ValueError, match=f"row {row} .* or the next is free"):
            batch.close([row])
    for row in (-1, 4):
        with pytest.raises(ValueError, match=f"cannot close the gap after row {row} of 4"):
            batch.close([row])
    suffix = pack([[1, 2]], bos=0, given=[[0, 5]])
    assert suffix.close([2]).delete([True, False, True]).open.tolist() == [True, False]


def test_lists_arrays_and_small_integers_will_do() -> None:
    batch = pack([[1, 2], [3]], bos=0)
    left = batch.delete(np.array([True, False, True, True, True]))
    assert [text.tolist() for text in left.unpack()] == [[2], [3]]
    rows, tokens = torch.tensor([0, 3], dtype=torch.uint8), np.array([7, 8], dtype=np.int16)
    assert [text.tolist() for text in left.insert(rows, tokens).unpack()] == [[7, 2], [3, 8]]
    assert batch.delete([True] * 5).tokens.tolist() == batch.tokens.tolist()


def test_closed_gaps_refuse_insertions() -> None:
    prompt = pack([[1, 2]], bos=0, given=[[1, 1]])
    with pytest.raises(ValueError, match="row 1: its gap is closed"):
        prompt.insert(torch.tensor([2, 1]), torch.tensor([5, 5]))
    with pytest.raises(ValueError, match="row 0: its gap is closed"):
        prompt.close(torch.tensor([0])).insert(torch.tensor([0]), torch.tensor([5]))


def test_impossible_deletions_are_refused() -> None:
    batch = pack([[1], [2, 3]], bos=0, given=[[0], [0, 4]])
    with pytest.raises(ValueError, match=r"row 2 \(sequence 1, before the text\) is BOS"):
        batch.delete(torch.tensor([True, True, False, True, True]))
    with pytest.raises(ValueError, match=r"row 4 \(sequence 1, at position 1\) is given"):
        batch.delete(torch.tensor([True, True, True, True, False]))
    with pytest.raises(ValueError, match="keep must be 5 booleans"):
        batch.delete(torch.ones(5, dtype=torch.int64))
    with pytest.raises(ValueError, match="keep must be 5 booleans"):
        batch.delete(torch.ones(4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("rows", "tokens", "message"),
    [
        ([2], [1], "cannot insert after row 2: the batch has 2 rows"),
        ([-1], [1], "cannot insert after row -1"),
        ([0], [-3], "token -3 at position 0 is negative"),
        ([0, 1], [1], "one token per row"),
        ([0.0], [1], "rows to insert must be integers"),
        ([0], [1.5], "tokens to insert must be integers"),
    ],
)
def test_impossible_insertions_are_refused(rows, tokens, message) -> None:
    with pytest.raises(ValueError, match=message):
        pack([[1]], bos=0).insert(torch.tensor(rows), torch.tensor(tokens))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1], [2, -5]], 0), "text 1 has a negative id, -5, at position 1"),
        (([[1.5]], 0), "text 0 must be integers"),
        (([[1]], -1), "the id of BOS has a negative id, -1"),
        (([[1]], 1.5), "the id of BOS must be integers"),
        (([[1]], None), "the id of BOS must be integers"),
        (([[1], [2]], 0, [[0]]), "given describes 1 texts, but there are 2"),
        (([[1, 2]], 0, [[0]]), "given 0 has 1 entries, but text 0 has 2"),
        (([[1, 2, 3]], 0, [[1, 0, 1]]), "span 1 of given 0 starts a second time at position 2"),
    ],
)
def test_texts_that_cannot_be_packed_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        pack(*arguments)
