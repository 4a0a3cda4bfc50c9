"""From a record to a document: which columns hold the text, and what is wrong with others."""

import json
from dataclasses import dataclass
from typing import Any

Document = tuple[str, str]  # the prompt, mostly empty, and the text that follows it


@dataclass(frozen=True)
class Format:
    """Where the documents are in a file.

    Raises:
        ValueError: if the separator is empty or the columns are not one or two.
    """

    column: str = "text"  # or PROMPT+RESPONSE
    separator: str = "<|endoftext|>"  # between the documents of a .txt file

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError(
                "the separator between documents is empty; give at least one character"
            )
        if not 1 <= len(self.columns) <= 2 or not all(self.columns):
            raise ValueError(
                f"the column must be one name, or two as in 'prompt+response': got '{self.column}'"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: the text, or the prompt and the response."""
        return tuple(self.column.split("+"))


def document_of_line(line: str, columns: tuple[str, ...], place: str) -> Document:
    """The document in a line of JSON.

    Raises:
        ValueError: if the line is broken, or has no text in these columns.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{place} is not valid JSON: {problem}") from None
    if not isinstance(record, dict):
        raise ValueError(
            f"{place} holds {_kind(record)}; every line must be a JSON object "
            f'such as {{"{columns[0]}": "Once upon a time"}}'
        )
    return document_of_record(record, columns, place)


def document_of_record(record: dict[str, Any], columns: tuple[str, ...], place: str) -> Document:
    """The document in the columns of a record.

    Raises:
        ValueError: if a column is missing, or holds no text.
    """
    check_columns(record, columns, place)
    texts = [_checked(record[column], column, place) for column in columns]
    return (texts[0], texts[1]) if len(texts) == 2 else ("", texts[0])


def check_columns(there: Any, columns: tuple[str, ...], place: str) -> None:
    """Refuse what lacks a column.

    Raises:
        ValueError: naming the columns there are.
    """
    for column in columns:
        if column not in there:
            names = ", ".join(repr(name) for name in there) or "none"
            raise ValueError(f"{place} has no column {column!r}; the columns there are: {names}")


def _checked(text: Any, column: str, place: str) -> str:
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
