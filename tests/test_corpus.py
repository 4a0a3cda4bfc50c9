"""Texts as slices of shards: documents, chunks, padding, weights."""

import pickle

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from didlm.data.corpus import SEPARATORS, Corpus, Documents, Shards, Slice

TOKEN_LISTS = st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=6)


@forall(TOKEN_LISTS)
def test_documents_are_what_they_were(token_lists) -> None:
    corpus = Corpus.of(token_lists)
    assert [text.tolist() for text in corpus] == token_lists
    assert corpus.lengths.tolist() == [len(tokens) for tokens in token_lists]
    assert corpus.tokens == sum(map(len, token_lists))
    assert corpus.longest == max(map(len, token_lists))


@forall(TOKEN_LISTS, st.integers(1, 5), st.data())
def test_chunks_are_the_documents_end_to_end_with_separators(token_lists, length, data) -> None:
    which = data.draw(st.lists(st.booleans(), min_size=len(token_lists), max_size=len(token_lists)))
    corpus = Corpus.of(token_lists, separator=9).select(np.array(which))
    kept = [tokens for tokens, keep in zip(token_lists, which, strict=True) if keep]
    stream = [token for tokens in kept for token in [*tokens, 9]]
    if len(stream) < length:
        return
    chunks = corpus.chunks(length)
    assert all(chunk.dtype == np.int64 and chunk.shape == (length,) for chunk in chunks)
    joined = np.concatenate(list(chunks)).tolist()
    assert joined == stream[: len(joined)]
    assert 0 <= len(stream) - len(joined) < length
    assert chunks.lengths.tolist() == [length] * len(chunks)
    assert [text.tolist() for text in chunks.first(1)] == [joined[:length]]


@pytest.mark.parametrize(
    ("token_lists", "length", "sentence"),
    [
        ([[1], [2]], 5, "the documents have 4 tokens with their separators, too few for one chunk"),
        ([], 5, "the documents have 0 tokens"),
        ([[1]], 0, "a chunk must have at least 1 token: got length 0"),
    ],
)
def test_impossible_chunks_are_refused(token_lists, length, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Corpus.of(token_lists).chunks(length)


def test_negative_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="document 1 has a negative id, -3, at position 0"):
        Corpus.of([[1], [-3]])


def test_prompts_cannot_be_cut_into_chunks() -> None:
    corpus = Corpus.of([[1, 2, 3]])
    corpus.table["prompt"] = 2
    assert corpus.has_prompts
    assert corpus.prompt(0) == 2
    with pytest.raises(ValueError, match="documents with prompts cannot be laid end to end"):
        corpus.chunks(2)


def test_cut_and_padded_documents() -> None:
    corpus = Corpus.of([[1, 2], [3, 4, 5, 6]], separator=9)
    assert [text.tolist() for text in corpus.cut(3)] == [[1, 2], [3, 4, 5]]
    padded = corpus.padded(3)
    assert [text.tolist() for text in padded] == [[1, 2, 9], [3, 4, 5]]
    assert padded.lengths.tolist() == [3, 3]
    assert corpus.lengths.tolist() == [2, 4]  # it is left as it was


def test_one_document_is_split_in_two() -> None:
    left, right = Corpus.of([range(10)]).split_at(7)
    assert left[0].tolist() == list(range(7))
    assert right[0].tolist() == [7, 8, 9]


def test_shards_in_files_are_mapped_and_sent_by_name(tmp_path) -> None:
    np.save(tmp_path / "one.npy", np.arange(100_000, dtype=np.uint16))
    shards = Shards([tmp_path / "one.npy", np.array([7, 8])], separator=5)
    slices = [Slice(0, 2, 3), Slice(SEPARATORS, 0, 2), Slice(1, 1, 1)]
    assert shards.read(slices).tolist() == [2, 3, 4, 5, 5, 8]
    assert shards.read(slices[:1]).dtype == np.int64
    sent = pickle.dumps(shards)
    assert len(sent) < 2000
    assert pickle.loads(sent).read(slices).tolist() == [2, 3, 4, 5, 5, 8]


def weighted(weights: list[float]) -> Documents:
    plain = Corpus.of([[n] for n in range(len(weights))])
    return Documents(plain.shards, plain.table, np.array(weights))


@forall(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=12).filter(lambda w: sum(w) > 0.6),
    st.integers(0, 100),
)
def test_an_epoch_holds_each_document_about_as_often_as_its_weight(weights, seed) -> None:
    corpus = weighted(weights)
    order = corpus.order(np.random.default_rng(seed))
    assert len(order) == corpus.epoch == max(1, round(sum(weights)))
    times = np.bincount(order, minlength=len(weights))
    expected = np.array(weights) * corpus.epoch / sum(weights)
    assert (np.abs(times - expected) < 1 + 1e-9).all()


def test_over_epochs_documents_come_as_often_as_their_weights() -> None:
    weights = [2.5, 1.0, 0.25, 0.25, 1.0]
    corpus = weighted(weights)
    rng = np.random.default_rng(0)
    times = sum(np.bincount(corpus.order(rng), minlength=5) for _ in range(4000)) / 4000
    np.testing.assert_allclose(times, weights, atol=0.04)


def test_figures_about_lengths_are_weighted() -> None:
    plain = Corpus.of([[1] * 2, [1] * 8])
    assert plain.mean_length == 5
    heavy = Documents(plain.shards, plain.table, np.array([3.0, 1.0]))
    assert heavy.mean_length == 3.5
    assert heavy.length_dispersion == pytest.approx((6.75 - 3.5) / 3.5**2)


def test_chunks_have_the_weight_of_the_document_in_which_they_begin() -> None:
    plain = Corpus.of([[1] * 3, [2] * 3])
    chunks = Documents(plain.shards, plain.table, np.array([2.0, 1.0])).chunks(2)
    assert [chunk.tolist() for chunk in chunks] == [[1, 1], [1, 0], [2, 2], [2, 0]]
    assert chunks.weights is not None
    assert chunks.weights.tolist() == [2, 2, 1, 1]
