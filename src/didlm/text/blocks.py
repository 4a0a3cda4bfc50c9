"""Blocks: some of a file's text, still raw, so that another process can make documents of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from didlm.text.opening import decoded
from didlm.text.records import Document, Format, document_of_line, document_of_record


@dataclass(frozen=True)
class Lines:
    """Whole lines of a .jsonl file."""

    path: Path
    done: int  # bytes of the file read so far
    content: bytes
    offset: int  # bytes before this block, in what the file decompresses to
    first: int  # the number of its first line, counted from 1

    @property
    def size(self) -> int:
        """About how many bytes of text it holds."""
        return len(self.content)

    def documents(self, form: Format) -> Iterator[Document | ValueError]:
        """What each line holds; for those that are broken, what is wrong."""
        offset = self.offset
        for number, line in enumerate(self.content.split(b"\n"), self.first):
            try:
                text = decoded(line, self.path, offset)
                if text.strip():
                    yield document_of_line(text, form.columns, f"line {number} of {self.path}")
            except ValueError as problem:
                yield problem
            offset += len(line) + 1


@dataclass(frozen=True)
class Apart:
    """Documents of a .txt file, each but the last of the file with the separator behind it."""

    path: Path
    done: int
    content: bytes
    offset: int
    starts_file: bool

    @property
    def size(self) -> int:
        """About how many bytes of text it holds."""
        return len(self.content)

    def documents(self, form: Format) -> Iterator[Document | ValueError]:
        """The documents; blank ones only between two separators, not at the ends of the file."""
        *whole, rest = decoded(self.content, self.path, self.offset).split(form.separator)
        for number, text in enumerate(whole):
            if number or not self.starts_file or text.strip():
                yield "", text.strip("\r\n")
        if rest.strip():
            yield "", rest.strip("\r\n")


@dataclass(frozen=True)
class Piece:
    """Some of a document that is longer than a block, cut just before whitespace."""

    path: Path
    done: int
    content: bytes
    offset: int
    hash: int | None  # of the whole document, with its last piece; None before

    @property
    def size(self) -> int:
        """About how many bytes of text it holds."""
        return len(self.content)

    def documents(self, form: Format) -> Iterator[Document | ValueError]:
        """The piece, as if it were a document."""
        yield "", decoded(self.content, self.path, self.offset)


@dataclass(frozen=True)
class Rows:
    """Records of a .parquet file or of a dataset."""

    name: str
    done: int
    records: list[dict[str, Any]]
    first: int  # the number of the first record, counted from 1
    size: int

    def documents(self, form: Format) -> Iterator[Document | ValueError]:
        """What each record holds; for those that are broken, what is wrong."""
        for number, record in enumerate(self.records, self.first):
            try:
                yield document_of_record(record, form.columns, f"row {number} of {self.name}")
            except ValueError as problem:
                yield problem


Block = Lines | Apart | Piece | Rows


@dataclass
class Parsed:
    """What came out of a block."""

    documents: list[Document] = field(default_factory=list)
    empty: int = 0  # documents of nothing but whitespace, left out
    broken: list[str] = field(default_factory=list)  # what was wrong with those left out


def parse(block: Block, form: Format, skip_broken: bool = False) -> Parsed:
    """The documents of a block.

    Args:
        block: the raw text.
        form: where the documents are in it.
        skip_broken: leave broken lines and rows out instead of stopping at the first.

    Raises:
        ValueError: for a broken line or row, and for text that is not UTF-8.
    """
    parsed = Parsed()
    for document in block.documents(form):
        if isinstance(document, ValueError):
            if not skip_broken:
                raise document
            parsed.broken.append(str(document))
        elif document[1].strip() or isinstance(block, Piece):
            parsed.documents.append(document)
        else:
            parsed.empty += 1
    return parsed
