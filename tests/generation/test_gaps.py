"""Gaps and scores: what a model says about a text."""

import math

import numpy as np
import pytest

from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound
from didlm.generate.template import Blank
from writing import assert_refused


@pytest.mark.parametrize("kind", ["free", "fixed"])
@pytest.mark.parametrize("text", ["", "Once upon a time", "é🙂"])
def test_every_gap_has_a_rate_and_likely_tokens(request, kind, text) -> None:
    model = request.getfixturevalue(kind)
    tokens = model.tokenizer.encode(text)
    gaps = model.gaps(text, t=0.5, top=3)
    assert [gap.position for gap in gaps] == list(range(len(tokens) + 1))
    assert [gap.before for gap in gaps] == ["", *map(model.tokenizer.token_text, tokens)]
    for gap in gaps:
        assert 0 < gap.rate < math.inf
        chances = [chance for _, chance in gap.likely]
        assert len(chances) == 3
        assert chances == sorted(chances, reverse=True)
        assert 0 < chances[-1] <= chances[0] <= 1
    everything = model.gaps(text, top=10_000)[-1].likely
    assert len(everything) == model.tokenizer.vocabulary
    assert sum(chance for _, chance in everything) == pytest.approx(1)
    assert everything[:3] == gaps[-1].likely
    if kind == "fixed":
        assert sum(gap.rate for gap in gaps) == pytest.approx(16 - len(tokens), rel=1e-5)


def test_the_more_is_deleted_the_more_is_missing(free) -> None:
    missing = [sum(gap.rate for gap in free.gaps("Once upon", t)) for t in (0.01, 0.3, 0.9, 1.0)]
    assert missing == sorted(missing)
    assert missing[0] < 0.5 < 5 < missing[-1]


def test_impossible_gaps_are_refused(free, fixed) -> None:
    for t in (0.0, -0.5, 1.5, math.nan):
        with assert_refused(f"the time must be above 0 and at most 1: got {t}"):
            free.gaps("Once", t)
    with assert_refused("cannot name -1 tokens"):
        free.gaps("Once", top=-1)
    with assert_refused("the text has 300 tokens: the model was trained on texts of at most 256"):
        free.gaps("0" * 300)
    with assert_refused("the text has 17 tokens: the model was trained on texts of at most 16"):
        fixed.gaps("0" * 17)


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_score_is_the_bound_with_its_standard_error(request, kind) -> None:
    model = request.getfixturevalue(kind)
    text = "Once upon a time there"
    tokens = model.tokenizer.encode(text)
    corpus = Corpus.of([tokens])
    bound = likelihood_bound(
        model.network, model.method, corpus, budget_for(corpus, 1), draws=1000, seed=77
    )
    score = model.score(text, draws=160, seed=1)
    assert score.tokens == len(tokens)
    assert 0 < score.standard_error < 0.1 * abs(score.log_likelihood)
    assert abs(score.log_likelihood + bound.nats_per_document) < 4 * score.standard_error
    assert score.nats_per_token == pytest.approx(-score.log_likelihood / len(tokens))
    assert model.score(text, draws=160, seed=1) == score
    assert model.score(text, draws=160, seed=2) != score
    errors = [model.score(text, draws=160, seed=seed) for seed in range(2, 10)]
    spread = np.std([error.log_likelihood for error in errors], ddof=1)
    assert 0.3 < spread / np.mean([error.standard_error for error in errors]) < 3


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_score_given_a_template_is_of_its_blanks_alone(request, kind) -> None:
    model = request.getfixturevalue(kind)
    text = "Once upon a time there was happiness"
    whole = model.score(text, draws=64)
    rest = model.score(text, given="Once upon a [...] happiness", draws=64)
    assert rest.tokens == len(model.tokenizer.encode(" time there was"))
    assert 0 > rest.log_likelihood > whole.log_likelihood
    same = model.score(text, given=["Once upon a ", Blank(), " happiness"], draws=64)
    assert same == rest
    word = model.score(text, given="Once upon a time[_] was happiness", draws=64)
    assert word.tokens == 1
    assert word.log_likelihood > rest.log_likelihood
    nothing = model.score(text, given="[...]", draws=64)
    assert nothing == whole


def test_impossible_scores_are_refused(free, fixed) -> None:
    with assert_refused("the text 'Twice' does not match the template 'Once [...]'"):
        free.score("Twice", given="Once [...]")
    with assert_refused("there is no blank"):
        free.score("Once", given="Once")
    with assert_refused("the text has 300 tokens: the model was trained on texts of at most 256"):
        free.score("0" * 300)
    with assert_refused("the text has 300 tokens: the model was trained on texts of at most 256"):
        free.score("0" * 300, given="0[...]")
    with assert_refused("the text has 17 tokens: the model was trained on texts of at most 16"):
        fixed.score("0" * 17)
    with assert_refused("takes 8 draws or more: got 7"):
        free.score("Once", draws=7)


def test_a_text_of_no_tokens_has_a_score_in_a_model_of_fixed_length_too(fixed) -> None:
    assert fixed.score("").log_likelihood == 0
    assert fixed.score("Once", given="Once[...]").log_likelihood == 0
