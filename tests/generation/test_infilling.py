"""Infilling: what is given stays, and the rest is in the blanks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from didlm.generate.template import Blank, start
from writing import assert_filled, inserted, is_given, pattern, texts

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
    template = r"Once [...3] a \[...] time[_], 🙂 [...2-4]."
    parts = ["Once ", Blank(0, 3), " a [...] time", Blank(1, 1), ", 🙂 "]
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


def test_blanks_are_filled_however_sure_of_other_places_the_model_is(free) -> None:
    parts = [Blank(1, 1), "Once", Blank(1, 1), " upon", Blank(1, 1)]
    (sample,) = free.infill(parts, steps=2, position_temperature=1e-4)
    assert_filled(sample, parts, free.tokenizer)


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_where_nothing_is_to_be_written_the_given_text_is_returned(request, kind) -> None:
    model = request.getfixturevalue(kind)
    text = "0" * (model.length or model.longest)
    assert model.generate(text)[0].text == text
