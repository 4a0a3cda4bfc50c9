import math
import re
from collections import Counter

import numpy as np
import pytest

from didlm.data import stories
from didlm.data.grammar import Grammar, join, read_notation, split

TINY = Grammar(
    "{new cat} (sat | {cat.moved}) (| (near | on) the {new mat}). (| {cat.He} slept.)",
    {
        "cat": [
            {"name": "Tom", "moved": "(ran | hid)", "He": "He"},
            {"name": "Mia", "moved": "(hopped | ran | {new mat.verb})", "He": "She"},
        ],
        "mat": [{"name": "mat", "verb": "lay"}, {"name": "rug", "verb": "rolled"}],
    },
)


@pytest.fixture(scope="module")
def sample() -> list[str]:
    rng = np.random.default_rng(0)
    return [stories.write(rng) for _ in range(3000)]


def words_of(story: str) -> list[str]:
    return re.findall(r"\w+", story)


def agrees(values: list[float], expected: float) -> bool:
    return abs(np.mean(values) - expected) < 4 * np.std(values) / math.sqrt(len(values))


def test_the_probabilities_of_a_tiny_grammar_sum_to_one_and_give_its_entropy() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(TINY.write(rng) for _ in range(20_000))
    probability = {text: math.exp(TINY.log_probability(text)) for text in counts}
    assert sum(probability.values()) == pytest.approx(1)
    nats, tokens = TINY.expectations()
    assert nats == pytest.approx(-sum(p * math.log(p) for p in probability.values()))
    assert tokens == pytest.approx(sum(p * len(split(text)) for text, p in probability.items()))
    for text, p in probability.items():
        assert abs(counts[text] - 20_000 * p) < 5 * math.sqrt(20_000 * p)


def test_an_ambiguous_grammar_is_found_out_and_its_derivations_are_added_up() -> None:
    ambiguous = Grammar("one (| two) (| two) three", {})
    assert len(ambiguous.clashes(lookahead=4)) == 1
    assert len(list(ambiguous.derivations("one two three"))) == 2
    assert ambiguous.log_probability("one two three") == pytest.approx(math.log(1 / 2))
    assert Grammar("(a b | a c)", {}).clashes(lookahead=1)
    assert not Grammar("(a b | a c)", {}).clashes(lookahead=2)
    twins = [{"name": "Mia", "he": "she"}, {"name": "Eve", "he": "she"}]
    assert Grammar("{new girl.he} ran", {"girl": twins}).clashes(lookahead=4)


def test_faulty_notation_is_refused() -> None:
    with pytest.raises(ValueError, match="1 parentheses are never closed"):
        read_notation("(one | two")
    with pytest.raises(ValueError, match=r"unexpected '\)' at position 4"):
        read_notation("one )")
    with pytest.raises(ValueError, match=r"unexpected '\{' at position 0"):
        read_notation("{old hero}")
    with pytest.raises(ValueError, match=r"before anything was drawn; write \{new hero\}"):
        Grammar("{hero} ran", {"hero": [{"name": "Tom"}]}).write(np.random.default_rng(0))


def test_no_two_derivations_give_the_same_story() -> None:
    assert stories.grammar().clashes(lookahead=4) == []


def test_every_story_has_one_derivation_and_on_average_the_entropy(sample: list[str]) -> None:
    derivations = [list(stories.grammar().derivations(story)) for story in sample]
    assert all(len(found) == 1 for found in derivations)
    assert agrees([-found[0] for found in derivations], stories.entropy())
    assert stories.log_probability(sample[0]) == pytest.approx(derivations[0][0])


def test_the_expected_length_agrees_with_the_stories(sample: list[str]) -> None:
    assert agrees([len(split(story)) for story in sample], stories.expected_tokens())


def test_the_corpus_is_rich_long_and_predictable(sample: list[str]) -> None:
    lengths = [len(words_of(story)) for story in sample]
    assert len({word.lower() for story in sample for word in words_of(story)}) >= 150
    assert np.mean(lengths) >= 60
    assert np.std(lengths) >= 10
    assert 0.45 <= stories.entropy() / stories.expected_tokens() <= 0.6


def test_a_story_with_one_wrong_word_cannot_be_written(sample: list[str]) -> None:
    rng = np.random.default_rng(1)
    vocabulary = sorted({token for story in sample for token in split(story)})
    impossible = 0
    for story in sample[:500]:
        tokens = split(story)
        tokens[rng.integers(len(tokens))] = vocabulary[rng.integers(len(vocabulary))]
        impossible += stories.log_probability(join(tokens)) == -math.inf
    assert impossible >= 475


def test_a_story_with_two_words_exchanged_cannot_be_written(sample: list[str]) -> None:
    rng = np.random.default_rng(2)
    possible = 0
    for story in sample[:500]:
        tokens = split(story)
        one, two = rng.choice(len(tokens), size=2, replace=False)
        if tokens[one] != tokens[two]:
            tokens[one], tokens[two] = tokens[two], tokens[one]
            possible += stories.log_probability(join(tokens)) > -math.inf
    assert possible <= 10


def test_other_texts_cannot_be_written(sample: list[str]) -> None:
    story = sample[0]
    others = ["", "Call me Ishmael.", story[:-1], story + " ", story + story, story.lower()]
    others += [story.replace(" ", "  ", 1), " ".join(split(story)), " " + story]
    assert all(stories.log_probability(other) == -math.inf for other in others)


def test_stories_read_as_english_text(sample: list[str]) -> None:
    for story in sample:
        assert re.fullmatch(r"([A-Z]\w*(,? \w+)*\.( |$))+", story)
        assert join(split(story)) == story


def test_the_characters_come_back_and_keep_their_pronouns(sample: list[str]) -> None:
    girls = {"Lily", "Mia", "Anna", "Rosie", "Nora", "Ella"}
    boys = {"Tom", "Ben", "Max", "Sam", "Leo", "Jack"}
    for story in sample:
        counts = Counter(words_of(story))
        (hero,) = (girls | boys) & counts.keys()
        assert counts[hero] >= 2
        assert ("boy" if hero in girls else "girl") not in counts
        # Before the helper comes, every he or she is the child.
        before = set(words_of(re.split(r"(Just then|Soon|At last),", story)[0].lower()))
        assert not before & ({"he", "his", "him"} if hero in girls else {"she", "her"})


def test_validation_stories_are_never_training_stories() -> None:
    training = [set(stories.training_stories(300, seed)) for seed in (0, 1)]
    validation = [set(stories.validation_stories(40, seed)) for seed in (0, 1)]
    assert all(not one & two for one in training for two in validation)
    assert [len(drawn) for drawn in training + validation] == [300, 300, 40, 40]
    # One seed draws one stream of stories, of which each side keeps its own.
    rng = np.random.default_rng(0)
    assert {stories.write(rng) for _ in range(300)} <= training[0] | validation[0]


def test_equal_seeds_draw_equal_stories() -> None:
    assert stories.training_stories(20, 3) == stories.training_stories(20, 3)
    assert stories.training_stories(10, 3) == stories.training_stories(20, 3)[:10]
    assert stories.training_stories(20, 3) != stories.training_stories(20, 4)
    assert stories.validation_stories(5, 3) == stories.validation_stories(5, 3)
    assert stories.training_stories(0) == []
    with pytest.raises(ValueError, match="cannot draw -1 stories"):
        stories.training_stories(-1)
