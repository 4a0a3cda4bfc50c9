r"""Templates: text with blanks to be filled, and what a sampler starts from.

In a template `[...]` is a blank of any length, `[...N]` one of at most N tokens, `[...M-N]` one of
M to N tokens and `[_]` a single token. A backslash right before makes it text: `\[...]`. Limits
that make no sense, as in `[...0]` or `[...-3]`, are refused, and anything else in brackets is text.
In Python a template may also be a sequence of texts and blanks.

With byte-level tokenizers a word carries the space before it. So where a text ends in one space
before a blank, as in "Once upon a time [...]", that space is not given as a token of its own, which
a model has hardly ever seen: the first token of the blank must begin with it instead.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from didlm._inputs import BoolArray, IntArray, Integers, token_ids
from didlm.data.tokenizer import Tokenizer
from didlm.given import GivenText

NO_LIMIT = 2**31 - 1
CLOSED = -1

_BLANK = re.compile(r"(?P<escape>\\)?\[(?:(?P<one>_)|\.\.\.(?P<limits>[0-9-]*))\]")
_LIMITS = re.compile(r"(?:(?P<least>[0-9]+)-)?(?P<most>[0-9]+)")


@dataclass(frozen=True)
class Blank:
    """A place for tokens in a template: at least `least`, at most `most` (None: no limit)."""

    least: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        for limit in (self.least,) if self.most is None else (self.least, self.most):
            if type(limit) is not int or not 0 <= limit < NO_LIMIT:
                raise ValueError(
                    f"the limits of a blank must be integers from 0 to {NO_LIMIT - 1}: "
                    f"got {limit!r}; write [...] for no limit"
                )
        if self.most is not None and self.most < self.least:
            raise ValueError(
                f"a blank of at least {self.least} and at most {self.most} tokens is impossible; "
                f"write [...{self.most}-{self.least}] for {self.most} to {self.least} tokens"
            )

    @property
    def closed(self) -> bool:
        """Whether nothing may be inserted."""
        return self.most == 0


Parts = Sequence[str | Blank]


@dataclass(frozen=True, eq=False)
class Start:
    """What a text starts from: n given tokens, and B blanks in the n + 1 gaps around them."""

    tokens: IntArray  # [n] without BOS
    given: IntArray  # [n] the number of the span of each: 1, 2, ... (see `didlm.given`)
    blank: IntArray  # [n + 1] the blank that the gap after the first i tokens is in, or CLOSED
    least: IntArray  # [B] tokens to be inserted into each blank, at least
    most: IntArray  # [B] and at most: NO_LIMIT if there is none
    # [n + 1] gaps that must receive a token, and directly after token i only such as begin with a
    # space: what is inserted further right is free.
    spaced: BoolArray
    pieces: tuple[str | None, ...]  # the given text as the user wrote it; None stands for a blank
    exact: bool  # whether the tokenizer gives the given text back character for character


@dataclass(frozen=True, eq=False)
class _Piece:
    """A text of a template, and the tokens that are given of it."""

    text: str
    tokens: IntArray
    leaves_space: bool  # its last space is left to the blank after it


def parse(template: str) -> list[str | Blank]:
    """Texts and blanks of a template.

    Raises:
        ValueError: if there is no blank, or an impossible one such as [...5-2] or [...0].
    """
    if not isinstance(template, str):
        raise ValueError(f"a template must be a text: got {type(template).__name__}")
    parts: list[str | Blank] = []
    end = 0
    for found in _BLANK.finditer(template):
        parts += [template[end : found.start()], _text_or_blank(found)]
        end = found.end()
    return _joined([*parts, template[end:]])


def start(parts: Parts, tokenizer: Tokenizer) -> Start:
    """What to start from, given the parts of a template; every text is tokenised on its own.

    Neighbouring blanks, also with a text between them of which the tokenizer makes no tokens, are
    one blank, whose limits are the sums of theirs. Neighbouring texts are one text.

    Raises:
        ValueError: if there is no blank, or a text that the tokenizer does not know.
    """
    plan = _plan(parts, tokenizer)
    tokens: list[int] = []
    given: list[int] = []
    gaps, spaced = [CLOSED], [False]
    blanks: list[Blank] = []
    for part in plan:
        if isinstance(part, _Piece):
            tokens += part.tokens.tolist()
            given += [given[-1] + 1 if given else 1] * part.tokens.size
            gaps += [CLOSED] * part.tokens.size
            spaced += [False] * (part.tokens.size - 1) + [part.leaves_space]
        elif not part.closed:
            gaps[-1] = len(blanks)
            blanks.append(replace(part, least=max(part.least, int(spaced[-1]))))
    return Start(
        tokens=np.array(tokens, dtype=np.int64),
        given=np.array(given, dtype=np.int64),
        blank=np.array(gaps, dtype=np.int64),
        least=np.array([blank.least for blank in blanks], dtype=np.int64),
        most=np.array([_most(blank) for blank in blanks], dtype=np.int64),
        spaced=np.array(spaced, dtype=np.bool_),
        pieces=tuple(
            part.text if isinstance(part, _Piece) else None for part in _without_closed(plan)
        ),
        exact=_is_exact(plan, tokenizer) and _all_text(plan) == _all_text(parts),
    )


def is_kept(start: Start, text: str) -> bool:
    """Whether all given text stands in a text, in order and character for character.

    It stands at the very beginning and at the very end where the template has no blank there.
    """
    return _texts_in_blanks(start.pieces, text) is not None


def with_forced(start: Start, forced: Sequence[Integers], rng: np.random.Generator) -> Start:
    """The start with words (runs of tokens) given in addition, each in a blank drawn at random.

    A blank's limits go down by the words in it. Where one text ends in a space before a blank, the
    space still comes from an inserted token, so there must be room for one besides the words.

    Raises:
        ValueError: if a word is empty, or no blank has room for it.
    """
    words = [token_ids(word, f"forced word {number}") for number, word in enumerate(forced)]
    for number, word in enumerate(words):
        if not word.size:
            raise ValueError(f"forced word {number} has no tokens; leave it out")
    for word in sorted(words, key=len, reverse=True):  # the longest is the hardest to place
        start = _with_word(start, word, rng)
    return _with_spaced_apart(start)


def match(parts: Parts, text: str, tokenizer: Tokenizer) -> tuple[IntArray, GivenText]:
    """The tokens of a text of which a template is given, for scoring what stands in the blanks.

    The given texts become the same tokens as in `start`, and so does, on its own, the text of each
    blank. Blanks take as little text as they can, from left to right; limits are not looked at.

    Raises:
        ValueError: as `start` does, and if the text does not match.
    """
    begun = start(parts, tokenizer)
    texts = _texts_in_blanks(begun.pieces, text)
    if texts is None:
        template = "".join("[...]" if piece is None else piece for piece in begun.pieces)
        raise ValueError(f"the text {text!r} does not match the template {template!r}")
    gaps = np.flatnonzero(begun.blank != CLOSED)
    written = tokenizer.encode_batch(
        [" " * bool(begun.spaced[gap]) + text for gap, text in zip(gaps, texts, strict=True)]
    )
    positions = np.repeat(gaps, [ids.size for ids in written])
    tokens = np.insert(begun.tokens, positions, np.concatenate([begun.tokens[:0], *written]))
    # Pieces without a blank between them are one span here: the gap between spans is open.
    spans = 1 + np.cumsum(begun.blank[:-1] != CLOSED)
    return tokens, GivenText(
        spans=np.insert(spans, positions, 0),
        starts_closed=bool(begun.blank[0] == CLOSED),
        ends_closed=bool(begun.blank[-1] == CLOSED),
    )


def check_known(text: str, tokenizer: Tokenizer) -> None:
    """Refuse a text of which the tokenizer makes an unknown token.

    Raises:
        ValueError: naming what is not known.
    """
    unknown = tokenizer.first_unknown(text)
    if unknown is not None:
        raise ValueError(
            f"the tokenizer does not know {unknown!r} in {text!r}; "
            "leave it out or use a tokenizer of bytes"
        )


def _text_or_blank(found: re.Match[str]) -> str | Blank:
    if found["escape"]:
        return found[0].removeprefix("\\")
    if found["one"]:
        return Blank(1, 1)
    if not found["limits"]:
        return Blank()
    limits = _LIMITS.fullmatch(found["limits"])
    if not limits:
        raise ValueError(
            f"{found[0]} is not a blank: write [...5] for at most 5 tokens, [...2-5] for 2 to 5, "
            f"or \\{found[0]} for this text"
        )
    blank = Blank(int(limits["least"] or 0), int(limits["most"]))
    if blank.closed:
        raise ValueError(
            f"the blank {found[0]} has no room for any token: leave it out, or write [...5] for at "
            "most 5 tokens"
        )
    return blank


def _joined(parts: Parts) -> list[str | Blank]:
    """The parts without empty texts, with neighbouring texts in one; refuse what is no template."""
    if isinstance(parts, str):
        raise ValueError(f"expected the parts of a template, got {parts!r}; use parse to get them")
    for part in parts:
        if not isinstance(part, str | Blank):
            raise ValueError(
                f"a template is made of texts and blanks: got {type(part).__name__} {part!r}"
            )
    if not any(isinstance(part, Blank) for part in parts):
        raise ValueError(
            f"there is no blank in the template {_all_text(parts)!r}; "
            "write [...] where text is to be inserted"
        )
    joined: list[str | Blank] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        neighbours = list(group)
        joined += [_all_text(neighbours)] if is_text else neighbours
    return [part for part in joined if part != ""]


def _plan(parts: Parts, tokenizer: Tokenizer) -> list[_Piece | Blank]:
    """Pieces and blanks in turn."""
    merged: list[str | Blank] = []
    for part in _joined(parts):
        if isinstance(part, str):
            merged += [part] if tokenizer.encode(part).size else []
        elif merged and isinstance(last := merged[-1], Blank):
            merged[-1] = _sum(last, part)
        else:
            merged.append(part)
    return [
        part if isinstance(part, Blank) else _piece(part, following, tokenizer)
        for part, following in zip(merged, [*merged[1:], None], strict=True)
    ]


def _sum(left: Blank, right: Blank) -> Blank:
    unlimited = left.most is None or right.most is None
    return Blank(left.least + right.least, None if unlimited else _most(left) + _most(right))


def _most(blank: Blank) -> int:
    return NO_LIMIT if blank.most is None else blank.most


def _piece(text: str, following: str | Blank | None, tokenizer: Tokenizer) -> _Piece:
    check_known(text, tokenizer)
    before_blank = isinstance(following, Blank) and not following.closed
    leaves_space = before_blank and _space_can_be_left(text, tokenizer)
    return _Piece(text, tokenizer.encode(text[:-1] if leaves_space else text), leaves_space)


def _space_can_be_left(text: str, tokenizer: Tokenizer) -> bool:
    """Whether text ends in one space after something, and the next token can begin with it."""
    ends_in_one_space = 0 < len(text.rstrip(" ")) == len(text) - 1
    return (
        ends_in_one_space
        and bool(tokenizer.begins_with_space().any())
        and tokenizer.lossless([text[:-1]])
    )


def _without_closed(plan: Sequence[_Piece | Blank]) -> list[_Piece | Blank]:
    return [part for part in plan if isinstance(part, _Piece) or not part.closed]


def _all_text(parts: Sequence[str | _Piece | Blank]) -> str:
    texts = (part.text if isinstance(part, _Piece) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _is_exact(plan: Sequence[_Piece | Blank], tokenizer: Tokenizer) -> bool:
    """Whether all that is given between two blanks decodes to the text as it was written."""
    for _, group in groupby(_without_closed(plan), key=lambda part: isinstance(part, _Piece)):
        pieces = [part for part in group if isinstance(part, _Piece)]
        ids = [token for piece in pieces for token in piece.tokens.tolist()]
        space = " " if pieces and pieces[-1].leaves_space else ""
        if tokenizer.decode(ids) + space != _all_text(pieces):
            return False
    return True


def _texts_in_blanks(pieces: Sequence[str | None], text: str) -> list[str] | None:
    """What stands in the blanks, as little as can be from left to right; None if no match."""
    runs = [""]  # the given text around the blanks: one more than there are blanks
    for piece in pieces:
        runs = [*runs, ""] if piece is None else [*runs[:-1], runs[-1] + piece]
    first, last = runs[0], runs[-1]
    if len(runs) == 1:
        return [] if text == first else None
    if not (text.startswith(first) and text.endswith(last)):
        return None
    texts, end = [], len(first)
    for run in runs[1:-1]:
        found = text.find(run, end)
        if found < 0:
            return None
        texts.append(text[end:found])
        end = found + len(run)
    if end + len(last) > len(text):
        return None
    return [*texts, text[end : len(text) - len(last)]]


def _with_word(start: Start, word: IntArray, rng: np.random.Generator) -> Start:
    owed = np.zeros_like(start.least)  # tokens that must be inserted for the space they begin with
    owed[start.blank[start.spaced]] = 1
    roomy = np.flatnonzero(start.most - owed >= word.size)
    if not roomy.size:
        raise ValueError(
            f"a forced word of {word.size} tokens does not fit: no blank has room for it and for "
            "what is there already; raise the limits of the blanks or force less"
        )
    blank = rng.choice(roomy)
    gap = rng.choice(np.flatnonzero(start.blank == blank))
    taken = np.where(np.arange(start.least.size) == blank, word.size, 0)
    inside = [CLOSED] * (word.size - 1)
    return replace(
        start,
        tokens=np.insert(start.tokens, gap, word),
        given=np.insert(start.given, gap, np.full_like(word, start.given.max(initial=0) + 1)),
        blank=np.insert(start.blank, gap + 1, [*inside, blank]),
        least=np.maximum(start.least - taken, owed),
        most=np.where(start.most == NO_LIMIT, NO_LIMIT, start.most - taken),
        spaced=np.insert(start.spaced, gap + 1, np.zeros(word.size, dtype=np.bool_)),
    )


def _with_spaced_apart(start: Start) -> Start:
    """The start with `spaced` gaps in blanks of their own, since each must receive a token."""
    blank, least, most = start.blank.copy(), start.least.tolist(), start.most.tolist()
    for gap in np.flatnonzero(start.spaced):
        number = blank[gap]
        if np.count_nonzero(blank == number) > 1:
            limited = most[number] < NO_LIMIT
            blank[gap] = len(least)
            least[number] = max(least[number] - 1, 0)
            most[number] -= limited
            least.append(1)
            most.append(1 if limited else NO_LIMIT)
    return replace(start, blank=blank, least=np.array(least), most=np.array(most))
