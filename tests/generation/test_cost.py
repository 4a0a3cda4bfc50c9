"""What generation costs: calls, rows and memory."""

import pytest

from didlm.generate import stages
from didlm.generate.scorer import NetworkScorer
from didlm.generate.template import Blank
from didlm.model.transformer import Network
from writing import is_given, small_model, texts


def read_rows(monkeypatch):
    """The number of rows and of texts at each call of a network, filled while it works."""
    calls, forward = [], Network.forward

    def counted(network, x_t, *others):
        calls.append((x_t.rows, len(x_t)))
        return forward(network, x_t, *others)

    monkeypatch.setattr(Network, "forward", counted)
    return calls


def named_rows(monkeypatch):
    """The number of rows at each call of the vocabulary head, filled while it works."""
    rows, logits = [], NetworkScorer.logits

    def counted(scorer, features):
        rows.append(len(features))
        return logits(scorer, features)

    monkeypatch.setattr(NetworkScorer, "logits", counted)
    return rows


@pytest.mark.parametrize("sampler", ["counted", "tau-leaping"])
def test_without_time_a_text_is_read_again_only_when_it_has_changed(
    fixed, monkeypatch, sampler
) -> None:
    calls = read_rows(monkeypatch)
    samples = fixed.generate(num_samples=6, steps=200, length=5, seed=13, sampler=sampler)
    rows = 0
    for sample in samples:
        assert sample.steps >= 200
        births = sorted(set(sample.born))
        read_before = births if len(sample) == 5 else [*births, 1 + births[-1]]
        assert sample.nfe == len(read_before)
        rows += sum(1 + sum(born < before for born in sample.born) for before in read_before)
    assert sum(size for _, size in calls) == sum(sample.nfe for sample in samples)
    assert sum(size for size, _ in calls) == rows


def test_with_time_every_step_is_a_call_until_there_is_no_room(free, monkeypatch) -> None:
    calls = read_rows(monkeypatch)
    samples = free.generate(num_samples=6, steps=20, seed=13)
    assert [sample.nfe for sample in samples] == [sample.steps for sample in samples]
    assert sum(size for _, size in calls) == sum(sample.nfe for sample in samples)
    calls.clear()
    samples = free.generate(num_samples=6, steps=20, seed=13, min_length=3, max_length=3)
    assert [sample.nfe for sample in samples] == [max(sample.born) for sample in samples]
    assert sum(size for _, size in calls) == sum(sample.nfe for sample in samples)


@pytest.mark.parametrize("kind", ["free", "fixed"])
@pytest.mark.parametrize("correct", [0.0, 0.5])
def test_the_vocabulary_head_runs_once_for_every_token_that_comes(
    request, monkeypatch, kind, correct
) -> None:
    model, rows = request.getfixturevalue(kind), named_rows(monkeypatch)
    samples = model.infill(
        "Once [...] time", num_samples=8, steps=8, seed=14, correct=correct, trace=True
    )
    came = sum(int((frame.born == frame.step).sum()) for s in samples for frame in s.frames[1:])
    stayed = sum(int((~is_given(sample)).sum()) for sample in samples)
    assert sum(rows) == came
    assert came > stayed if correct else came == stayed
    assert stayed > 20


def test_logits_are_made_in_pieces_that_change_nothing(free, monkeypatch) -> None:
    expected = texts(free.generate(num_samples=8, steps=4, seed=14, min_length=10))
    rows = named_rows(monkeypatch)
    monkeypatch.setattr(stages, "LOGITS_AT_A_TIME", 1)
    assert texts(free.generate(num_samples=8, steps=4, seed=14, min_length=10)) == expected
    assert max(rows) == 1


def test_writing_leaves_no_gradients_and_switches_dropout_off(stories) -> None:
    model = small_model(stories)
    model.network.train()
    model.generate(steps=2)
    assert not model.network.training
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_a_text_whose_blanks_are_full_is_not_read_any_more(free) -> None:
    (sample,) = free.infill("Once[_] a time", steps=50, seed=0)
    assert sample.nfe == max(sample.born)
    assert free.infill(["Once", Blank(0, 0)], steps=50)[0].nfe == 0
