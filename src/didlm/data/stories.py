"""An endless corpus of short stories for children, with a known entropy.

The stories are written by the grammar below. A child, a pet, a toy, a place, the weather, a trouble
and a helper are drawn where they are first mentioned and come back through the rest of the story,
so that most of what is written late follows from what was written early. Every story has exactly
one derivation, so its probability can be computed exactly from its text. So can the entropy of the
stories: the least loss that a model of them can reach.
"""

import hashlib
from functools import cache

import numpy as np

from didlm.data.grammar import Grammar, Thing

VALIDATION_SHARE = 16  # one story in so many is kept for validation

OPENING = """(
    {new hero}, a {new trait} {hero.child}, had a {new nature} {new animal}
  | {new hero} was a {new trait} {hero.child} with a {new nature} {new animal}
  | (Once upon a time, there was | Far away lived | Long ago there was) a {new trait} child named
    {new hero}. {hero.His} best friend was a {new nature} {new animal}
) (named|called) {new pet}.
"""

OUTING = """(
    One {new weather} {new hour}, ({hero} | {hero.he}) and {pet} (took | brought) a {new colour}
    {new toy} to the {new place}.
  | On a {new weather} {new hour}, ({pet} | the {animal}) {animal.moved} to the {new place},
    and ({hero} | {hero.he}) (took | brought) a {new colour} {new toy}.
  | In the {new place}, on a {new weather} {new hour}, ({hero} | {pet}) found a {new colour}
    {new toy}.
)
(| ({hero} | {hero.He}) wore {weather.clothes}.)
"""

TROUBLE = "(Suddenly, | But soon | Then | Alas,) {new trouble.event}"

FEELING = """(
    ({hero} | {hero.He}) (was | felt) {new mood}
  | This made ({hero} | {hero.him}) {new mood}
  | The {trait} {hero.child} (was | felt) {new mood}
)
(. | , and ({pet} | the {animal}) (was {mood} too | hid behind {hero.him}).)
"""

ATTEMPT = "(| ({hero} | {hero.He}) {trouble.attempt})"

HELPER = """
(Just then | Soon | At last), a {new manner} {new helper} (came by | heard them | saw them).
(| (({hero} | {pet}) told {helper.him} about the {toy}.
    | (The {helper} | {helper.He}) asked why (they were | {hero} was) {mood}.))
(The {helper} | {helper.He}) {trouble.rescue}
"""

THANKS = """(
    {hero} was not {mood} any more
  | ({hero} | The {trait} {hero.child}) (laughed | clapped | sang)
    (| and ({pet} | the {animal}) {animal.moved} in circles)
  | ({hero} | The {trait} {hero.child}) thanked (the {helper} | {helper.him})
    (| and gave {helper.him} a {new gift})
).
"""

PLAY = """(|
    (They | {hero} and {pet}) {toy.used} (it | the {toy} | the {colour} {toy})
    (until the {weather.noun} was gone | again | with the {helper} | all {hour}).
)"""

RETURN = """(|
    (At home | That night), (
        ({hero} | {hero.he}) told {hero.his} {new family} about the (
            {manner} {helper} | {toy} | {place} | {trouble.memory})
      | {hero.his} {new family} gave ({pet} | the {nature} {animal}) some {animal.food}
    ).
)"""

LESSON = """
(From that {hour} on, {hero} knew | {hero} learned | {hero} never forgot) that {trouble.lesson}.
"""

STORY = " ".join((OPENING, OUTING, TROUBLE, FEELING, ATTEMPT, HELPER, THANKS, PLAY, RETURN, LESSON))

LOST: Thing = {
    "event": "({hero} | {pet}) lost the {toy} (. | near the {place.spot}.)",
    "attempt": "looked (behind | under) every (stone | bush | tree), but the {toy} was not there.",
    "rescue": "found (it | the {toy}) in the (grass | mud | leaves).",
    "memory": "search",
    "lesson": "(we must look after | it is good to look for) (our things | each other)",
}
BROKEN: Thing = {
    "event": "the {toy} (fell on a stone | hit a tree) and broke.",
    "attempt": "tried to mend (it | the {toy}), but it (fell apart | broke again).",
    "rescue": "mended (it | the {toy}) with some (glue | string | tape).",
    "memory": "{mood} {hour}",
    "lesson": "(broken | old) (toys | things) can be (mended | loved)",
}
STUCK: Thing = {
    "event": "the {toy} (flew into | got stuck in) a tall tree (. | near the {place.spot}.)",
    "attempt": "(climbed | shook) the tree, but (it | the {toy}) was too high.",
    "rescue": "(climbed the tree | brought a ladder) and got (it | the {toy}) down.",
    "memory": "tall tree",
    "lesson": "it is (good | brave | wise) to ask (for help | a friend)",
}
SUNK: Thing = {
    "event": "the {toy} fell into a deep {new pit} (. | near the {place.spot}.)",
    "attempt": "reached into the {pit}, but (it | the {pit}) was too deep.",
    "rescue": "let down a {new tool}, and the {tool} brought (it | the {toy}) up.",
    "memory": "{pit}",
    "lesson": "(there is a way out of every {pit} | even a small {tool} can help)",
}
TAKEN: Thing = {
    "event": "a {new thief} took the {toy} (. | and hid near the {place.spot}.)",
    "attempt": "(ran after | shouted at) the {thief}, but (it | the {thief}) only laughed.",
    "rescue": "gave the {thief} a {new gift}, and (it | the {thief}) gave back the {toy}.",
    "memory": "{thief}",
    "lesson": "(even a {thief} can be kind | kind words are better than (loud | angry) words)",
}
QUARREL: Thing = {
    "event": "(they | {hero} and {pet}) both wanted the {toy} (. | and began to fight.)",
    "attempt": "(hid | took) the {toy}, but it was no fun without {pet}.",
    "rescue": "(showed | told) them how to take turns, and ({hero} | {pet}) {toy.used} it first.",
    "memory": "fight",
    "lesson": "(sharing | playing) is better than (fighting | winning | crying)",
}

SHE = {"he": "she", "him": "her", "his": "her", "He": "She", "His": "Her"}
HE = {"he": "he", "him": "him", "his": "his", "He": "He", "His": "His"}


def _things(forms: str, *rows: str) -> list[Thing]:
    """One thing for each row, whose cells are in the order of the names of the forms."""
    names = forms.split("/")
    return [dict(zip(names, row.split("/"), strict=True)) for row in rows]


def _names(words: str, **same_forms: str) -> list[Thing]:
    """One thing for each word, all of them sharing the other forms."""
    return [{"name": word, **same_forms} for word in words.split()]


TRAITS = _names("kind brave shy clever quiet merry proud gentle")

SLOTS = {
    "hero": _names("Lily Mia Anna Rosie Nora Ella", child="girl", **SHE)
    + _names("Tom Ben Max Sam Leo Jack", child="boy", **HE),
    "trait": TRAITS,
    "nature": TRAITS,
    "animal": _things(
        "name/moved/food",
        "rabbit/hopped/carrots",
        "puppy/ran/bones",
        "kitten/crept/fish",
        "duck/waddled/bread",
        "mouse/raced/cheese",
        "pony/trotted/hay",
        "frog/jumped/flies",
        "lamb/skipped/clover",
        "bear/danced/honey",
    ),
    "pet": _names("Pip Biscuit Pepper Bramble Coco Muffin Button Ziggy"),
    "weather": _things(
        "name/noun/clothes",
        "sunny/sun/a straw hat",
        "rainy/rain/rubber boots",
        "windy/wind/a thick coat",
        "snowy/snow/warm mittens",
        "foggy/fog/a long scarf",
    ),
    "hour": _names("morning day afternoon evening"),
    "colour": _names("red blue green yellow pink silver white black"),
    "toy": _things(
        "name/used",
        "kite/flew",
        "ball/kicked",
        "drum/beat",
        "bell/rang",
        "crown/wore",
        "flute/played",
        "whistle/blew",
        "hoop/rolled",
        "top/spun",
        "rattle/shook",
    ),
    "place": _things(
        "name/spot",
        "park/fountain",
        "forest/stream",
        "garden/roses",
        "meadow/daisies",
        "market/stalls",
        "harbour/ships",
        "valley/bridge",
        "village/church",
    ),
    "trouble": [LOST, BROKEN, STUCK, SUNK, TAKEN, QUARREL],
    "pit": _names("well hole pond ditch"),
    "tool": _names("net hook bucket basket"),
    "thief": _names("crow magpie goat monkey"),
    "mood": _names("sad worried cross upset unhappy"),
    "manner": TRAITS,
    "helper": _names("baker queen painter nurse", **SHE)
    + _names("farmer sailor miller wizard", **HE),
    "gift": _names("cookie flower shell feather coin"),
    "family": _names("mother father grandmother grandfather"),
}


@cache
def grammar() -> Grammar:
    """The grammar of the stories."""
    return Grammar(STORY, SLOTS)


def write(rng: np.random.Generator) -> str:
    """Draw a story."""
    return grammar().write(rng)


def log_probability(story: str) -> float:
    """The exact log-probability of a story: minus infinity if the grammar cannot write it."""
    return grammar().log_probability(story)


@cache
def entropy() -> float:
    """The exact entropy of the stories, in nats per story."""
    return grammar().expectations()[0]


@cache
def expected_tokens() -> float:
    """The exact expected number of words and punctuation marks in a story."""
    return grammar().expectations()[1]


def training_stories(count: int, seed: int = 0) -> list[str]:
    """Draw stories to train on: none of them is a validation story, whatever the seeds."""
    return _draw(count, seed, validation=False)


def validation_stories(count: int, seed: int = 0) -> list[str]:
    """Draw stories to validate on: none of them is a training story, whatever the seeds."""
    return _draw(count, seed, validation=True)


def _draw(count: int, seed: int, *, validation: bool) -> list[str]:
    if count < 0:
        raise ValueError(f"cannot draw {count} stories; ask for 0 or more")
    rng = np.random.default_rng(seed)
    stories: list[str] = []
    while len(stories) < count:
        story = write(rng)
        if _is_for_validation(story) == validation:
            stories.append(story)
    return stories


def _is_for_validation(story: str) -> bool:
    """Whether the hash of the text puts it among the validation stories."""
    return hashlib.sha256(story.encode()).digest()[0] % VALIDATION_SHARE == 0
