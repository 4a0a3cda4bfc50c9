"""A grammar of texts in which the things that were chosen come back.

A grammar is plain text with two marks. `(one|two|)` chooses between options, any of which may be
empty. `{new hero}` draws one of the things of the slot `hero` and writes its name; from then on
`{hero}` writes that name again, and `{hero.his}` another form of the same thing. Forms are text in
the same notation, so what was drawn early decides what can be written late. White space only
separates tokens.

Every choice is uniform and independent of the others. A derivation with choices among n_1, n_2, ...
options therefore has probability 1 / (n_1 n_2 ...), and in an unambiguous grammar the entropy of
the texts is the expectation of log n_1 + log n_2 + ...
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

Thing = Mapping[str, str]  # from the names of the forms to their text; `name` is the usual form
Text = tuple["Part", ...]
Context = Mapping[str, int]  # from slots to the number of the thing drawn
Beginnings = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Choice:
    """Equally likely texts, of which one is written."""

    options: tuple[Text, ...]


@dataclass(frozen=True)
class Mention:
    """A form of the thing in a slot, which is drawn here if it is new."""

    slot: str
    form: str
    new: bool


Part = str | Choice | Mention

_TOKEN = re.compile(r"\w+|[^\w\s]")
_SYMBOL = re.compile(r"\{(new )?(\w+)(?:\.(\w+))?\}|" + _TOKEN.pattern)
_SPACE_BEFORE_MARK = re.compile(r" (?=[^\w\s])")


def split(text: str) -> list[str]:
    """The words and punctuation marks of a text."""
    return _TOKEN.findall(text)


def join(tokens: Sequence[str]) -> str:
    """The text of these words and marks: a space before every word, none before a mark."""
    return _SPACE_BEFORE_MARK.sub("", " ".join(tokens))


def read_notation(notation: str) -> Text:
    """The parts of a text in the notation of this module.

    Raises:
        ValueError: if the parentheses do not match.
    """
    levels: list[list[list[Part]]] = [[[]]]
    for match in _SYMBOL.finditer(notation):
        symbol = match[0]
        if symbol == "(":
            levels.append([[]])
        elif symbol == "|":
            levels[-1].append([])
        elif symbol == ")" and len(levels) > 1:
            inner = _choice(levels.pop())
            levels[-1][-1].extend(inner)
        elif match[2]:
            levels[-1][-1].append(Mention(match[2], match[3] or "name", bool(match[1])))
        elif symbol in "(){}":
            raise ValueError(f"unexpected {symbol!r} at position {match.start()} of {notation!r}")
        else:
            levels[-1][-1].append(symbol)
    if len(levels) > 1:
        raise ValueError(f"{len(levels) - 1} parentheses are never closed in {notation!r}")
    return _choice(levels[0])


def _choice(options: list[list[Part]]) -> Text:
    if len(options) == 1:
        return tuple(options[0])
    return (Choice(tuple(tuple(option) for option in options)),)


def _is_free(part: Choice | Mention) -> bool:
    """Whether something is chosen here, rather than mentioned again."""
    return isinstance(part, Choice) or part.new


class Grammar:
    """A text in the notation of this module, and the things that each slot can hold."""

    def __init__(self, notation: str, slots: Mapping[str, Sequence[Thing]]) -> None:
        self._text = read_notation(notation)
        self._slots = {
            slot: [{form: read_notation(text) for form, text in thing.items()} for thing in things]
            for slot, things in slots.items()
        }

    def write(self, rng: np.random.Generator) -> str:
        """Draw a text."""
        tokens: list[str] = []
        pending = list(reversed(self._text))
        context: Context = {}
        while pending:
            part = pending.pop()
            if isinstance(part, str):
                tokens.append(part)
                continue
            options = self._options(part, context)
            text, context = options[rng.integers(len(options)) if len(options) > 1 else 0]
            pending.extend(reversed(text))
        return join(tokens)

    def derivations(self, text: str) -> Iterator[float]:
        """The log-probability of every derivation of this text: none if it cannot be written."""
        tokens = split(text)
        if join(tokens) != text:
            return
        open_paths: list[tuple[Text, Context, int, float]] = [(self._text, {}, 0, 0.0)]
        while open_paths:
            pending, context, position, log_probability = open_paths.pop()
            while pending and isinstance(pending[0], str):
                if position == len(tokens) or tokens[position] != pending[0]:
                    break
                pending, position = pending[1:], position + 1
            if not pending:
                if position == len(tokens):
                    yield log_probability
            elif not isinstance(pending[0], str):
                options = self._options(pending[0], context)
                log_probability -= math.log(len(options))
                for option, extended in options:
                    path = (option + pending[1:], extended, position, log_probability)
                    open_paths.append(path)

    def log_probability(self, text: str) -> float:
        """The log-probability of a text: minus infinity if the grammar cannot write it."""
        return float(np.logaddexp.reduce([*self.derivations(text), -math.inf]))

    def expectations(self) -> tuple[float, float]:
        """The expected information in nats of a derivation, and its expected number of tokens.

        By linearity every part counts for itself, weighted by how likely it is to be written.
        """
        return self._expectations(self._text, {})

    def clashes(self, lookahead: int) -> list[str]:
        """The choices that the next `lookahead` tokens may leave open.

        If there are none, reading a text from left to right never leaves a choice open, so the
        grammar is unambiguous. The check is cautious: a thing mentioned again counts as any thing
        of its slot.
        """
        found: list[str] = []
        self._beginnings(self._text, frozenset({()}), lookahead, found)
        return found

    def _options(self, part: Choice | Mention, context: Context) -> list[tuple[Text, Context]]:
        if isinstance(part, Choice):
            return [(option, context) for option in part.options]
        things = self._slots[part.slot]
        if part.new:
            return [
                (forms[part.form], {**context, part.slot: number})
                for number, forms in enumerate(things)
            ]
        if part.slot not in context:
            raise ValueError(f"{part} comes before anything was drawn; write {{new {part.slot}}}")
        return [(things[context[part.slot]][part.form], context)]

    def _possible_options(
        self, part: Choice | Mention, known: Context
    ) -> list[tuple[Text, Context]]:
        """The options if only some of the things drawn are known: any thing may be mentioned."""
        if isinstance(part, Mention) and part.slot not in known:
            part = replace(part, new=True)
        return self._options(part, known)

    def _expectations(self, text: Text, known: Context) -> tuple[float, float]:
        """The expectations of a text that stands in forms of the known things.

        Any other thing that is mentioned again is uniform over its slot, because it was drawn
        uniformly, whatever else was drawn.
        """
        nats = tokens = 0.0
        for part in text:
            if isinstance(part, str):
                tokens += 1
                continue
            options = self._possible_options(part, known)
            if _is_free(part):
                nats += math.log(len(options))
            for option, extended in options:
                more_nats, more_tokens = self._expectations(option, extended)
                nats += more_nats / len(options)
                tokens += more_tokens / len(options)
        return nats, tokens

    def _beginnings(
        self, text: Text, following: Beginnings, lookahead: int, found: list[str]
    ) -> Beginnings:
        """The first tokens of this text and what follows it; adds to `found` what clashes."""
        for part in reversed(text):
            if isinstance(part, str):
                following = frozenset((part, *rest)[:lookahead] for rest in following)
                continue
            branches = [
                self._beginnings(option, following, lookahead, found)
                for option, _ in self._possible_options(part, {})
            ]
            following = frozenset[tuple[str, ...]]().union(*branches)
            if _is_free(part) and sum(map(len, branches)) > len(following):
                found.append(str(part))
        return following
