"""The bytes of a file, decompressed by its ending, a chunk at a time."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

CHUNK = 1 << 20  # bytes
WHAT_TO_GIVE = (
    "its name must end with .txt or .jsonl, or with either of them and .gz, .xz or .zst, "
    "or with .parquet"
)
_PLAIN = (".txt", ".jsonl")
_COMPRESSED = (".gz", ".xz", ".zst")
# What the libraries raise; those of arrow are among the ValueErrors.
_DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, ValueError)


def kind_of(path: Path) -> str | None:
    """Which kind of text a file holds by its name: .txt, .jsonl or .parquet; None if none."""
    ending = path.suffix.lower()
    if ending not in _COMPRESSED:
        return ending if ending in (*_PLAIN, ".parquet") else None
    inner = path.with_suffix("").suffix.lower()
    return inner if inner in _PLAIN else None


def bytes_of_text(path: Path) -> int:
    """About how much text a file holds: compressed it takes a quarter; .parquet is not judged."""
    return path.stat().st_size * (4 if path.suffix.lower() in _COMPRESSED else 1)


def chunks(path: Path) -> Iterator[tuple[bytes, int]]:
    """What a file holds, decompressed, each time with how far the file itself has been read.

    Raises:
        ValueError: if there is no such file, or it is empty or damaged.
    """
    check_file(path)
    something = False
    try:
        with path.open("rb") as raw, _decompressed(raw, path.suffix.lower()) as file:
            while chunk := file.read(CHUNK):
                something = True
                yield chunk, raw.tell()
    except _DAMAGED as problem:
        raise _damage(path, problem) from None
    except OSError as problem:
        if problem.errno is None:  # arrow's, about what it reads
            raise _damage(path, problem) from None
        raise ValueError(f"cannot read {path}: {problem.strerror}") from None
    if not something:
        raise ValueError(f"{path} is empty")


def check_file(path: Path) -> None:
    """Refuse what is not a file with something in it.

    Raises:
        ValueError: saying what it is.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a file")
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{path} is empty")


def decoded(content: bytes, path: Path, offset: int) -> str:
    """The text of some of a file's bytes.

    Args:
        content: the bytes.
        path: the file they are from.
        offset: how many bytes stand before them, in what it decompresses to.

    Raises:
        ValueError: if they are not UTF-8, with the place of the first that is not.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        at = problem.start
        raise ValueError(
            f"{path} is not UTF-8: byte {offset + at} is 0x{content[at]:02x}, counted from 0"
            f"{' in what it decompresses to' if path.suffix.lower() in _COMPRESSED else ''}; "
            "convert it to UTF-8"
        ) from None


def _decompressed(raw: BinaryIO, ending: str) -> AbstractContextManager[Any]:
    if ending == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if ending == ".xz":
        return lzma.LZMAFile(raw)
    if ending == ".zst":
        import pyarrow

        return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw), "zstd")
    return raw


def _damage(path: Path, problem: BaseException) -> ValueError:
    ending = path.suffix.lower()
    return ValueError(
        f"{path} is damaged or no {ending} file, and cannot be decompressed: {problem}"
    )
