"""Middles: their likelihoods against direct computations, and what takes their place."""

import numpy as np
import pytest
import torch

from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.middles import Middle, cut_middles, fill_middles, middle_nats, right_nats
from didlm.generate.template import Blank
from didlm.packed import pack
from test_methods import TEXT, model_for

CUT = Middle("the dog", " saw a", " cat.")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


def test_documents_are_cut_into_thirds_at_spaces() -> None:
    texts = ["one two three four five six", "a  b\n c d e f g h i", "two words", ""]
    middles = cut_middles(texts)
    assert [x.text for x in middles] == texts[:2]
    assert middles[0] == Middle("one two", " three four", " five six")
    assert all(x.middle.startswith(" ") and x.right.startswith(" ") for x in middles)


def test_from_left_to_right_the_middle_is_scored_given_the_left(tokenizer) -> None:
    model = model_for("ar", tokenizer)
    left, middle, right = tokenizer.encode_batch([CUT.left, CUT.middle, CUT.right])
    tokens = np.concatenate([left, middle, right])
    x = pack([tokens], tokenizer.bos)
    with torch.no_grad():
        hidden = model.network(x, torch.zeros(1), x.rows)
        log_prob = model.network.logits(hidden).float()[:, : tokenizer.vocabulary].log_softmax(-1)
    costs = -log_prob[torch.arange(len(tokens)), torch.from_numpy(tokens)].double().numpy()
    inner = slice(len(left), len(left) + len(middle))
    assert middle_nats(model, [CUT])[0] == pytest.approx(costs[inner].sum(), rel=1e-4)
    nats, count = right_nats(model, [CUT, CUT])
    end = -log_prob[-1, model.method.end].item()
    assert nats == pytest.approx([costs[inner.stop :].sum() + end] * 2, rel=1e-4)
    assert count.tolist() == [len(right)] * 2


@pytest.mark.parametrize("method", ["did", "radd"])
def test_with_both_ends_given_it_is_the_score_of_a_template(tokenizer, method) -> None:
    model = model_for(method, tokenizer, padding=40)
    found = middle_nats(model, [CUT] * 64, draws=8)
    score = model.score(CUT.text, [CUT.left, Blank(), CUT.right], draws=512)
    error = np.hypot(found.std(ddof=1) / 8, score.standard_error)
    assert abs(found.mean() + score.log_likelihood) < 4 * error + 1e-6


@pytest.mark.parametrize("method", ["did", "radd", "ilm", "ar"])
def test_ends_stay_and_middles_are_new(tokenizer, method, monkeypatch) -> None:
    model = model_for(method, tokenizer, padding=40)
    room, write = len(tokenizer.encode(CUT.middle)), model.infill_each
    ends = len(tokenizer.encode(CUT.left)) + len(tokenizer.encode(CUT.right)) * (method != "ar")
    written: list[int] = []

    def watched(*arguments, **controls):
        samples = write(*arguments, **controls)
        written.extend(len(sample.tokens) - ends for sample in samples)
        return samples

    monkeypatch.setattr(model, "infill_each", watched)
    filled = fill_middles(model, [CUT] * 5, seed=0, batch_size=2, steps=4)
    assert [(x.left, x.right) for x in filled] == [(CUT.left, CUT.right)] * 5
    assert any(x.middle != CUT.middle for x in filled)
    if method == "radd":
        assert written == [room] * 5
    if method == "ar":
        assert max(written) <= room


def test_a_judge_reads_as_much_before_the_right_end_as_it_has_room_for(tokenizer) -> None:
    judge = model_for("ar", tokenizer)
    long = Middle("the dog saw a cat. " * judge.longest, CUT.middle, CUT.right)
    nats, _ = right_nats(judge, [long])
    assert np.isfinite(nats).all()
