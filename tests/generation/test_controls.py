"""Seeds, and controls: of tokens and places, chosen or suggested by the model."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from didlm.generate.template import Blank
from didlm.pretrained import load
from writing import inserted, lengths, texts

# Seeds.


@pytest.mark.parametrize("kind", ["quick", "fixed"])
def test_equal_seeds_give_equal_texts_whatever_the_batch_size(request, kind) -> None:
    model, count = request.getfixturevalue(kind), 1000
    options = {"steps": 3, "seed": 6, "top_p": 0.95}
    options |= {"length": 6} if model.length else {"max_length": 8, "correct": 0.3}

    def written(count, batch_size):
        return model.generate(num_samples=count, batch_size=batch_size, **options)

    together, apart, alone = written(count, count), written(count, 37), written(40, 1)
    assert len(set(texts(together))) > 0.3 * count
    assert [sample.number for sample in apart] == list(range(count))
    for others, least in ((apart, 0.995 * count), (alone, 39)):
        same = [
            (one.tokens, one.born, one.nfe) == (other.tokens, other.born, other.nfe)
            for one, other in zip(together, others, strict=False)
        ]
        assert sum(same) >= least


def test_different_seeds_give_different_texts(free) -> None:
    options = {"steps": 4, "num_samples": 20, "min_length": 6}
    seen = [texts(free.generate(seed=seed, **options)) for seed in (0, 1, -1, 2**64 - 2, 2**40)]
    assert len(set(itertools.chain.from_iterable(seen))) == 100
    assert texts(free.generate(seed=1, **options)) == seen[1]


def test_without_a_seed_one_is_drawn_that_writes_the_texts_again(free) -> None:
    one, other = (free.generate(num_samples=3, steps=4, min_length=5) for _ in range(2))
    assert texts(one) != texts(other)
    (seed,) = {sample.seed for sample in one}
    assert texts(free.generate(num_samples=3, steps=4, min_length=5, seed=seed)) == texts(one)


def test_a_longer_list_begins_with_the_shorter_one(free) -> None:
    few, many = (free.generate(num_samples=count, steps=4, seed=7) for count in (3, 9))
    assert texts(many)[:3] == texts(few)
    infilled = free.infill([Blank()], num_samples=3, steps=4, seed=7)
    assert texts(infilled) == texts(few)


# Bending the distributions.


def test_the_least_random_settings_all_take_the_likeliest_token(free) -> None:
    def written(**options):
        return free.generate(num_samples=30, steps=4, seed=8, **options)

    greedy = written(top_k=1)
    assert texts(greedy) == texts(written(top_p=1e-9)) == texts(written(temperature=1e-6))
    assert texts(greedy) != texts(written())
    tokens = [set().union(*(s.tokens for s in some)) for some in (greedy, written())]
    assert len(tokens[0]) < len(tokens[1]) / 2


def first_tokens(model, count, **options):
    """The tokens of texts that are one token long: all come into the same gap."""
    samples = model.generate(
        num_samples=count, batch_size=count, steps=1, length=1, seed=8, **options
    )
    return [model.tokenizer.token_text(token) for sample in samples for token in sample.tokens]


def test_top_k_and_top_p_leave_the_likeliest_tokens_of_a_gap(fixed) -> None:
    (gap,) = fixed.gaps("", top=4)
    likeliest = [text for text, _ in gap.likely]
    assert set(first_tokens(fixed, 200, top_k=1)) == set(likeliest[:1])
    assert set(first_tokens(fixed, 200, temperature=0)) == set(likeliest[:1])
    assert set(first_tokens(fixed, 500, top_k=4)) == set(likeliest)
    (_, first), (_, second), *_ = gap.likely
    drawn = first_tokens(fixed, 1000, top_p=(first + second) * 0.99)
    assert set(drawn) == set(likeliest[:2])
    p = first / (first + second)
    assert abs(drawn.count(likeliest[0]) / 1000 - p) < 4 * math.sqrt(p * (1 - p) / 1000)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_come_as_often_as_the_model_says(fixed, temperature) -> None:
    (gap,) = fixed.gaps("", top=1000)
    weights = [chance ** (1 / temperature) for _, chance in gap.likely]
    drawn = first_tokens(fixed, 5000, temperature=temperature)
    for (text, _), weight in zip(gap.likely[:5], weights, strict=False):
        p = weight / sum(weights)
        assert abs(drawn.count(text) / 5000 - p) < 4 * math.sqrt(p * (1 - p) / 5000)


def test_the_position_temperature_moves_tokens_to_surer_gaps_at_the_same_pace(free, fixed) -> None:
    def before(temperature):
        """The share of tokens that come before the given one, not after it."""
        options = {"length": 2, "steps": 1, "num_samples": 400, "batch_size": 400}
        samples = fixed.infill("[...]0[...]", seed=9, position_temperature=temperature, **options)
        return np.mean([inserted(sample)[0] for sample in samples])

    share = before(1.0)
    assert 0.05 < abs(share - 0.5) < 0.45
    assert before(0.01) == float(share > 0.5)
    assert abs(before(100.0) - 0.5) < 0.1
    odds = (share / (1 - share)) ** 2
    assert before(0.5) == pytest.approx(odds / (1 + odds), abs=0.1)
    plain, sure, unsure = (
        lengths(free.generate(num_samples=300, steps=4, seed=9, position_temperature=temperature))
        for temperature in (1.0, 0.3, 3.0)
    )
    error = np.std(plain) / math.sqrt(300)
    assert abs(np.mean(sure) - np.mean(plain)) < 5 * error
    assert abs(np.mean(unsure) - np.mean(plain)) < 5 * error


def test_the_scale_of_rates_makes_texts_shorter_or_longer_but_leaves_out_nothing(free) -> None:
    short, plain, long = (
        lengths(free.generate(num_samples=300, steps=8, seed=9, rate_scale=scale))
        for scale in (0.5, 1.0, 2.0)
    )
    error = np.std(plain) / math.sqrt(300)
    assert np.mean(short) < np.mean(plain) - 5 * error
    assert np.mean(long) > np.mean(plain) + 5 * error
    # In the last step rates are as they are: what is sure to be missing comes.
    at_once = [
        lengths(free.generate(num_samples=50, steps=1, seed=3, rate_scale=scale, caution=1.0))
        for scale in (1e-6, 1.0)
    ]
    assert np.array_equal(*at_once)


# What a model suggests.


def test_what_is_not_chosen_is_as_the_model_suggests(free) -> None:
    model = replace(free, defaults={"top_p": 0.5, "temperature": 0.7})

    def written(model, **options):
        return texts(model.generate(num_samples=8, steps=6, seed=2, **options))

    suggested = written(free, top_p=0.5, temperature=0.7)
    assert written(model) == written(model, top_p=None) == suggested
    assert written(model, top_p=1.0, temperature=1.0) == written(free) != suggested
    assert written(model, temperature=1.2) == written(free, top_p=0.5, temperature=1.2)
    again = model.infill("[...]", num_samples=8, steps=6, seed=2)
    assert texts(again) == suggested


WRONG_DEFAULTS = [
    ({"top_p": 2}, "top-p must be"),
    ({"top_p": 0}, "top-p must be"),
    ({"top_p": math.nan}, "top-p must be"),
    ({"temperature": 10**400}, "no computer can hold"),
    ({"rate_scale": -1}, "scale of rates must be positive"),
    ({"top_p": "0.5"}, "not all numbers"),
    ({"temperature": True}, "not all numbers"),
    ({"repeats": 0}, "true or false for repeats"),
    ({"steps": 8}, "may be of temperature, top_p, position_temperature, rate_scale"),
    ([0.5], "may be of"),
    (None, "may be of"),
]


def test_what_a_model_suggests_is_kept_with_it(free, tmp_path) -> None:
    replace(free, defaults={"top_p": 0.5, "repeats": False}).save_pretrained(tmp_path)
    assert load(tmp_path).defaults == {"top_p": 0.5, "repeats": False}
    config = json.loads((tmp_path / "config.json").read_text())
    for defaults, words in WRONG_DEFAULTS:
        (tmp_path / "config.json").write_text(json.dumps(config | {"defaults": defaults}))
        with pytest.raises(ValueError, match=f"config.json is damaged: .*{words}"):
            load(tmp_path)
    before = (tmp_path / "model.safetensors").stat().st_mtime_ns
    for defaults, words in WRONG_DEFAULTS:
        with pytest.raises(ValueError, match=words):
            replace(free, defaults=defaults).save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before
    del config["defaults"]  # of an older file
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load(tmp_path).defaults == {}
