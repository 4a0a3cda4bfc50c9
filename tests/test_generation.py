"""Generation as a user meets it: whole models, whole texts, and what is promised about them."""

import itertools
import json
import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.bound import likelihood_bound
from didlm.generate import driver, stages
from didlm.generate.results import Frame
from didlm.generate.scorer import NetworkScorer
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.template import CLOSED, Blank, parse, start
from didlm.methods.did import DID, FixedDID
from didlm.model.config import ModelConfig
from didlm.model.length_prior import log_rate_prior
from didlm.model.transformer import Network
from didlm.packed import pack
from didlm.pretrained import Model, load

STORY = "Once upon a time there was happiness, and they lived happily. "
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##ing", "do", "not", "play", ","]


def small_model(
    tokenizer: Tokenizer, length: int | None = None, mean_length: float = 12.0, layers: int = 2
) -> Model:
    """An untrained model with opinions: neither its gaps nor its tokens are all alike."""
    config = ModelConfig(
        tokenizer.vocabulary,
        layers=layers,
        width=32,
        heads=2,
        feed_forward=64,
        condition=None if length else 16,
        normalised=length is not None,
        mean_length=mean_length,
    )
    generator = torch.Generator().manual_seed(3)
    network = Network(config)
    spreads = {"token_head": 0.3, "rate_head.weight": 0.1}
    if length is not None:  # rates that differ more would let texts of free length grow and grow
        spreads |= {"token_embedding.weight": 0.5, "rate_head.weight": 0.2}
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            spread = 0.02 if ".modulation." in name else spreads.get(name, 0.1)
            torch.nn.init.normal_(parameter, std=spread, generator=generator)
    method = FixedDID(tokenizer.bos, length) if length else DID(tokenizer.bos)
    return Model(network, tokenizer, method, length or 256)


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    return Tokenizer.train_bpe([STORY] * 3, 330)


@pytest.fixture(scope="module")
def free(stories) -> Model:
    return small_model(stories)


@pytest.fixture(scope="module")
def fixed(stories) -> Model:
    return small_model(stories, length=16)


@pytest.fixture(scope="module")
def quick(stories) -> Model:
    """Writes little, in little time."""
    return small_model(stories, mean_length=3.0, layers=1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    path.write_text("\n".join([*BERT, ""]))
    return Tokenizer.load(path)


@pytest.fixture(scope="module", autouse=True)
def everything_ends():
    step = driver.Writer.step

    def counted(writer):
        step(writer)
        assert writer.passes.max() < 1000, "generation does not end"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Writer, "step", counted)
        yield


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def texts(samples):
    return [sample.text for sample in samples]


def lengths(samples):
    return [len(sample) for sample in samples]


def is_given(sample):
    return np.array(sample.born, dtype=int) == 0


def inserted(sample):
    """How many tokens came into each gap of what is given, the ends included."""
    given = is_given(sample)
    return np.bincount(np.cumsum(given)[~given], minlength=given.sum() + 1)


def pattern(parts):
    """A template as a regular expression: what is given stands where it stood."""
    return re.compile(
        "".join(
            re.escape(part) if isinstance(part, str) else "" if part.closed else "(?:.*)"
            for part in parts
        ),
        re.DOTALL,
    )


def assert_filled(sample, parts, tokenizer) -> None:
    """Given tokens are all there, and the rest is in blanks whose limits it obeys."""
    begun = start(parts, tokenizer)
    assert pattern(parts).fullmatch(sample.text)
    assert sample.exact
    tokens, given = np.array(sample.tokens, dtype=int), is_given(sample)
    np.testing.assert_array_equal(tokens[given], begun.tokens)
    count = inserted(sample)
    assert len(count) == len(begun.blank)
    assert not count[begun.blank == CLOSED].any()
    in_blank = count[begun.blank != CLOSED]
    assert (in_blank >= begun.least).all()
    assert (in_blank <= begun.most).all()


# Infilling, for random templates.

given_texts = st.one_of(
    st.sampled_from(["hap", "piness", " happ", "iness", " ", "  ", "", "\n", "e", "\u0301"]),
    st.sampled_from(["Once upon a time ", " and they lived", "happily. ", "\ufffd", "[...]", "🙂"]),
    st.text(max_size=5),
    st.text(max_size=3).map(lambda text: text + " "),
)
blanks = st.one_of(
    st.builds(Blank),
    st.sampled_from([Blank(0, 0), Blank(1, 1), Blank(0, 1), Blank(2, 2), Blank(3, None)]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda pair: Blank(pair[0], sum(pair))),
)
templates = st.lists(given_texts | blanks, max_size=6).flatmap(
    lambda parts: st.tuples(blanks, st.integers(0, len(parts))).map(
        lambda extra: [*parts[: extra[1]], extra[0], *parts[extra[1] :]]
    )
)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=1000)
@forall(
    templates,
    seeds,
    st.integers(1, 3),
    st.sampled_from([None, "tau-leaping", "tau-leaping", "tau-leaping"]),
    st.sampled_from([0.0, 0.0, 0.5]),
)
def test_infilling_keeps_what_is_given_and_obeys_the_blanks(
    quick, parts, seed, steps, sampler, correct
) -> None:
    (sample,) = quick.infill(
        parts, seed=seed, steps=steps, sampler=sampler, correct=correct, correction_steps=2
    )
    assert_filled(sample, parts, quick.tokenizer)


@settings(max_examples=150)
@forall(
    templates,
    seeds,
    st.integers(0, 6),
    st.sampled_from(["counted", "counted", "jump-chain", "adaptive"]),
)
def test_infilling_to_a_fixed_length_keeps_what_is_given_and_has_that_length(
    fixed, parts, seed, more, sampler
) -> None:
    begun = start(parts, fixed.tokenizer)
    shortest = len(begun.tokens) + int(begun.least.sum())
    length = min(shortest + more, len(begun.tokens) + int(begun.most.sum()))
    method = replace(fixed.method, fixed_length=length)
    model = replace(fixed, method=method, longest=length)
    (sample,) = model.infill(parts, seed=seed, steps=2, sampler=sampler)
    assert len(sample) == length
    assert_filled(sample, parts, fixed.tokenizer)


@settings(max_examples=150)
@forall(
    templates,
    seeds,
    st.lists(st.sampled_from([" happiness", "time", "🙂", " ", "zz"]), min_size=1, max_size=3),
    st.sampled_from(["", "time "]),
    st.sampled_from([0.0, 0.5]),
)
def test_forced_texts_stand_in_every_filling_of_every_template(
    quick, parts, seed, forced, ending, correct
) -> None:
    parts = [*parts, ending, Blank()]
    (sample,) = quick.infill(
        parts, seed=seed, steps=2, sampler="tau-leaping", forced=forced, correct=correct
    )
    assert pattern(parts).fullmatch(sample.text)
    assert sample.exact
    assert all(text in sample.text for text in forced)
    begun, words = start(parts, quick.tokenizer), quick.tokenizer.encode_batch(forced)
    assert is_given(sample).sum() == len(begun.tokens) + sum(map(len, words))


def test_templates_can_be_written_as_text(free) -> None:
    template = r"Once [...3] a \[...][...0] time[_], 🙂 [...2-4]."
    parts = ["Once ", Blank(0, 3), r" a [...]", Blank(0, 0), " time", Blank(1, 1), ", 🙂 "]
    for sample in free.infill(template, num_samples=20, steps=4, seed=1):
        assert_filled(sample, [*parts, Blank(2, 4), "."], free.tokenizer)


# Prompts and suffixes.


def test_nothing_comes_before_a_prompt_or_into_it(free) -> None:
    prompt = "Once upon a time"
    tokens = free.tokenizer.encode(prompt).tolist()
    samples = free.generate(prompt, num_samples=50, steps=8, seed=1)
    for sample in samples:
        assert sample.text.startswith(prompt)
        assert sample.tokens[: len(tokens)] == tokens
        assert is_given(sample).tolist() == [True] * len(tokens) + [False] * (
            len(sample) - len(tokens)
        )
    assert len(set(texts(samples))) > 25
    assert not any(text.startswith("Once") for text in texts(free.generate(steps=8, seed=1)))


def test_nothing_comes_after_a_suffix_or_into_it(free) -> None:
    suffix = " and they lived happily."
    size = len(free.tokenizer.encode(suffix))
    samples = free.generate(suffix=suffix, num_samples=50, steps=8, seed=1)
    for sample in samples:
        assert sample.text.endswith(suffix)
        assert np.flatnonzero(is_given(sample)).tolist() == list(range(len(sample)))[-size:]
    assert len(set(texts(samples))) > 25


def test_with_a_prompt_and_a_suffix_all_comes_in_between(free) -> None:
    for sample in free.generate("Once [...]", " happily.", num_samples=20, steps=8, seed=1):
        assert sample.text.startswith("Once [...]")  # here it is text like any other
        assert sample.text.endswith(" happily.")
        assert (inserted(sample) > 0).sum() <= 1


def test_after_a_prompt_that_ends_in_a_space_a_word_comes_with_its_space(free) -> None:
    spaced = free.tokenizer.begins_with_space()
    given = free.tokenizer.encode("Once upon a").tolist()
    samples = free.generate("Once upon a ", num_samples=50, steps=8, seed=1, correct=0.3)
    for sample in samples:
        assert sample.text.startswith("Once upon a ")
        assert sample.tokens[: len(given)] == given
        assert spaced[sample.tokens[len(given)]]
    assert not all(spaced[sample.tokens[len(given) + 1]] for sample in samples if len(sample) > 4)


# Lengths.


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


# What must not occur, and what must.


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


# Samples, frames, and those who look on.


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_sample_says_how_it_came_to_be(request, kind) -> None:
    model = request.getfixturevalue(kind)
    samples = model.infill("Once [...] time", num_samples=6, steps=8, seed=10)
    given = len(model.tokenizer.encode("Once")) + len(model.tokenizer.encode(" time"))
    for number, sample in enumerate(samples):
        assert str(sample) == sample.text == model.tokenizer.decode(sample.tokens)
        assert len(sample) == len(sample.tokens) == len(sample.born)
        assert is_given(sample).sum() == given
        assert max(sample.born) <= sample.steps
        assert 0 < sample.nfe <= sample.steps
        assert kind == "free" or sample.steps >= 8  # where a text waits, times of the grid pass
        assert 0 < sample.network_seconds < sample.seconds
        assert sample.line()["network_seconds"] <= sample.line()["seconds"]
        assert (sample.seed, sample.number) == (10, number)
        assert sample.frames == []


def test_a_stopwatch_runs_only_under_what_it_times(monkeypatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("didlm.generate.stopwatch.time.perf_counter", lambda: next(clock))
    watch = Stopwatch(torch.device("cpu"))
    with watch.running():
        next(clock)  # a second passes
    assert watch.seconds == 2
    for _ in watch.each(iter("ab")):  # two steps, and finding out that there is no third
        next(clock)  # whoever looks on takes a second
    assert watch.seconds == 2 + 3


def test_those_who_look_on_do_not_count(free, monkeypatch) -> None:
    """On a clock that only the onlooker moves, writing takes no time at all."""
    now = [0.0]
    monkeypatch.setattr("didlm.generate.stopwatch.time.perf_counter", lambda: now[0])

    def look(frames: list[Frame]) -> None:
        now[0] += 1

    (sample,) = free.generate(steps=4, seed=10, callback=look)
    assert now[0] > 0
    assert sample.seconds == sample.network_seconds == 0


def test_a_sample_becomes_a_line_of_json(free) -> None:
    (sample,) = free.generate("Once", steps=4, seed=10, min_length=8)
    line = json.loads(json.dumps(sample.line()))
    assert {"text", "tokens", "length", "steps", "nfe"} <= line.keys()
    assert (line["text"], line["tokens"]) == (sample.text, sample.tokens)
    assert (line["length"], line["steps"]) == (len(sample), sample.steps)
    assert (line["nfe"], line["born"]) == (sample.nfe, sample.born)


def is_subsequence(short, long):
    rest = iter(long)
    return all(item in rest for item in short)


def columns(frame):
    return list(zip(frame.tokens.tolist(), frame.born.tolist(), strict=True))


def losses(sample):
    """How many tokens were taken back at each step."""
    return [
        len(before.tokens) - int((after.born != after.step).sum())
        for before, after in itertools.pairwise(sample.frames)
    ]


@pytest.mark.parametrize("options", [{}, {"sampler": "tau-leaping"}, {"min_length": 20}], ids=str)
def test_a_trace_begins_with_what_is_given_and_only_grows(free, options) -> None:
    samples = free.infill("Once[...] time", num_samples=6, steps=6, seed=11, trace=True, **options)
    untraced = free.infill("Once[...] time", num_samples=6, steps=6, seed=11, **options)
    assert texts(samples) == texts(untraced)
    for sample in samples:
        first, *_, last = sample.frames
        assert [frame.step for frame in sample.frames] == list(range(sample.steps + 1))
        assert free.tokenizer.decode(first.tokens) == "Once time"
        assert not first.born.any()
        assert first.time == 1
        assert columns(last) == list(zip(sample.tokens, sample.born, strict=True))
        assert last.time == 0
        for one, other in itertools.pairwise(sample.frames):
            assert other.time <= one.time
            assert is_subsequence(columns(one), columns(other))
            assert (other.born == other.step).sum() == len(other.tokens) - len(one.tokens)


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_corrector_takes_tokens_back_but_none_that_are_given(request, kind) -> None:
    model = request.getfixturevalue(kind)
    samples = model.infill(
        "Once [...] time", num_samples=6, steps=6, seed=11, trace=True, correct=0.3, corrections=2
    )
    for sample in samples:
        assert pattern(["Once ", Blank(), " time"]).fullmatch(sample.text)
        given = sample.frames[0].tokens.tolist()
        for lost, (one, other) in zip(
            losses(sample), itertools.pairwise(sample.frames), strict=True
        ):
            assert other.tokens[other.born == 0].tolist() == given
            old = [pair for pair in columns(other) if pair[1] != other.step]
            assert is_subsequence(old, columns(one))
            assert other.time > one.time or lost == 0
        assert model.length in (None, len(sample))
        assert sum(lost > 0 for lost in losses(sample)) <= 2
    assert sum(sum(losses(sample)) for sample in samples) > 6


def frame_texts(model, frames):
    return [model.tokenizer.decode(frame.tokens) for frame in frames]


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_stream_ends_with_what_generate_returns(request, kind) -> None:
    model = request.getfixturevalue(kind)
    stream = list(model.stream(num_samples=5, seed=12, steps=6))
    samples = model.generate(num_samples=5, seed=12, steps=6, trace=True)
    assert frame_texts(model, stream[-1]) == texts(samples)
    assert frame_texts(model, stream[0]) == [""] * 5
    for place, sample in enumerate(samples):  # a text that is finished keeps its last frame
        seen = [columns(frames[place]) for frames in stream]
        assert seen[: len(sample.frames)] == [columns(frame) for frame in sample.frames]
        assert all(frame == seen[-1] for frame in seen[len(sample.frames) :])
    *_, last = model.stream("Once [...] time", seed=12, steps=6, forced=[" lived"])
    assert frame_texts(model, last) == texts(
        model.infill("Once [...] time", seed=12, steps=6, forced=[" lived"])
    )


def test_a_callback_sees_every_batch_grow(free) -> None:
    seen = []
    samples = free.generate(
        num_samples=5, batch_size=3, seed=12, steps=6, callback=seen.append, trace=True
    )
    sizes = [len(frames) for frames in seen]
    assert sizes == sorted(sizes, reverse=True)
    assert set(sizes) == {3, 2}
    for batch, some in ((3, samples[:3]), (2, samples[3:])):
        frames = [seen for seen in seen if len(seen) == batch]
        assert len(frames) == max(len(sample.frames) for sample in some)
        assert frame_texts(free, frames[-1]) == texts(some)


def test_an_error_in_a_callback_comes_through(free) -> None:
    def interrupt(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        free.generate(callback=interrupt)


# Gaps and scores.


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


# What it costs.


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


# Refusals.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "steps must be at least 1: got 0"),
        ({"steps": 2.5}, "steps must be a whole number: got 2.5"),
        ({"top_p": 0.0}, "top-p must be above 0 and at most 1: got 0.0"),
        ({"top_p": 1.5}, "top-p must be above 0 and at most 1: got 1.5"),
        ({"top_k": 0}, "top-k must be at least 1: got 0"),
        ({"temperature": -0.1}, "the temperature must be a number from 0 on: got -0.1"),
        ({"temperature": math.nan}, "the temperature must be a number from 0 on: got nan"),
        ({"rate_scale": 0.0}, "the scale of rates must be positive: got 0.0"),
        ({"repeats": 0}, "repeats is either true or false: got 0"),
        ({"position_temperature": -1.0}, "the position temperature must be positive: got -1.0"),
        (
            {"sampler": "adaptiv"},
            "no sampler 'adaptiv' for the method 'did': did you mean 'adaptive'?",
        ),
        ({"sampler": "x"}, "known are adaptive, tau-leaping, counted, jump-chain"),
        ({"grid": "cosin"}, "there is no grid 'cosin': did you mean 'cosine'?"),
        ({"sampler": "counted"}, "'counted' needs to know the length of the text: give length"),
        ({"sampler": "jump-chain"}, "'jump-chain' needs to know the length of the text"),
        ({"length": 5, "max_length": 9}, "give either a length, or its minimum and maximum"),
        ({"length": 5, "min_length": 3}, "give either a length, or its minimum and maximum"),
        ({"length": 0}, "a text cannot have 0 tokens"),
        ({"length": 257}, "trained on texts of at most 256 tokens: it cannot write 257"),
        ({"max_length": 257}, "trained on texts of at most 256 tokens: it cannot write 257"),
        ({"max_length": 0}, "the maximum length must be at least 1"),
        ({"min_length": 9, "max_length": 8}, "at least 1 and the minimum length, 9: got 8"),
        ({"min_length": -1}, "the minimum length cannot be negative: got -1"),
        ({"num_samples": 0}, "cannot write 0 texts"),
        ({"batch_size": 0}, "a batch needs at least one text: got a batch size of 0"),
        ({"prompt": "0" * 257}, "what is given or forced has 257 tokens, more than the maximum"),
        ({"prompt": "000", "max_length": 2}, "what is given or forced has 3 tokens, more than the"),
        ({"prompt": "0 ", "max_length": 1}, "the least that its blanks must receive are 2 tokens"),
        ({"forced": ["000"], "max_length": 2}, "what is given or forced has 3 tokens, more than"),
        ({"forced": ["a", ""]}, "forced word 1 has no tokens; leave it out"),
        ({"forced": "fox"}, "forced takes a list of texts: write ['fox']"),
        ({"banned": "fox"}, "banned takes a list of texts: write ['fox']"),
        ({"banned": ["zzz"]}, "'zzz' is 3 tokens of this vocabulary: only single tokens can be"),
        ({"banned": [999]}, "there is no token 999: the ids are 0 to "),
        ({"banned": [-1]}, "there is no token -1: the ids are 0 to "),
        ({"correct": 1.0}, "share of tokens to correct must be at least 0 and below 1: 1.0"),
        ({"correct": -0.1}, "share of tokens to correct must be at least 0 and below 1: -0.1"),
        ({"corrections": 0}, "a corrector needs at least one step and one time"),
        ({"correction_steps": 0}, "a corrector needs at least one step and one time"),
        ({"prompt": 3}, "a template is made of texts and blanks: got int 3"),
        ({"prompt": "\ud800"}, "half of a surrogate pair"),
    ],
    ids=str,
)
def test_impossible_requests_are_refused_with_a_sentence(free, options, sentence) -> None:
    with assert_refused(sentence):
        free.generate(**options)


def test_when_all_tokens_are_banned_there_is_none_to_insert(free, fixed) -> None:
    for model in (free, fixed):
        with assert_refused("every token of the vocabulary is banned: there is none to insert"):
            model.generate(banned=range(model.tokenizer.vocabulary))


def test_blanks_and_lengths_that_do_not_go_together_are_refused(free, fixed) -> None:
    with assert_refused("has at most 4 tokens, fewer than the 9 asked for"):
        free.infill("[...3]0", min_length=9)
    with assert_refused("has at most 4 tokens, fewer than the 16 asked for"):
        fixed.infill("[...3]0")
    with assert_refused("the least that its blanks must receive are 18 tokens, more than the"):
        fixed.infill("0[...17-20]")
    with assert_refused("a forced word of 1 tokens does not fit: no blank has room for it"):
        free.infill("a [_]", forced=[" upon"])
    with assert_refused("all texts of this model have one length: give length, not its minimum"):
        fixed.generate(max_length=8)
    with assert_refused("there is no blank in the template 'Once'"):
        free.infill("Once")


def test_an_unknown_control_is_named(free) -> None:
    for write in (free.generate, free.stream, lambda **options: free.infill("[...]", **options)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'topp'"):
            write(topp=0.9)


def test_a_stream_refuses_at_once_what_generate_refuses(free) -> None:
    for options in ({"num_samples": 0}, {"steps": 0}, {"sampler": "x"}, {"template": "Once"}):
        with pytest.raises(ValueError):  # noqa: PT011 - the sentences are tested above
            free.stream(**options)


def test_text_that_a_vocabulary_of_words_does_not_know_is_refused(bert) -> None:
    model = small_model(bert)
    with assert_refused("the tokenizer does not know 'Zebra' in 'hello Zebra'; leave it out or"):
        model.generate("hello Zebra")
    (known,) = model.generate("Hello,", steps=2, seed=0)
    assert known.text.startswith("hello,")
    assert not known.exact
    assert model.generate("hello,", steps=2, seed=0)[0].exact


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_where_nothing_is_to_be_written_the_given_text_is_returned(request, kind) -> None:
    model = request.getfixturevalue(kind)
    text = "0" * (model.length or model.longest)
    assert model.generate(text)[0].text == text


def test_a_minimum_beyond_what_the_model_can_is_refused(quick) -> None:
    with assert_refused("trained on texts of at most 20 tokens: it cannot write 21"):
        replace(quick, longest=20).generate(min_length=21, steps=1)


def test_blanks_are_filled_however_sure_of_other_places_the_model_is(free) -> None:
    parts = [Blank(1, 1), "Once", Blank(1, 1), " upon", Blank(1, 1)]
    (sample,) = free.infill(parts, steps=2, position_temperature=1e-4)
    assert_filled(sample, parts, free.tokenizer)


def test_a_space_before_a_blank_and_no_token_to_bring_it_are_refused(free) -> None:
    spaced = np.flatnonzero(free.tokenizer.begins_with_space()).tolist()
    with assert_refused("banned"):
        free.generate("Once ", banned=spaced, steps=2, seed=0)


def test_negative_seeds_do_for_forced_texts_too(free) -> None:
    assert " upon" in free.generate(seed=-1, forced=[" upon"], steps=2)[0].text


def test_forced_texts_that_the_vocabulary_does_not_know_are_refused(bert) -> None:
    with assert_refused("the tokenizer does not know 'Zebra'"):
        small_model(bert).generate(forced=["Zebra"], steps=2)


def test_banned_texts_that_the_vocabulary_does_not_know_are_refused(bert) -> None:
    with assert_refused("the tokenizer does not know 'Zebra'"):
        small_model(bert).generate(banned=["Zebra"], steps=2)


def test_a_text_of_no_tokens_has_a_score_in_a_model_of_fixed_length_too(fixed) -> None:
    assert fixed.score("").log_likelihood == 0
    assert fixed.score("Once", given="Once[...]").log_likelihood == 0


def test_the_jump_chain_corrects_as_often_as_it_is_told(fixed) -> None:
    for corrections, steps in ((1, 1), (1, 8), (3, 1), (3, 8)):
        samples = fixed.generate(
            num_samples=6,
            sampler="jump-chain",
            trace=True,
            seed=15,
            correct=0.3,
            corrections=corrections,
            correction_steps=steps,
        )
        times = [sum(lost > 0 for lost in losses(sample)) for sample in samples]
        assert max(times) == corrections


def test_a_text_whose_blanks_are_full_is_not_read_any_more(free) -> None:
    (sample,) = free.infill("Once[_] a time", steps=50, seed=0)
    assert sample.nfe == max(sample.born)
    assert free.infill("Once[...0]", steps=50)[0].nfe == 0


class TestWhatIsBroken:
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    @pytest.mark.parametrize("name", ["rate_head.weight", "token_head"])
    def test_answers_that_are_no_numbers_are_refused(self, stories, name, value) -> None:
        model = small_model(stories)
        dict(model.network.named_parameters())[name].data.fill_(value)
        with pytest.raises(ValueError, match="not numbers"):
            model.generate(steps=4, seed=0)

    @pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-20, 1e20])
    def test_extreme_temperatures_are_no_errors(self, stories, temperature) -> None:
        assert len(small_model(stories).generate(steps=8, seed=0, temperature=temperature)) == 1

    def test_whole_numbers_of_numpy_are_whole_numbers(self, stories) -> None:
        model = small_model(stories)
        again = model.generate(steps=np.int64(4), seed=np.int64(1), num_samples=np.int32(1))
        assert str(again[0]) == str(model.generate(steps=4, seed=1)[0])

    @pytest.mark.parametrize(
        "options",
        [
            {"correction_steps": 2.5},
            {"num_samples": 2.5},
            {"batch_size": 1.5},
            {"seed": 1.5},
            {"banned": [1.5]},
            {"steps": "4"},
        ],
    )
    def test_other_numbers_are_refused(self, stories, options) -> None:
        with pytest.raises(ValueError, match="must be a whole number"):
            small_model(stories).generate(**options)

    def test_tokens_can_be_forced_by_their_ids(self, stories) -> None:
        token = int(stories.encode(" time")[0])
        for sample in small_model(stories).generate(num_samples=5, seed=0, steps=8, forced=[token]):
            assert token in sample.tokens

    def test_a_text_that_the_tokenizer_drops_makes_the_result_inexact(self, tmp_path) -> None:
        (tmp_path / "vocab.txt").write_text("\n".join(BERT))
        model = small_model(Tokenizer.load(tmp_path / "vocab.txt"))
        assert not model.infill(["\n", Blank(), "hello"], steps=4, seed=0)[0].exact
        assert model.infill([Blank(), "hello"], steps=4, seed=0)[0].line()["exact"]

    def test_frames_know_their_sample(self, stories) -> None:
        seen = set()
        model = small_model(stories)
        model.generate(
            num_samples=5,
            batch_size=2,
            steps=4,
            seed=0,
            callback=lambda frames: seen.update(frame.number for frame in frames),
        )
        assert seen == set(range(5))

    def test_a_tokenizer_of_another_size_is_noticed(self, stories, tmp_path) -> None:
        small_model(stories).save_pretrained(tmp_path)
        Tokenizer.train_bpe([STORY], 300).save(tmp_path)
        with pytest.raises(ValueError, match="do not belong together"):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "value"), [("longest", "a"), ("format", "x"), ("mean_length", -1)]
    )
    def test_a_damaged_configuration_is_noticed(self, stories, tmp_path, name, value) -> None:
        small_model(stories).save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        (config if name in config else config["model"])[name] = value
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=r"damaged|mean length"):
            load(tmp_path)


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
