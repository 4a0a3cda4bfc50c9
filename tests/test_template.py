import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from didlm.data.tokenizer import Tokenizer
from didlm.generate.template import (
    NO_LIMIT,
    Blank,
    is_kept,
    match,
    parse,
    start,
    with_forced,
)
from didlm.given import check_spans, open_gaps
from didlm.packed import pack

STORY = "Once upon a time there was happiness, and they lived happily. "
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##ing", "do", "not", "play", ","]


@pytest.fixture(scope="module")
def stories():
    return Tokenizer.train_bpe([STORY] * 3, 330)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    path.write_text("\n".join([*BERT, ""]))
    return Tokenizer.load(path)


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def texts_of_tokens(tokenizer, begun):
    return [tokenizer.token_text(token) for token in begun.tokens]


# Templates as strings.


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("[...]", [Blank()]),
        ("Once [...] and.", ["Once ", Blank(), " and."]),
        ("[...7][...2-9][...3-3][_]", [Blank(0, 7), Blank(2, 9), Blank(3, 3), Blank(1, 1)]),
        (r"\[...] [...] \[_]", ["[...] ", Blank(), " [_]"]),
        (r"a\[...5-2]b[...]", ["a[...5-2]b", Blank()]),
        (r"\\[...][...]", [r"\[...]", Blank()]),
        (r"\[x] \n[...]", [r"\[x] \n", Blank()]),
        ("[..] [....] [... ] [x] [] [__] [...٣][...]", None),
        ("[[...]]", ["[", Blank(), "]"]),
        ("[...0-3]a\n[...03]", [Blank(0, 3), "a\n", Blank(0, 3)]),
        (r"\[...0] \[...-3]\[...3-][_]", ["[...0] [...-3][...3-]", Blank(1, 1)]),
    ],
)
def test_templates_are_parsed(template, parts) -> None:
    ordinary = [template.removesuffix("[...]"), Blank()]
    assert parse(template) == (parts or ordinary)


@pytest.mark.parametrize("template", ["", "no blank", r"\[...]", "[x]"])
def test_a_template_without_a_blank_is_refused(template) -> None:
    with assert_refused("; write [...] where text is to be inserted"):
        parse(template)


def test_impossible_blanks_are_refused() -> None:
    with assert_refused("a blank of at least 5 and at most 2 tokens is impossible; write [...2-5]"):
        parse("a [...5-2]")
    for limits in ((-1,), (0, -1), (1.5,), (True,), (0, "3"), (NO_LIMIT,), (0, NO_LIMIT)):
        with assert_refused(f"from 0 to {NO_LIMIT - 1}: got {limits[-1]!r}; write [...] for no"):
            Blank(*limits)
    with assert_refused("got 99999999999999999999; write [...] for no limit"):
        parse("[...99999999999999999999]")


@pytest.mark.parametrize("blank", ["[...0]", "[...00]", "[...0-0]"])
def test_a_blank_without_room_is_refused_in_a_written_template(blank) -> None:
    with assert_refused(f"the blank {blank} has no room for any token: leave it out, or write"):
        parse(f"a [...] b {blank}")


@pytest.mark.parametrize("blank", ["[...-1]", "[...5-]", "[...2--5]", "[...-]", "[...1-2-3]"])
def test_limits_that_cannot_be_read_are_refused(blank) -> None:
    with assert_refused(f"{blank} is not a blank: write [...5] for at most 5 tokens, [...2-5] for"):
        parse(f"a [...] b {blank}")
    assert parse(f"a [...] b \\{blank}") == ["a ", Blank(), f" b {blank}"]


def test_what_is_no_template_is_refused(stories) -> None:
    with assert_refused("a template must be a text: got list"):
        parse(["a"])
    with assert_refused("expected the parts of a template, got 'a [...]'; use parse to get them"):
        start("a [...]", stories)
    with assert_refused("a template is made of texts and blanks: got int 3"):
        start(["a", 3, Blank()], stories)
    with assert_refused("there is no blank in the template 'ab'; write [...] where"):
        start(["a", "b"], stories)
    with assert_refused("half of a surrogate pair"):
        start(["a\ud800", Blank()], stories)


# What a text starts from.


def test_a_blank_alone_starts_from_nothing(stories) -> None:
    begun = start([Blank()], stories)
    assert begun.tokens.shape == begun.given.shape == (0,)
    assert begun.blank.tolist() == [0]
    assert (begun.least.tolist(), begun.most.tolist()) == ([0], [NO_LIMIT])
    assert begun.spaced.tolist() == [False]
    assert begun.pieces == (None,)
    assert begun.exact
    assert {array.dtype for array in (begun.tokens, begun.given, begun.blank)} == {np.dtype("i8")}


def test_pieces_are_spans_and_blanks_the_only_open_gaps(stories) -> None:
    begun = start(["Once upon", Blank(2, 5), " time.", Blank()], stories)
    first, second = stories.encode("Once upon").tolist(), stories.encode(" time.").tolist()
    assert begun.tokens.tolist() == first + second
    assert begun.given.tolist() == [1] * len(first) + [2] * len(second)
    closed = [-1] * (len(first) - 1), [-1] * (len(second) - 1)
    assert begun.blank.tolist() == [-1, *closed[0], 0, *closed[1], 1]
    assert (begun.least.tolist(), begun.most.tolist()) == ([2, 0], [5, NO_LIMIT])
    assert not begun.spaced.any()
    assert begun.pieces == ("Once upon", None, " time.", None)


def test_each_piece_is_tokenised_on_its_own(stories) -> None:
    assert len(stories.encode(" happiness")) == 1
    begun = start([" hap", Blank(), "piness"], stories)
    assert begun.tokens.tolist() == [*stories.encode(" hap"), *stories.encode("piness")]
    together = start([" hap", "", "piness", Blank()], stories)  # no blank between: one text
    assert together.tokens.tolist() == stories.encode(" happiness").tolist()
    assert together.pieces == (" happiness", None)


def test_neighbouring_blanks_are_one(stories) -> None:
    begun = start([Blank(1, 2), "", Blank(3, 4), "a", Blank(1, 1), Blank(2), Blank(0, 0)], stories)
    assert (begun.least.tolist(), begun.most.tolist()) == ([4, 3], [6, NO_LIMIT])
    assert begun.blank.tolist() == [0, 1]
    assert begun.pieces == (None, "a", None)
    assert start([Blank(0, 0), Blank(0, 0)], stories).blank.tolist() == [-1]


def test_a_blank_of_no_tokens_is_closed(stories) -> None:
    begun = start(["a ", Blank(0, 0), "b", Blank(), "c", Blank(0, 0)], stories)
    assert texts_of_tokens(stories, begun) == ["a", " ", "b", "c"]
    assert begun.given.tolist() == [1, 1, 2, 3]
    assert begun.blank.tolist() == [-1, -1, -1, 0, -1]
    assert begun.most.tolist() == [NO_LIMIT]
    assert begun.pieces == ("a ", "b", None, "c")
    assert not begun.spaced.any()


# Spaces before a blank.


@pytest.mark.parametrize(
    ("piece", "given"),
    [
        (" time ", " time"),
        ("time,\n ", "time,\n"),
        ("é ", "é"),
        ("time", None),
        ("time  ", None),
        ("time\n", None),
        ("time\u00a0", None),
        (" ", None),
    ],
)
def test_one_space_before_a_blank_is_left_to_it(stories, piece, given) -> None:
    begun = start([piece, Blank(0, 3), "."], stories)
    size = len(begun.tokens) - 1
    assert stories.decode(begun.tokens[:size]) == (piece if given is None else given)
    assert np.flatnonzero(begun.spaced).tolist() == ([] if given is None else [size])
    assert begun.least.tolist() == [0 if given is None else 1]
    assert begun.pieces == (piece, None, ".")
    assert begun.exact


def test_a_space_is_not_left_where_nothing_follows(stories) -> None:
    begun = start([Blank(), "time ", Blank(0, 0), "a "], stories)
    assert stories.decode(begun.tokens) == "time a "
    assert not begun.spaced.any()
    assert start(parse("The [_] dog"), stories).least.tolist() == [1]
    assert start(parse("The [...2-4] dog"), stories).least.tolist() == [2]
    assert start(["a ", Blank(0, 0), Blank(0, 1)], stories).spaced.any()


# Tokenizers that do not keep every character.


def test_bert_gives_text_back_only_in_small_letters(bert) -> None:
    assert start(["hello", Blank(), ", do not"], bert).exact
    assert not start(["Hello", Blank(), ", do not"], bert).exact
    assert not start(["hello ", Blank(), ", do not"], bert).exact
    assert not start(["play", Blank(0, 0), "hello", Blank()], bert).exact  # a space comes between
    assert start(["hello ", Blank()], bert).pieces == ("hello ", None)
    assert not start(["hello ", Blank()], bert).spaced.any()


def test_a_tokenizer_that_changes_the_text_is_left_no_space() -> None:
    library = tokenizers.Tokenizer(models.BPE({"Ġ": 0, "a": 1}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    library.decoder = decoders.ByteLevel()
    begun = start(["a ", Blank()], Tokenizer(library))
    assert begun.tokens.tolist() == [0, 1, 0]
    assert not begun.spaced.any()
    assert not begun.exact


def test_text_of_which_no_tokens_are_made_leaves_no_trace(bert) -> None:
    begun = start(["\n", Blank(1, 2), " ", Blank(3, 4), "hello", Blank(0, 0), " "], bert)
    assert begun.blank.tolist() == [0, -1]
    assert (begun.least.tolist(), begun.most.tolist()) == ([4], [6])
    assert begun.pieces == (None, "hello")
    assert not begun.exact


def test_text_that_the_tokenizer_does_not_know_is_refused(bert) -> None:
    with assert_refused("the tokenizer does not know 'Zebra' in 'hello, Zebra 🙂'; leave it out"):
        start(["hello", Blank(), "hello, Zebra 🙂"], bert)


# Whether the given text is there.


@pytest.mark.parametrize(
    ("template", "kept", "lost"),
    [
        ("[...]", ["", "anything"], []),
        ("ab[...]", ["ab", "abc"], ["", "a", "Ab", "cab"]),
        ("[...]ab", ["ab", "cab"], ["", "b", "abc"]),
        ("ab[...]bc", ["abbc", "ab\nbc"], ["abc", "abbcd", "aabbc"]),
        ("[...]ab[...]ba[...]", ["abba", "xabxbax"], ["aba", "baab"]),
        ("[...]a[...]a", ["aa", "aaaa"], ["a", "aab"]),
        (["a", Blank(0, 0), "b", Blank()], ["ab", "abc"], ["a b", "axb"]),
        ([Blank(0, 0), "ab"], ["ab"], ["xab", "abx", ""]),
        ("time [...] and", ["time x and", "time  and"], ["time and", "timex and"]),
        ("e[...]\u0301", ["e\u0301", "ex\u0301"], ["\u00e9", "e"]),
        ("[...]a.c[...]", ["xa.c"], ["abc"]),
    ],
)
def test_is_kept_sees_every_change(stories, template, kept, lost) -> None:
    parts = parse(template) if isinstance(template, str) else template
    begun = start(parts, stories)
    assert [is_kept(begun, text) for text in kept] == [True] * len(kept)
    assert [is_kept(begun, text) for text in lost] == [False] * len(lost)


# Properties of random templates.

texts = st.one_of(
    st.sampled_from(
        ["hap", "piness", " happ", "iness", " ", "  ", "", "\n", "🙂", "👩‍👩‍👧", "e", "\u0301"]
    ),
    st.sampled_from(["Once upon a time ", " and they lived", "happily. ", "\ufffd", "[...]", "\\"]),
    st.text(max_size=6),
    st.text(max_size=4).map(lambda text: text + " "),
)
limits = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3))
blanks = limits.map(lambda pair: Blank(pair[0], None if pair[1] is None else sum(pair)))
templates = st.lists(texts | blanks, max_size=7).flatmap(
    lambda parts: st.permutations([*parts, Blank(0, None)])
)
seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def ordinary(tokenizer):
    return np.setdiff1d(np.arange(tokenizer.vocabulary), [tokenizer.bos])


def filled(begun, tokenizer, rng):
    """Tokens and their spans after a sampler that knows nothing has filled the blanks."""
    tokens, given = begun.tokens.tolist(), begun.given.tolist()
    blank, spaced = begun.blank.tolist(), begun.spaced.tolist()
    any_token, with_space = ordinary(tokenizer), np.flatnonzero(tokenizer.begins_with_space())
    most = np.minimum(begun.most, begun.least + 3)
    todo = rng.permutation(
        np.repeat(np.arange(len(most)), rng.integers(begun.least, most, endpoint=True))
    ).tolist()
    for number in todo:
        gap = int(rng.choice([gap for gap, owner in enumerate(blank) if owner == number]))
        tokens.insert(gap, int(rng.choice(with_space if spaced[gap] else any_token)))
        given.insert(gap, 0)
        blank.insert(gap, number)
        spaced.insert(gap + 1, False)
    return np.array(tokens, dtype=int), np.array(given, dtype=int)


def assert_sound(begun) -> None:
    size = len(begun.tokens)
    assert begun.given.shape == (size,)
    assert begun.blank.shape == begun.spaced.shape == (size + 1,)
    assert begun.least.shape == begun.most.shape
    assert (begun.given > 0).all()
    check_spans(begun.given)
    is_open = begun.blank >= 0
    assert not (is_open & ~open_gaps(begun.given)).any()
    assert sorted(set(begun.blank[is_open])) == list(range(len(begun.least)))
    assert (begun.least <= begun.most).all()
    assert (begun.least[begun.blank[begun.spaced]] >= 1).all()
    assert not (begun.spaced & ~is_open).any()
    # A blank in which a space is owed has no other gap that a token could go to first.
    assert (np.bincount(begun.blank[is_open])[begun.blank[begun.spaced]] == 1).all()
    pack([begun.tokens], 0, [begun.given]).close(np.flatnonzero(~is_open))


@settings(max_examples=1000, deadline=None)
@forall(templates, seeds)
def test_given_text_stands_in_whatever_is_written(stories, parts, rng) -> None:
    begun = start(parts, stories)
    assert_sound(begun)
    assert begun.exact
    assert len(begun.least) == begun.pieces.count(None)
    user = "".join(part for part in parts if isinstance(part, str))
    assert "".join(piece or "" for piece in begun.pieces) == user
    assert len(stories.decode(begun.tokens)) == len(user) - begun.spaced.sum()
    tokens, given = filled(begun, stories, rng)
    np.testing.assert_array_equal(tokens[given != 0], begun.tokens)
    assert is_kept(begun, stories.decode(tokens))


@settings(max_examples=1000, deadline=None)
@forall(templates, seeds)
def test_whatever_is_written_matches_its_template(stories, parts, rng) -> None:
    begun = start(parts, stories)
    text = stories.decode(filled(begun, stories, rng)[0])
    tokens, given = match(parts, text, stories)
    assert stories.decode(tokens) == text
    np.testing.assert_array_equal(tokens[given.spans != 0], begun.tokens)
    check_spans(given.spans)
    assert given.starts_closed == (begun.blank[0] < 0)
    assert given.ends_closed == (begun.blank[-1] < 0)


@settings(max_examples=300, deadline=None)
@forall(templates, seeds, st.lists(st.sampled_from([" happiness", "a", "🙂", " "]), max_size=4))
def test_forced_words_stand_in_the_blanks(stories, parts, rng, words) -> None:
    begun = start(parts, stories)
    forced = with_forced(begun, [stories.encode(word) for word in words], rng)
    assert_sound(forced)
    assert forced.spaced.sum() == begun.spaced.sum()
    assert len(forced.tokens) == len(begun.tokens) + sum(len(stories.encode(w)) for w in words)
    kept = forced.given <= begun.given.max(initial=0)
    np.testing.assert_array_equal(forced.tokens[kept], begun.tokens)
    spans = [forced.tokens[forced.given == number] for number in set(forced.given[~kept].tolist())]
    assert sorted(map(stories.decode, spans)) == sorted(words)
    tokens, given = filled(forced, stories, rng)
    np.testing.assert_array_equal(tokens[given != 0], forced.tokens)
    text = stories.decode(tokens)
    assert is_kept(begun, text)
    assert all(word in text for word in words)


# Forced words.


def test_a_forced_word_takes_from_the_limits_of_its_blank(stories) -> None:
    begun = start(["a", Blank(1, 4), "b", Blank(0, 2), "c"], stories)
    forced = with_forced(begun, [[7, 8, 9]], np.random.default_rng(0))
    a, b, c = begun.tokens
    assert forced.tokens.tolist() == [a, 7, 8, 9, b, c]
    assert forced.given.tolist() == [1, 4, 4, 4, 2, 3]
    assert forced.blank.tolist() == [-1, 0, -1, -1, 0, 1, -1]
    assert (forced.least.tolist(), forced.most.tolist()) == ([0, 0], [1, 2])
    assert begun.tokens.tolist() == [a, b, c]  # the start itself has not changed


def test_a_forced_word_leaves_room_for_the_space_before_it(stories) -> None:
    begun = start(["a ", Blank(0, 3)], stories)
    forced = with_forced(begun, [[7, 8]], np.random.default_rng(0))
    assert forced.spaced.tolist() == [False, True, False, False]
    assert forced.blank.tolist() == [-1, 1, -1, 0]
    assert (forced.least.tolist(), forced.most.tolist()) == ([0, 1], [0, 1])
    with assert_refused("a forced word of 3 tokens does not fit: no blank has room for it and"):
        with_forced(begun, [[7, 8, 9]], np.random.default_rng(0))


@pytest.mark.parametrize(
    ("blank", "least", "most"),
    [
        (Blank(), [0, 1], [NO_LIMIT, NO_LIMIT]),
        (Blank(4), [2, 1], [NO_LIMIT, NO_LIMIT]),
        (Blank(0, 5), [0, 1], [3, 1]),
        (Blank(4, 5), [2, 1], [3, 1]),
        (Blank(2, 2), [0, 1], [0, 1]),
    ],
)
def test_before_a_forced_word_the_space_has_a_blank_of_its_own(stories, blank, least, most) -> None:
    forced = with_forced(start(["a ", blank], stories), [[7]], np.random.default_rng(0))
    assert forced.blank.tolist() == [-1, 1, 0]
    assert (forced.least.tolist(), forced.most.tolist()) == (least, most)


def test_a_space_stays_in_its_blank_if_the_word_is_elsewhere(stories) -> None:
    begun = start(["a ", Blank(0, 1), "b", Blank()], stories)
    forced = with_forced(begun, [[7]], np.random.default_rng(0))
    assert forced.blank.tolist() == [-1, 0, 1, 1]
    assert (forced.least.tolist(), forced.most.tolist()) == ([1, 0], [1, NO_LIMIT])


def test_forced_words_are_spread_at_random_and_the_longest_finds_room(stories) -> None:
    begun = start(["a", Blank(0, 3), "b", Blank(0, 1), "c"], stories)
    for seed in range(10):
        with_forced(begun, [[7], [8, 8, 8]], np.random.default_rng(seed))
    begun = start([Blank(), "b", Blank()], stories)
    assert with_forced(begun, [[7]], np.random.default_rng(0)).most.tolist() == [NO_LIMIT] * 2
    seen = {
        tuple(with_forced(begun, [[7], [8]], np.random.default_rng(seed)).tokens.tolist())
        for seed in range(60)
    }
    b = begun.tokens[0]
    assert seen == {(7, 8, b), (8, 7, b), (7, b, 8), (8, b, 7), (b, 7, 8), (b, 8, 7)}
    one, other = (with_forced(begun, [[7], [8]], np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one.tokens, other.tokens)


def test_words_that_cannot_be_forced_are_refused(stories) -> None:
    rng = np.random.default_rng(0)
    begun = start(["a", Blank(0, 3)], stories)
    with assert_refused("forced word 1 has no tokens; leave it out"):
        with_forced(begun, [[7], []], rng)
    with assert_refused("forced word 0 has a negative id, -1"):
        with_forced(begun, [[-1]], rng)
    with assert_refused("a forced word of 2 tokens does not fit"):
        with_forced(begun, [[7, 7], [7, 7]], rng)
    with assert_refused("a forced word of 1 tokens does not fit"):
        with_forced(start(["a", Blank(0, 0)], stories), [[7]], rng)


def test_without_forced_words_nothing_changes(stories) -> None:
    begun = start(["a ", Blank(0, 3), "b", Blank()], stories)
    same = with_forced(begun, [], np.random.default_rng(0))
    assert repr(same) == repr(begun)


# Scoring.


def test_match_tells_given_from_free(stories) -> None:
    tokens, given = match(parse("Once [...] time[...]."), "Once upon a time. Yes.", stories)
    pieces = ["Once", " upon a", " time", ". Yes", "."]
    expected = stories.encode_batch(pieces)
    assert tokens.tolist() == np.concatenate(expected).tolist()
    assert given.spans.tolist() == np.repeat([1, 0, 2, 0, 3], list(map(len, expected))).tolist()
    assert (given.starts_closed, given.ends_closed) == (True, True)
    _, given = match([Blank(), "a", Blank()], "a", stories)
    assert (given.starts_closed, given.ends_closed) == (False, False)


def test_blanks_match_as_little_as_they_can(stories) -> None:
    tokens, given = match([Blank(), "a", Blank(), "b"], "xaabb", stories)
    assert stories.decode(tokens[given.spans == 0]) == "xab"
    assert stories.decode(tokens[: int(np.argmax(given.spans))]) == "xaab"


def test_pieces_that_adjoin_are_one_span_when_scored(stories) -> None:
    tokens, given = match(["a", Blank(0, 0), "b", Blank(), "c"], "abxc", stories)
    assert stories.decode(tokens) == "abxc"
    assert given.spans.tolist() == [1, 1, 0, 2]
    tokens, given = match(["ab", Blank(0, 0)], "ab", stories)
    assert given.spans.tolist() == [1, 1]


def test_a_text_that_does_not_match_is_refused(stories) -> None:
    with assert_refused("the text 'Twice' does not match the template 'Once [...]'"):
        match(parse("Once [...]"), "Twice", stories)
    with assert_refused("there is no blank"):
        match(["Twice"], "Twice", stories)
