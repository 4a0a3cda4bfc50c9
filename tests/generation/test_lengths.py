"""Lengths of texts, free ones and asked for."""

import numpy as np
import pytest
import torch

from didlm.generate.template import Blank
from didlm.methods.did import DID
from didlm.model.config import ModelConfig
from didlm.model.length_prior import log_rate_prior
from didlm.model.transformer import Network
from didlm.packed import pack
from didlm.pretrained import Model
from writing import assert_filled, is_given, lengths


@pytest.mark.parametrize("sampler", ["adaptive", "tau-leaping"])
def test_texts_obey_the_shortest_and_longest_length(free, sampler) -> None:
    def found(**limits):
        return lengths(free.generate(num_samples=60, steps=6, seed=2, sampler=sampler, **limits))

    assert min(found()) < 5
    assert max(found()) > 12
    assert min(found(min_length=10)) == 10
    assert max(found(max_length=9)) == 9
    assert set(found(min_length=6, max_length=8)) == {6, 7, 8}
    assert set(found(min_length=7, max_length=7)) == {7}


@pytest.mark.parametrize("sampler", [None, "tau-leaping", "counted", "jump-chain"])
def test_a_model_of_free_length_writes_texts_of_exactly_the_length_asked_for(free, sampler) -> None:
    for length, prompt in ((1, ""), (9, ""), (12, "Once upon a ")):
        samples = free.generate(
            prompt, num_samples=8, steps=3, seed=0, length=length, sampler=sampler
        )
        assert set(lengths(samples)) == {length}
        assert all(sample.text.startswith(prompt) for sample in samples)


@pytest.mark.parametrize("sampler", [None, "counted", "jump-chain", "adaptive"])
def test_a_model_of_fixed_length_writes_that_length_however_few_the_steps(fixed, sampler) -> None:
    def found(template="[...]", **options):
        samples = fixed.infill(template, num_samples=8, seed=0, sampler=sampler, **options)
        return set(lengths(samples))

    assert found(steps=1) == found(steps=5) == {16}
    assert found(steps=2, length=7) == {7}
    assert found("Once upon a [...]", steps=2) == {16}
    assert found("[...2] a [...3] time[_][...]", steps=2) == {16}
    assert found("[...9]a[...9]", steps=2, forced=[" time"]) == {16}


def test_tau_leaping_may_end_short_of_a_fixed_length_but_never_exceeds_it(fixed) -> None:
    few, many = (
        lengths(fixed.generate(num_samples=40, steps=steps, seed=0, sampler="tau-leaping"))
        for steps in (2, 100)
    )
    assert max(few) < 16
    assert max(many) == 16
    assert np.mean(few) < np.mean(many)


@pytest.mark.parametrize("sampler", ["adaptive", "tau-leaping", "counted", "jump-chain"])
@pytest.mark.parametrize("length", [6, 7, 9, 11])
def test_tokens_that_are_still_missing_at_the_end_do_not_overflow_the_blanks(
    free, sampler, length
) -> None:
    parts = [Blank(1, 2), "0", Blank(0, 3), "1", Blank(2, 2), "2", Blank(0, 1)]
    options = {"num_samples": 200, "batch_size": 200, "steps": 1, "seed": 1}
    samples = free.infill(parts, length=length, sampler=sampler, **options)
    for sample in samples:
        assert len(sample) == length
        assert_filled(sample, parts, free.tokenizer)


@pytest.mark.parametrize("template", ["[...]", "Once upon a [...] time[_]"])
def test_the_jump_chain_calls_the_network_once_for_every_token(fixed, template) -> None:
    for sample in fixed.infill(template, num_samples=5, seed=0, sampler="jump-chain"):
        assert sample.nfe == sample.steps == (~is_given(sample)).sum()
        assert sorted(sample.born)[-sample.nfe :] == list(range(1, sample.nfe + 1))


def test_what_follows_a_prompt_has_the_length_that_the_rates_expect(stories) -> None:
    """Also where lengths vary widely; an untrained network knows nothing but lengths."""
    config = ModelConfig(
        stories.vocabulary, 1, 16, 2, 16, condition=8, mean_length=30.0, length_dispersion=0.9
    )
    model = Model(Network(config), stories, DID(stories.bos), 1000)
    prompt = "Once upon a time there was happiness, and"
    given = len(stories.encode(prompt))
    samples = model.generate(prompt=prompt, num_samples=400, steps=16, seed=0, batch_size=400)
    lengths = np.array([len(sample) - given for sample in samples])
    begun = pack([stories.encode(prompt)], stories.bos, [np.ones(given, np.int64)])
    expected = log_rate_prior(begun, torch.ones(1), 30.0, 0.9).exp().item() * 2  # two open gaps
    assert abs(lengths.mean() - expected) < 4 * lengths.std() / 20
