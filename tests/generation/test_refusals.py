"""What is refused, and in which words."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from didlm.data.tokenizer import Tokenizer
from didlm.generate.template import Blank
from didlm.pretrained import load
from writing import BERT, STORY, assert_refused, small_model


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


def test_a_minimum_beyond_what_the_model_can_is_refused(quick) -> None:
    with assert_refused("trained on texts of at most 20 tokens: it cannot write 21"):
        replace(quick, longest=20).generate(min_length=21, steps=1)


def test_a_space_before_a_blank_and_no_token_to_bring_it_are_refused(free) -> None:
    spaced = np.flatnonzero(free.tokenizer.begins_with_space()).tolist()
    with assert_refused("banned"):
        free.generate("Once ", banned=spaced, steps=2, seed=0)


def test_forced_texts_that_the_vocabulary_does_not_know_are_refused(bert) -> None:
    with assert_refused("the tokenizer does not know 'Zebra'"):
        small_model(bert).generate(forced=["Zebra"], steps=2)


def test_banned_texts_that_the_vocabulary_does_not_know_are_refused(bert) -> None:
    with assert_refused("the tokenizer does not know 'Zebra'"):
        small_model(bert).generate(banned=["Zebra"], steps=2)


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
