"""From files to blocks, in memory that does not grow with them."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from didlm.text.blocks import Apart, Block, Lines, Piece, Rows
from didlm.text.hashing import first_bits
from didlm.text.opening import WHAT_TO_GIVE, check_file, chunks, kind_of
from didlm.text.records import Format, check_columns

BLOCK = 1 << 20  # bytes; at least so many make a block
LONGEST_WORD = 1 << 24  # bytes; text without whitespace is cut after so many
_MARK = b"\xef\xbb\xbf"  # of byte order
_BATCH = 256  # rows of a .parquet file read at a time

# Where a text may be cut and give the same tokens: before whitespace that follows no whitespace.
_CUT = re.compile(
    rb"(?<![\s\x1c-\x1f])(?<!\xc2[\x85\xa0])(?<!\xe1\x9a\x80)(?<!\xe1\xa0\x8e)"
    rb"(?<!\xe2\x80[\x80-\x8a\xa8\xa9\xaf])(?<!\xe2\x81\x9f)(?<!\xe3\x80\x80)[ \t\n\r]"
)


def file_blocks(path: Path, form: Format) -> Iterator[Block]:
    """The blocks of a file, in order.

    Raises:
        ValueError: if the file is missing, empty or damaged, or has no such columns.
    """
    kind = kind_of(path)
    if kind is None:
        check_file(path)
        raise ValueError(f"cannot read {path}: {WHAT_TO_GIVE}")
    if kind == ".parquet":
        return _parquet_blocks(path, form.columns)
    if kind == ".jsonl":
        return _line_blocks(path)
    if len(form.columns) == 2:
        raise ValueError(
            f"{path} is plain text and has no columns; '{form.column}' is for .jsonl and .parquet"
        )
    return _text_blocks(path, form.separator.encode())


def row_blocks(
    name: str, records: Iterable[tuple[dict[str, Any], int]], columns: tuple[str, ...]
) -> Iterator[Rows]:
    """Records, each with the bytes read by then, put together into blocks."""
    rows: list[dict[str, Any]] = []
    first, size, done = 1, 0, 0
    for record, done in records:
        # What else is in a record need not travel, except for the names, for a sentence.
        rows.append({k: v if k in columns else None for k, v in record.items()})
        size += sum(len(v) for k, v in record.items() if k in columns and isinstance(v, str))
        if size >= BLOCK:
            yield Rows(name, done, rows, first, size)
            rows, first, size = [], first + len(rows), 0
    if rows:
        yield Rows(name, done, rows, first, size)


def _line_blocks(path: Path) -> Iterator[Lines]:
    parts: list[bytes] = []
    offset, first, done = 0, 1, 0
    for chunk, done, at in _without_mark(path):
        if not parts:
            offset = at
        end = chunk.rfind(b"\n") + 1
        if not end:
            parts.append(chunk)  # a line longer than a chunk
            continue
        content = b"".join([*parts, chunk[:end]])
        yield Lines(path, done, content, offset, first)
        first += content.count(b"\n")
        parts, offset = [chunk[end:]], at + end
    if content := b"".join(parts):
        yield Lines(path, done, content, offset, first)


def _text_blocks(path: Path, separator: bytes) -> Iterator[Apart | Piece]:
    waiting = bytearray()
    offset, done, inside, start = 0, 0, False, True
    digest = hashlib.sha256()

    def piece(end: int, last: bool) -> Piece:
        """The next piece of the document that has begun, up to a place in what waits."""
        content = bytes(waiting[:end])
        content = content if inside else content.lstrip(b"\r\n")
        at = offset + end - len(content)
        content = content.rstrip(b"\r\n") if last else content
        digest.update(content)
        return Piece(path, done, content, at, first_bits(digest) if last else None)

    for chunk, done, at in _without_mark(path):
        if not waiting:
            offset = at
        waiting += chunk
        while len(waiting) >= BLOCK:
            end = waiting.find(separator)
            if inside and end >= 0:
                yield piece(end, last=True)
                end += len(separator)
                inside = False
            elif end >= 0:
                # From the left, for a separator may overlap with itself.
                end = len(waiting) - len(bytes(waiting).split(separator)[-1])
                yield Apart(path, done, bytes(waiting[:end]), offset, start)
            else:
                end = _place_to_cut(waiting, len(waiting) - len(separator) + 1)
                if not end:
                    break
                if not inside:
                    digest = hashlib.sha256()
                yield piece(end, last=False)
                inside = True
            start = False
            offset += end
            del waiting[:end]
    if inside:
        end = waiting.find(separator)
        yield piece(len(waiting) if end < 0 else end, last=True)
        end = len(waiting) if end < 0 else end + len(separator)
        offset += end
        del waiting[:end]
    if waiting:
        yield Apart(path, done, bytes(waiting), offset, start)


def _place_to_cut(text: bytearray, end: int) -> int:
    """The last good place before `end`; 0 if there is none and text may still come."""
    for window in (1 << 12, 1 << 16, end):
        places = [match.start() for match in _CUT.finditer(text, max(1, end - window), end)]
        if places:
            return places[-1]
    if end < LONGEST_WORD:
        return 0
    end = min(end, len(text) - 1)
    while end > 1 and text[end] & 0xC0 == 0x80:  # not inside a character
        end -= 1
    return end


def _without_mark(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """Chunks without the byte order mark: what they hold, bytes of the file read, bytes before."""
    at = 0
    for chunk, done in chunks(path):
        begin = len(_MARK) if not at and chunk.startswith(_MARK) else 0
        yield chunk[begin:], done, at + begin
        at += len(chunk)


def _parquet_blocks(path: Path, columns: tuple[str, ...]) -> Iterator[Rows]:
    import pyarrow
    from pyarrow import parquet

    check_file(path)
    size = path.stat().st_size

    def records() -> Iterator[tuple[dict[str, Any], int]]:
        read = 0
        for batch in file.iter_batches(_BATCH, columns=list(columns), use_threads=False):
            rows = batch.to_pylist()
            read += len(rows)
            done = size * read // file.metadata.num_rows
            yield from ((row, done) for row in rows)

    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BLOCK) as file:
            check_columns(file.schema_arrow.names, columns, str(path))
            yield from row_blocks(str(path), records(), columns)
    except (pyarrow.ArrowException, UnicodeDecodeError) as problem:
        reason = str(problem).splitlines()[0]
        raise ValueError(f"{path} is damaged or no .parquet file: {reason}") from None
    except OSError as problem:
        raise ValueError(f"cannot read {path}: {problem.strerror or problem}") from None
