"""What must not occur in a text, and what must; no repeats."""

import itertools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from didlm.generate.template import parse, start
from didlm.model.transformer import Network
from didlm.pretrained import Model
from writing import BERT, lengths, small_model, texts


def test_banned_tokens_never_come(free) -> None:
    def occurring(**options):
        samples = free.generate(num_samples=60, steps=4, seed=3, **options)
        return set(itertools.chain.from_iterable(sample.tokens for sample in samples))

    ids = sorted(occurring())
    banned = ids[::2]
    left = occurring(banned=banned)
    assert left.isdisjoint(banned)
    assert not left.isdisjoint(ids)
    (upon,) = free.tokenizer.encode(" upon").tolist()
    only = occurring(banned=[n for n in range(free.tokenizer.vocabulary) if n not in (5, upon)])
    assert only == {5, upon}
    assert occurring(banned=[" upon", *(set(range(free.tokenizer.vocabulary)) - {5, upon})]) == {5}


@pytest.mark.parametrize(
    "template", ["[...]", "Once [...]", "Once [...5] a [_] time", "[...2][...]", "a [...6]"]
)
@pytest.mark.parametrize("forced", [[" happily"], ["🙂"], [" upon", " upon", " lived"]])
def test_forced_texts_always_come(free, template, forced) -> None:
    begun = start(parse(template), free.tokenizer)
    for sample in free.infill(template, num_samples=10, steps=3, seed=4, forced=forced):
        for text in forced:
            assert sample.text.count(text) >= forced.count(text)
        assert sample.exact
        assert begun.least.sum() <= len(sample) - len(begun.tokens) <= begun.most.sum()


def test_forced_texts_stand_at_different_places(free) -> None:
    samples = free.generate(
        num_samples=30, steps=3, seed=4, forced=[" upon", " lived"], max_length=9
    )
    orders = {sample.text.index(" upon") < sample.text.index(" lived") for sample in samples}
    assert orders == {True, False}
    assert max(lengths(samples)) <= 9
    assert len({text.split(" upon")[0] for text in texts(samples)}) > 10


def flat(model: Model) -> Model:
    """The same model, to which all tokens of the padded vocabulary are equally likely."""
    network = Network(model.network.config)
    network.load_state_dict(model.network.state_dict())
    torch.nn.init.zeros_(network.token_head)
    return replace(model, network=network)


def test_bos_and_padding_never_come(free) -> None:
    samples = flat(free).generate(num_samples=100, steps=3, seed=5, min_length=40)
    tokens = np.concatenate([sample.tokens for sample in samples])
    assert set(tokens.tolist()) == set(range(free.tokenizer.vocabulary)) - {free.tokenizer.bos}


def test_special_tokens_never_come_but_separators_in_texts_cut_to_a_length(bert) -> None:
    samples = flat(small_model(bert)).generate(num_samples=20, steps=3, seed=5, min_length=20)
    assert set().union(*(sample.tokens for sample in samples)) == set(range(5, len(BERT)))
    model = flat(small_model(bert, length=20))
    tokens = set().union(*(s.tokens for s in model.generate(num_samples=20, steps=3, seed=5)))
    assert bert.separator in tokens
    assert bert.bos not in tokens
    banned = model.generate(num_samples=20, steps=3, seed=5, banned=[bert.separator])
    assert bert.separator not in set().union(*(sample.tokens for sample in banned))


# Repeats.


def stutters(sample) -> int:
    """How many tokens stand right beside their equals, given ones aside."""
    there = [(token, born > 0) for token, born in zip(sample.tokens, sample.born, strict=True)]
    return sum(a == b and (came or come) for (a, came), (b, come) in pairwise(there))


def test_without_repeats_no_token_comes_beside_its_equal(free) -> None:
    few = [n for n in range(free.tokenizer.vocabulary) if n not in (40, 41, 42, 43)]
    options = {"num_samples": 40, "steps": 6, "seed": 1, "banned": few, "max_length": 20}
    assert sum(map(stutters, free.generate(**options))) > 20
    samples = free.generate(**options, repeats=False)
    assert len({token for sample in samples for token in sample.tokens}) == 4
    assert not any(map(stutters, samples))
    # What is given may repeat itself, and nothing comes between that would repeat it.
    samples = free.infill("aa[...]aa", **options, repeats=False)
    assert len(set(texts(samples))) > 10
    assert not any(map(stutters, samples))


def test_where_nothing_else_may_come_repeats_do(free) -> None:
    all_but_one = [n for n in range(free.tokenizer.vocabulary) if n != 40]
    samples = free.generate(num_samples=9, seed=1, banned=all_but_one, min_length=3, repeats=False)
    assert all(set(sample.tokens) == {40} for sample in samples)
    assert all(len(sample.tokens) >= 3 for sample in samples)


def test_negative_seeds_do_for_forced_texts_too(free) -> None:
    assert " upon" in free.generate(seed=-1, forced=[" upon"], steps=2)[0].text
