"""Mistakes in training examples: tokens are wrong, targets are those of the text as it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from didlm.methods.did import DID, FixedDID
from didlm.mistakes import MOST, with_mistakes
from didlm.train.settings import Settings

RNG = np.random.default_rng(0)
TEXTS = [np.arange(1, 1 + int(length)) for length in RNG.integers(0, 60, 80)]  # no token twice


def examples(**options):
    method = DID(bos=0, **options)
    return method.training_examples(TEXTS, range(len(TEXTS)), seed=5)


def test_only_tokens_change_and_only_in_some_examples() -> None:
    plain, mistaken = examples(given_share=0.5), examples(given_share=0.5, mistaken_share=0.5)
    for name in ("offsets", "row", "token", "target", "count", "given", "open", "deleted"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(mistaken, name))
    wrong = plain.tokens != mistaken.tokens
    assert wrong.any()
    assert not wrong[plain.offsets[:-1]].any()  # BOS
    assert not wrong[plain.given].any()
    touched = np.add.reduceat(wrong, plain.offsets[:-1]) > 0
    assert 0.1 < touched.mean() < 0.6


def test_wrong_tokens_are_of_the_same_text_and_few() -> None:
    mistaken = examples(mistaken_share=1.0)
    starts = mistaken.offsets[1:-1]
    for tokens, text in zip(np.split(mistaken.tokens, starts), TEXTS, strict=True):
        assert set(tokens[1:]) <= set(text)
    wrong = (mistaken.tokens != examples().tokens).mean()
    assert 0.02 < wrong < MOST


def test_the_same_example_errs_alike_whatever_is_beside_it() -> None:
    method = DID(bos=0, mistaken_share=1.0)
    together = method.training_examples(TEXTS, range(len(TEXTS)), seed=5)
    for number in (3, 40):
        alone = method.training_examples([TEXTS[number]], [number], seed=5)
        np.testing.assert_array_equal(together.part(number, number + 1).tokens, alone.tokens)


def test_bounds_are_of_texts_without_mistakes() -> None:
    kwargs = {"texts": TEXTS, "numbers": range(len(TEXTS)), "seed": 1, "draws": 2}
    plain = DID(bos=0).evaluation_examples(**kwargs)
    mistaken = DID(bos=0, mistaken_share=1.0).evaluation_examples(**kwargs)
    np.testing.assert_array_equal(plain.tokens, mistaken.tokens)


def test_chunks_may_have_them_too() -> None:
    texts = [np.arange(20)] * 4
    plain, mistaken = (
        FixedDID(bos=0, fixed_length=20, mistaken_share=share).training_examples(
            texts, range(4), seed=0
        )
        for share in (0.0, 1.0)
    )
    assert (plain.tokens != mistaken.tokens).any()
    np.testing.assert_array_equal(plain.target, mistaken.target)


@given(st.integers(0, 30), st.floats(0, 1), st.integers(0, 2**32))
def test_what_may_not_err_does_not(length, share, seed) -> None:
    rng = np.random.default_rng(seed)
    text = rng.integers(5, 9, length)
    free = rng.random(length) < 0.5
    tokens = with_mistakes(text, free, text, share, rng)
    assert (tokens[~free] == text[~free]).all()
    assert np.isin(tokens, text).all()


def test_a_share_is_a_share() -> None:
    with pytest.raises(ValueError, match="mistaken_share must lie between 0 and 1"):
        Settings(mistaken_share=1.5)
