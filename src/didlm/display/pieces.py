"""What pictures of growing texts share: each token's text, safe to draw, and how long it is new."""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import tokenizers
from tokenizers import decoders

from didlm._inputs import Integers, integers
from didlm.data.tokenizer import Tokenizer, byte_of_character
from didlm.generate.results import Frame

MARK = " \u2591"
_CODES = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format, surrogate, line, paragraph
_JOINERS = "\u200c\u200d"  # format characters that belong to words and to emoji


def pieces(tokenizer: Tokenizer, ids: Integers) -> list[str]:
    """The text of each token; joined they are `tokenizer.decode(ids)`, whatever the ids.

    A character whose bytes are spread over several tokens belongs to the one with its last byte.
    Special tokens have no text. The id after the vocabulary is a mark: a token that is to come.

    Raises:
        ValueError: for another id that is not in the vocabulary.
    """
    array = integers(ids, "ids")
    is_mark = array == tokenizer.vocabulary
    if is_mark.any():
        written = iter(pieces(tokenizer, array[~is_mark]))
        return [MARK if mark else next(written) for mark in is_mark.tolist()]
    text, numbers = tokenizer.decode(array), array.tolist()
    library = tokenizer.library
    in_bytes = isinstance(library.decoder, decoders.ByteLevel)
    found = _by_bytes(library, numbers) if in_bytes else _by_neighbours(library, numbers)
    return found if "".join(found) == text else _by_prefixes(library, numbers, text)


def printable(text: str) -> str:
    """The text with a sign in the place of each control character except line breaks.

    Whatever could move a cursor, ring a bell or turn the direction of writing is made visible.
    """
    if text.isprintable():
        return text
    return "".join(map(_sign, text.replace("\t", "    ")))


def fading_steps(frames: Sequence[Frame]) -> int:
    """How many steps a new token takes to fade to the colour of the text."""
    return max(5, frames[-1].step // 16)


def _sign(character: str) -> str:
    if character in "\n" + _JOINERS or unicodedata.category(character) not in _CODES:
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _by_bytes(library: tokenizers.Tokenizer, ids: list[int]) -> list[str]:
    """Cut the text where the tokens end, each cut moved back to the end of a character."""
    name_of, byte_of = _names(library, ids), byte_of_character()
    bytes_of = {number: _bytes(name, byte_of) for number, name in name_of.items()}
    parts = [bytes_of[number] for number in ids]
    text, ends = _decode(b"".join(parts))
    cuts = np.searchsorted(ends, np.cumsum([len(part) for part in parts]), side="right")
    return [text[start:end] for start, end in pairwise([0, *cuts.tolist()])]


def _bytes(name: str, byte_of: dict[str, int]) -> bytes:
    try:
        return bytes(byte_of[character] for character in name)
    except KeyError:
        return name.encode()  # a token that was added as plain text


def _decode(data: bytes) -> tuple[str, np.ndarray]:
    """The text of UTF-8 that may be broken, and the byte after each of its characters."""
    parts, widths = list[str](), list[np.ndarray]()
    view, start = memoryview(data), 0
    while start < len(data):
        try:
            part, broken = str(view[start:], "utf-8"), 0
        except UnicodeDecodeError as problem:
            part = str(view[start : start + problem.start], "utf-8")
            broken = problem.end - problem.start
        code = np.frombuffer(part.encode("utf-32-le"), dtype=np.uint32)
        width = 1 + (code > 0x7F).astype(np.int64) + (code > 0x7FF) + (code > 0xFFFF)
        parts += [part, "\ufffd"] if broken else [part]
        widths += [width, np.array([broken])] if broken else [width]
        start += int(width.sum()) + broken
    return "".join(parts), np.cumsum(np.concatenate([np.zeros(0, np.int64), *widths]))


def _by_neighbours(library: tokenizers.Tokenizer, ids: list[int]) -> list[str]:
    """What each token adds to the text of the one before it: WordPiece looks no further."""
    name_of = _names(library, ids)
    found, before = [], list[int]()
    for number in ids:
        if not name_of[number]:
            found.append("")
            continue
        found.append(library.decode([*before, number])[len(library.decode(before)) :])
        before = [number]
    return found


def _by_prefixes(library: tokenizers.Tokenizer, ids: list[int], text: str) -> list[str]:
    """What each token adds to the part of the text that no later one changes; quadratic."""
    cuts = [0]
    for end in range(1, len(ids)):
        cuts.append(max(cuts[-1], _agreement(library.decode(ids[:end]), text)))
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])] if ids else []


def _agreement(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def _names(library: tokenizers.Tokenizer, ids: list[int]) -> dict[int, str]:
    """How the vocabulary writes each of the tokens; empty for those that are never decoded."""
    added = library.get_added_tokens_decoder().items()
    special = {number for number, token in added if token.special}
    return {
        number: "" if number in special else library.id_to_token(number) or ""
        for number in set(ids)
    }
