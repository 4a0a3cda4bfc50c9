"""Text in: documents from a file, split by their hash, or cut into chunks of equal length."""

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from didlm._inputs import Integers, token_ids

_DECOMPRESS = {".gz": gzip.decompress, ".xz": lzma.decompress}
_DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)


def read_documents(path: Path, separator: str = "<|endoftext|>", column: str = "text") -> list[str]:
    """The documents of a .txt or .jsonl file, or of either with .gz or .xz appended.

    A .txt file is one document, whatever blank lines it has, unless `separator` occurs in it: then
    the separator stands between documents. Line breaks at either end of a document belong to the
    file and are dropped. In a .jsonl file every line that is not blank is a JSON object, whose
    `column` holds a text, taken as it is. Documents of nothing but whitespace are left out.

    Args:
        path: a file in UTF-8, with or without a byte order mark.
        separator: what stands between the documents of a .txt file.
        column: the name of the text in a .jsonl file.

    Raises:
        ValueError: if the file cannot be read, is damaged, or holds no documents.
    """
    path = Path(path)
    kind = path.with_suffix("").suffix if path.suffix.lower() in _DECOMPRESS else path.suffix
    if path.is_file() and kind.lower() not in (".txt", ".jsonl"):
        raise ValueError(
            f"cannot read {path}: its name must end with .txt or .jsonl, "
            "or with either of them and .gz or .xz"
        )
    text = read_text(path)
    if kind.lower() == ".txt":
        documents = _apart(text, separator)
    else:
        documents = [
            _text_of_line(line, column, f"line {number} of {path}")
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    documents = [document for document in documents if document.strip()]
    if not documents:
        raise ValueError(f"{path} holds no documents: all of its text is whitespace")
    return documents


def read_text(path: Path) -> str:
    """The whole of a UTF-8 file, decompressed if its name ends with .gz or .xz.

    Line breaks stay as they are; a byte order mark is dropped.

    Raises:
        ValueError: if there is no such file, or it is empty, damaged or not in UTF-8.
    """
    content = _content(path)
    if not content:
        raise ValueError(f"{path} is empty")
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        at = problem.start
        raise ValueError(
            f"{path} is not UTF-8: byte {at} is 0x{content[at]:02x}, counted from 0"
            f"{' in what it decompresses to' if path.suffix.lower() in _DECOMPRESS else ''}; "
            "convert it to UTF-8"
        ) from None


def split_by_hash(documents: Sequence[str], fraction: float) -> tuple[list[str], list[str]]:
    """The documents for training and for validation, each in the order they had.

    A stable hash of its text decides about each document, whatever the others are: duplicates fall
    on one side, and documents that are added later move none of those that were there.

    Args:
        documents: the texts.
        fraction: about which share of the distinct texts goes to validation.

    Raises:
        ValueError: if `fraction` is not between 0 and 1, or one side would be empty.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            f"the fraction for validation must lie between 0 and 1, both excluded: got {fraction}"
        )
    train: list[str] = []
    valid: list[str] = []
    for document in documents:
        (valid if _hash(document) < fraction else train).append(document)
    if not train or not valid:
        raise ValueError(
            f"splitting {len(documents)} documents at fraction {fraction} leaves none for "
            f"{'validation' if train else 'training'}; give more documents or another fraction"
        )
    return train, valid


def fixed_chunks(
    token_lists: Iterable[Integers], length: int, separator_id: int
) -> list[np.ndarray]:
    """Chunks of exactly `length` tokens, cut from the documents laid end to end.

    Every document is followed by the separator. What is left at the end is dropped.

    Raises:
        ValueError: if not even one chunk can be filled, or a length or an id makes no sense.
    """
    if length < 1:
        raise ValueError(f"a chunk must have at least 1 token: got length {length}")
    if separator_id < 0:
        raise ValueError(f"the id of the separator is negative: {separator_id}")
    end = np.array([separator_id], dtype=np.int64)
    pieces = [np.empty(0, dtype=np.int64)]
    for number, tokens in enumerate(token_lists):
        pieces += [token_ids(tokens, f"document {number}"), end]
    stream = np.concatenate(pieces)
    count = stream.size // length
    if not count:
        raise ValueError(
            f"the documents have {stream.size} tokens with their separators, "
            f"too few for one chunk of {length}; give more text or shorter chunks"
        )
    return list(stream[: count * length].reshape(count, length))


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a file")
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise ValueError(f"cannot read {path}: {problem.strerror}") from None
    ending = path.suffix.lower()
    if not content or ending not in _DECOMPRESS:
        return content
    try:
        return _DECOMPRESS[ending](content)
    except _DAMAGED as problem:
        raise ValueError(
            f"{path} is damaged or no {ending} file, and cannot be decompressed: {problem}"
        ) from None


def _apart(text: str, separator: str) -> list[str]:
    if not separator:
        raise ValueError("the separator between documents is empty; give at least one character")
    return [document.strip("\r\n") for document in text.split(separator)]


def _text_of_line(line: str, column: str, place: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{place} is not valid JSON: {problem}") from None
    if not isinstance(record, dict):
        raise ValueError(
            f"{place} holds {_kind(record)}; every line must be a JSON object "
            f'such as {{"{column}": "Once upon a time"}}'
        )
    if column not in record:
        there = ", ".join(repr(name) for name in record) or "none"
        raise ValueError(f"{place} has no column {column!r}; the columns there are: {there}")
    text = record[column]
    if not isinstance(text, str):
        raise ValueError(f"{place} has {_kind(text)} in column {column!r}; it must be a string")
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        # JSON can escape what no UTF-8 file can hold, and no tokenizer can read.
        raise ValueError(
            f"{place} has half of a surrogate pair, {text[problem.start]!r}, "
            f"at character {problem.start} of column {column!r}; it is not Unicode text"
        ) from None
    return text


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _hash(text: str) -> float:
    """A number between 0 and 1 that depends on nothing but the text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    # 53 bits are what a float holds exactly, so the result stays below 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
