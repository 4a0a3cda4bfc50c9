"""Text to token ids and back: byte-level BPE trained here, or the files of GPT-2 and BERT."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from didlm._inputs import BoolArray, IntArray, Integers, integers
from didlm.files import write_text
from didlm.text.documents import read_text

BOS = "<|bos|>"
# The first of these that a vocabulary has is its BOS, or its separator between documents.
_BOS_NAMES = (BOS, "<|begin_of_text|>", "<s>", "[CLS]", "<|endoftext|>")
_SEPARATOR_NAMES = ("<|endoftext|>", "[SEP]", "</s>")
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WHAT_TO_GIVE = "tokenizer.json, a pair of vocab.json and merges.txt, or BERT's vocab.txt"


class Tokenizer:
    """Text to token ids and back; make one with `Tokenizer.train_bpe` or `Tokenizer.load`.

    Special tokens never come out of a text: `<|bos|>` written in one is seven ordinary characters.
    Nothing is cut off, padded or left to chance, whatever a file says about that.
    """

    vocabulary: int  # the number of ids: every id is below it
    bos: int  # the id of the token that starts every sequence
    separator: int  # the id that stands between documents laid end to end
    unknown: int | None  # the id of whatever the vocabulary cannot spell; None if there is none

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Take over a tokenizer of the tokenizers library; it must not be used elsewhere.

        Raises:
            ValueError: if two of its tokens have the same id.
        """
        library.no_truncation()
        library.no_padding()
        if isinstance(library.model, models.BPE):
            library.model.dropout = None
        library.encode_special_tokens = True  # the library's name for: as ordinary text
        self.library = library
        self.bos = self._special(self._first_there(_BOS_NAMES) or BOS)
        separator = self._first_there(_SEPARATOR_NAMES)
        self.separator = self._special(separator) if separator else self.bos
        unknown = getattr(library.model, "unk_token", None)  # models without one lack the name too
        self.unknown = None if unknown is None else library.token_to_id(unknown)
        self.vocabulary = _count_ids(library.get_vocab(with_added_tokens=True))

    @classmethod
    def train_bpe(
        cls, documents: Iterable[str], vocabulary: int, min_frequency: int = 2
    ) -> "Tokenizer":
        """Byte-level BPE, which reads every text and gives it back exactly.

        Equal documents in equal order make equal tokenizers.

        Args:
            documents: the texts to learn from.
            vocabulary: how many ids there may be: BOS, the 256 bytes, and what is merged from them.
                There are fewer if the documents run out of pairs to merge.
            min_frequency: how often two pieces must meet to be merged.

        Raises:
            ValueError: if the vocabulary is too small or there are no documents.
        """
        if vocabulary < 257:
            raise ValueError(
                f"a vocabulary of {vocabulary} is too small: 256 bytes and BOS take 257 ids"
            )
        texts = _checked(documents)
        if not texts:
            raise ValueError("there are no documents to train a tokenizer on")
        library = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=min_frequency,
            special_tokens=[BOS],
            initial_alphabet=list(byte_of_character()),
            show_progress=False,
        )
        library.train_from_iterator(texts, trainer)
        return cls(library)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer from a file, or from a folder that holds one.

        Args:
            path: tokenizer.json; either file of GPT-2's pair, vocab.json and merges.txt; BERT's
                vocab.txt (uncased); or a folder with any of these, in which tokenizer.json comes
                first. All but tokenizer.json may have a prefix, as in gpt2.vocab.json.

        Raises:
            ValueError: if there is no tokenizer, or it is damaged.
        """
        path = Path(path)
        file = _file_in(path) if path.is_dir() else path
        if file.name.endswith(("vocab.json", "merges.txt")):
            return cls(_read_gpt2(*_pair(file)))
        if file.name.endswith("vocab.txt"):
            return cls(_read_bert(file))
        if file.suffix == ".json" or not file.exists():
            return cls(_read_json(file))
        raise ValueError(f"{file} is not a tokenizer; give {_WHAT_TO_GIVE}")

    def save(self, folder: Path) -> Path:
        """Write tokenizer.json into a folder, which is made if need be, and say where it is.

        Raises:
            ValueError: if the folder is a file.
        """
        file = Path(folder) / "tokenizer.json"
        if file.parent.is_file():
            raise ValueError(f"cannot save a tokenizer in {folder}: it is a file, not a folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, self.library.to_str(pretty=True) + "\n")
        return file

    def encode(self, text: str) -> IntArray:
        """The ids of a text, without BOS.

        Raises:
            ValueError: if the text is not Unicode.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[IntArray]:
        """The ids of each text; faster than one at a time.

        Raises:
            ValueError: if a text is not Unicode.
        """
        encodings = self.library.encode_batch_fast(_checked(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, ids: Integers) -> str:
        """The text of ids, without BOS and other special tokens.

        Raises:
            ValueError: for an id that is not in the vocabulary.
        """
        return self.library.decode(self._in_vocabulary(ids).tolist())

    def end_of(self, text: str, count: int) -> str:
        """The last tokens of a text, or all of it if it has no more than so many."""
        ids = self.encode(text)
        return text if len(ids) <= count else self.decode(ids[len(ids) - count :])

    def count_bytes(self, ids: Integers) -> int:
        """How many bytes the text of ids has, also if it begins or ends inside a character.

        Raises:
            ValueError: for an id that is not in the vocabulary.
        """
        text = self.decode(ids)
        if "\ufffd" not in text:
            return len(text.encode())
        special, byte_of = set(self.special()), byte_of_character()
        pieces = [
            self.library.id_to_token(n) or "" for n in np.asarray(ids).tolist() if n not in special
        ]
        if not all(character in byte_of for piece in pieces for character in piece):
            return len(text.encode())
        return sum(map(len, pieces))

    def token_text(self, token: int) -> str:
        r"""One token for people to read; bytes that are no whole character appear as in \xe2.

        Raises:
            ValueError: for an id that is not in the vocabulary.
        """
        (number,) = self._in_vocabulary([token]).tolist()
        text = self.library.decode([number], skip_special_tokens=False)
        if "\ufffd" not in text:
            return text
        piece = self.library.id_to_token(number) or ""
        byte_of = byte_of_character()
        if not all(character in byte_of for character in piece):
            return text
        return bytes(byte_of[character] for character in piece).decode("utf-8", "backslashreplace")

    def special(self) -> list[int]:
        """The ids that never come out of a text: BOS, the separator, and others a file names."""
        added = self.library.get_added_tokens_decoder()
        return sorted(number for number, token in added.items() if token.special)

    def begins_with_space(self) -> BoolArray:
        """Whether the text of each id begins with a space [vocabulary]; special tokens do not."""
        return self._begins_with_space

    def first_unknown(self, text: str) -> str | None:
        """The first part of a text that becomes the unknown token; None if all of it is known.

        Raises:
            ValueError: if the text is not Unicode.
        """
        (checked,) = _checked([text])
        encoding = self.library.encode(checked, add_special_tokens=False)
        if self.unknown not in encoding.ids:
            return None
        first, end = encoding.offsets[encoding.ids.index(self.unknown)]
        return text[first:end]

    def lossless(self, texts: Sequence[str]) -> bool:
        """Whether all these texts survive `encode` and `decode` unchanged."""
        encoded = self.encode_batch(texts)
        return all(self.decode(ids) == text for ids, text in zip(encoded, texts, strict=True))

    def fingerprint(self) -> str:
        """SHA-256 of the tokenizer as JSON with sorted keys: equal for equal tokenizers."""
        canonical = json.dumps(
            json.loads(self.library.to_str()), sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(canonical.encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # The library's own pickle forgets that special tokens in a text are ordinary.
        return _from_json, (self.library.to_str(),)

    @cached_property
    def _begins_with_space(self) -> BoolArray:
        texts = self.library.decode_batch([[number] for number in range(self.vocabulary)])
        spaced = np.array([text.startswith(" ") for text in texts], dtype=np.bool_)
        spaced.flags.writeable = False  # it is shared by all who ask
        return spaced

    def _first_there(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if self.library.token_to_id(name) is not None), None)

    def _special(self, name: str) -> int:
        """The id of a token, which is made special and added if need be."""
        self.library.add_special_tokens([name])
        number = self.library.token_to_id(name)
        assert number is not None
        return number

    def _in_vocabulary(self, ids: Integers) -> IntArray:
        array = integers(ids, "ids")
        wrong = np.flatnonzero((array < 0) | (array >= self.vocabulary))
        if wrong.size:
            raise ValueError(
                f"id {array[wrong[0]]} at position {wrong[0]} is not in the vocabulary; "
                f"its ids are 0 to {self.vocabulary - 1}"
            )
        return array


def _checked(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise ValueError("expected a list of texts, got one text; put it into a list")
    checked = list(texts)
    for number, text in enumerate(checked):
        if not isinstance(text, str):
            raise ValueError(f"text {number} must be a string: got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise ValueError(
                f"text {number} has half of a surrogate pair, {text[problem.start]!r}, "
                f"at character {problem.start}; it is not Unicode text"
            ) from None
    return checked


def _count_ids(id_of: dict[str, int]) -> int:
    token_of: dict[int, str] = {}
    for token, number in id_of.items():
        if number in token_of:
            raise ValueError(f"tokens {token_of[number]!r} and {token!r} share the id {number}")
        token_of[number] = token
    return max(token_of) + 1  # there may be ids without a token in between


def byte_of_character() -> dict[str, int]:
    """The character by which GPT-2 writes each byte, in the order of the bytes.

    Printable Latin-1 characters stand for themselves, the other bytes for those from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}


def _byte_level(model: models.BPE) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _file_in(folder: Path) -> Path:
    """The one file in a folder from which its tokenizer can be read."""
    if (folder / "tokenizer.json").is_file():
        return folder / "tokenizer.json"
    found = {file for file in folder.iterdir() if file.name.endswith(("vocab.json", "vocab.txt"))}
    found |= {_pair(file)[0] for file in folder.iterdir() if file.name.endswith("merges.txt")}
    if not found:
        raise ValueError(f"there is no tokenizer in {folder}; it must hold {_WHAT_TO_GIVE}")
    if len(found) > 1:
        names = ", ".join(sorted(file.name for file in found))
        raise ValueError(
            f"{folder} holds more than one tokenizer: {names}; give the path of one of them"
        )
    return found.pop()


def _pair(file: Path) -> tuple[Path, Path]:
    """The vocabulary and the merges that one of them belongs to."""
    prefix = file.name.removesuffix("vocab.json").removesuffix("merges.txt")
    return file.with_name(prefix + "vocab.json"), file.with_name(prefix + "merges.txt")


def _read_gpt2(vocabulary_file: Path, merges_file: Path) -> tokenizers.Tokenizer:
    for file, other in ((vocabulary_file, merges_file), (merges_file, vocabulary_file)):
        if other.exists() and not file.exists():
            raise ValueError(f"there is no {file}, without which {other} cannot be used")
    vocabulary = _checked_vocabulary(_json(vocabulary_file), vocabulary_file)
    lines = [line.rstrip("\r") for line in read_text(merges_file).split("\n")]
    merges = [
        _merge(line, vocabulary, f"line {number} of {merges_file}")
        for number, line in enumerate(lines, 1)
        if line and not (number == 1 and line.startswith("#version"))
    ]
    return _byte_level(models.BPE(vocabulary, merges))


def _checked_vocabulary(content: Any, file: Path) -> dict[str, int]:
    if not isinstance(content, dict) or not all(type(n) is int for n in content.values()):
        raise ValueError(f"{file} is not a vocabulary: it must hold an id for every token")
    if sorted(content.values()) != list(range(len(content))):
        raise ValueError(
            f"the ids in {file} must be 0 to {len(content) - 1}, each once, "
            f"for its {len(content)} tokens"
        )
    missing = [byte for character, byte in byte_of_character().items() if character not in content]
    if missing:
        raise ValueError(
            f"{file} is not a vocabulary of GPT-2's kind: "
            f"it lacks {len(missing)} of the 256 bytes, the first of them 0x{missing[0]:02x}"
        )
    return content


def _merge(line: str, vocabulary: dict[str, int], place: str) -> tuple[str, str]:
    pieces = line.split(" ")
    if len(pieces) != 2:
        raise ValueError(f"{place} must be two pieces with a space between them: got {line!r}")
    left, right = pieces
    for piece in (left, right, left + right):
        if piece not in vocabulary:
            raise ValueError(
                f"{place} merges {left!r} and {right!r}, but {piece!r} is not in the vocabulary"
            )
    return left, right


def _read_bert(file: Path) -> tokenizers.Tokenizer:
    lines = [line.rstrip("\r") for line in read_text(file).removesuffix("\n").split("\n")]
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(lines):
        if token in vocabulary:
            raise ValueError(
                f"line {number + 1} of {file} repeats {token!r} of line {vocabulary[token] + 1}"
            )
        vocabulary[token] = number
    if "[UNK]" not in vocabulary:
        raise ValueError(f"{file} is not a vocabulary of BERT's kind: it has no line [UNK]")
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens([token for token in _BERT_SPECIAL if token in vocabulary])
    return library


def _read_json(file: Path) -> tokenizers.Tokenizer:
    content = _json(file)
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as problem:  # the library raises nothing more precise
        raise ValueError(f"{file} is not a tokenizer: {problem}; give {_WHAT_TO_GIVE}") from None


def _json(file: Path) -> Any:
    text = read_text(file)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{file} is damaged, for it is not valid JSON: {problem}") from None


def _from_json(text: str) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(text))
