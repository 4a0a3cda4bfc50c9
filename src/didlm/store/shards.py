"""Writing the shards of a store: tokens end to end, and a table of where each document lies."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

SHARD_TOKENS = 1 << 26  # no document begins in a shard that has so many
_HEADER = 192  # bytes before the numbers of an .npy file of ours; room for any length

DOCUMENT = np.dtype(
    [
        ("shard", "<i4"),
        ("source", "<i4"),
        ("start", "<i8"),  # of its tokens in the shard
        ("length", "<i8"),  # in tokens, the prompt included
        ("prompt", "<i8"),  # how many of them are the prompt
        ("hash", "<u8"),  # of its text
    ]
)


@dataclass(frozen=True)
class ArrayFile:
    """A file of a store, and how to know it again."""

    name: str
    items: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Shard:
    """Two files of a store."""

    tokens: ArrayFile
    documents: ArrayFile


class ShardWriter:
    """Appends documents to the shards in a folder; `finish` says what has been written."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder = folder
        self._dtype = dtype
        self._done: list[Shard] = []
        self._files: tuple[_ArrayWriter, _ArrayWriter] | None = None
        self._begun = 0  # tokens of the document that is coming in pieces

    def add(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        prompts: np.ndarray,
        hashes: np.ndarray,
        source: int,
    ) -> None:
        """Append documents, whose tokens are laid end to end."""
        ends = np.cumsum(lengths)
        first = 0
        while first < len(lengths):
            token_file, document_file = self._open()
            before = int(ends[first - 1]) if first else 0
            room = SHARD_TOKENS - token_file.items
            last = min(int(np.searchsorted(ends, before + room)) + 1, len(lengths))
            rows = np.zeros(last - first, DOCUMENT)
            rows["shard"] = len(self._done)
            rows["source"] = source
            rows["length"] = lengths[first:last]
            rows["start"] = token_file.items + ends[first:last] - before - rows["length"]
            rows["prompt"] = prompts[first:last]
            rows["hash"] = hashes[first:last]
            token_file.append(tokens[before : int(ends[last - 1])])
            document_file.append(rows)
            first = last

    def add_piece(self, tokens: np.ndarray) -> None:
        """Append some of the tokens of one long document."""
        if len(tokens):
            token_file = self._files[0] if self._begun and self._files else self._open()[0]
            token_file.append(tokens)
            self._begun += len(tokens)

    def end_pieces(self, document: int, source: int) -> int:
        """Make a document of the pieces since the last one, and say how many tokens it has.

        Args:
            document: its hash.
            source: its source.
        """
        length, self._begun = self._begun, 0
        if length:
            assert self._files is not None
            token_file, document_file = self._files
            start = token_file.items - length
            row = (len(self._done), source, start, length, 0, document)
            document_file.append(np.array([row], DOCUMENT))
        return length

    def finish(self) -> list[Shard]:
        """Complete the last shard; the shards that have been written."""
        if self._files:
            self._done.append(Shard(*(file.finish() for file in self._files)))
            self._files = None
        return self._done

    def close(self) -> None:
        """Let go of the files, complete or not."""
        for file in self._files or ():
            file.close()

    def _open(self) -> tuple["_ArrayWriter", "_ArrayWriter"]:
        """The files for the next document."""
        if self._files and self._files[0].items >= SHARD_TOKENS:
            self.finish()
        if not self._files:
            name = self._folder / f"{len(self._done):05}"
            self._files = (
                _ArrayWriter(name.with_suffix(".tokens.npy"), self._dtype),
                _ArrayWriter(name.with_suffix(".documents.npy"), DOCUMENT),
            )
        return self._files


class _ArrayWriter:
    """An .npy file that grows; its length goes into the header at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.items = 0
        self._path = path
        self._dtype = dtype
        self._file: BinaryIO = path.open("wb")
        self._file.write(bytes(_HEADER))

    def append(self, values: np.ndarray) -> None:
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.items += len(values)

    def finish(self) -> ArrayFile:
        self._file.seek(0)
        self._file.write(_header(self._dtype, self.items))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayFile(self._path.name, self.items, self._path.stat().st_size, digest(self._path))

    def close(self) -> None:
        self._file.close()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _header(dtype: np.dtype[Any], items: int) -> bytes:
    """The start of an .npy file of version 1.0, always as long."""
    about = f"{{'descr': {np.lib.format.dtype_to_descr(dtype)!r}, "
    about += f"'fortran_order': False, 'shape': ({items},), }}"
    size = _HEADER - 10
    text = about.ljust(size - 1).encode() + b"\n"
    assert len(text) == size
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text
