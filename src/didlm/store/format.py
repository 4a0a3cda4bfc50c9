"""The token store: tokenized documents in a folder, to be mapped into memory.

A store is a manifest, a tokenizer and shards: `manifest.json`, `tokenizer.json`, and for each shard
`00000.tokens.npy` (the tokens of its documents, end to end) and `00000.documents.npy` (a row for
each of them, of type `DOCUMENT`). It is complete, or it is not there.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.store.shards import DOCUMENT, ArrayFile, Shard, digest
from didlm.text.sources import is_store

FORMAT = 1


@dataclass(frozen=True)
class Counts:
    """What was found in the text."""

    documents: int
    tokens: int
    bytes: int  # of the text of these documents, in UTF-8
    empty: int  # documents left out because they have no text, or no tokens
    broken: int  # lines and rows left out because they could not be read
    duplicates: int  # documents whose text occurred before; they are not left out
    inexact: int  # documents that the tokenizer does not give back exactly


@dataclass(frozen=True)
class Lengths:
    """How many tokens the documents have."""

    mean: float
    longest: int
    histogram: list[int]  # the documents of 1, of 2 to 3, of 4 to 7, of 8 to 15, ... tokens


@dataclass(frozen=True)
class Origin:
    """A source of the documents; each comes `weight` times as often as one of weight 1."""

    name: str
    weight: float
    documents: int
    tokens: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What a store says about itself."""

    format: int
    didlm: str  # the version that wrote it
    created: str
    options: dict[str, Any]
    tokenizer: str  # its fingerprint
    vocabulary: int
    counts: Counts
    lengths: Lengths
    sources: list[Origin]
    shards: list[Shard]

    @property
    def lossless(self) -> bool:
        """Whether the tokenizer gives all the text back; if not, bytes are of normalised text."""
        return not self.counts.inexact

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what training sees: the shards, the tokenizer, the weights."""
        seen = [self.tokenizer, [source.weight for source in self.sources]]
        hashes = [[shard.tokens.sha256, shard.documents.sha256] for shard in self.shards]
        return hashlib.sha256(json.dumps([*seen, hashes]).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As it is written."""
        derived = {"lossless": self.lossless, "fingerprint": self.fingerprint}
        return asdict(self) | derived

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Manifest":
        """From what was written; KeyError or TypeError if something is missing or too much."""
        shards = [
            Shard(ArrayFile(**shard["tokens"]), ArrayFile(**shard["documents"]))
            for shard in content["shards"]
        ]
        plain = {
            name: content[name]
            for name in ("format", "didlm", "created", "options", "tokenizer", "vocabulary")
        }
        return Manifest(
            **plain,
            counts=Counts(**content["counts"]),
            lengths=Lengths(**content["lengths"]),
            sources=[Origin(**source) for source in content["sources"]],
            shards=shards,
        )


@dataclass(frozen=True, eq=False)
class Store:
    """A token store; `Store.open` finds one, `prepare_store` makes one."""

    folder: Path
    manifest: Manifest
    tokenizer: Tokenizer

    @staticmethod
    def open(folder: Path | str) -> "Store":
        """Read what a store says about itself, and check that all its files are there.

        Raises:
            ValueError: if it is not a store, is damaged, or has a newer format.
        """
        folder = Path(folder)
        if not is_store(folder):
            raise ValueError(
                f"{folder} is not a token store: it has no manifest.json and tokenizer.json; "
                "make one with didlm prepare"
            )
        manifest = _read_manifest(folder)
        for file in _files(manifest):
            path = folder / file.name
            if not path.is_file():
                raise ValueError(f"{folder} is damaged: it has no {file.name}; prepare it again")
            if path.stat().st_size != file.bytes:
                raise ValueError(
                    f"{folder} is damaged: {file.name} has {path.stat().st_size} bytes where "
                    f"its manifest says {file.bytes}; prepare it again"
                )
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        if tokenizer.fingerprint() != manifest.tokenizer:
            raise ValueError(
                f"{folder} is damaged: its tokenizer.json is not the one its tokens were made "
                "with; prepare it again"
            )
        return Store(folder, manifest, tokenizer)

    @property
    def token_files(self) -> list[Path]:
        """The tokens of each shard, for np.load with mmap_mode="r"."""
        return [self.folder / shard.tokens.name for shard in self.manifest.shards]

    def documents(self) -> np.ndarray:
        """Where the documents lie, of all shards, in order [documents] of type DOCUMENT."""
        tables = [np.load(self.folder / s.documents.name) for s in self.manifest.shards]
        return np.concatenate(tables) if tables else np.empty(0, DOCUMENT)

    def check_tokenizer(self, tokenizer: Tokenizer, name: str) -> None:
        """Refuse a tokenizer that is not the one of this store.

        Args:
            tokenizer: the one that is wanted.
            name: what to call it.

        Raises:
            ValueError: if it is another.
        """
        if tokenizer.fingerprint() != self.manifest.tokenizer:
            raise ValueError(
                f"{self.folder} was prepared with another tokenizer than {name}: "
                f"prepare the text again with --tokenizer {name}, or use the one of the store"
            )

    def verify(self) -> None:
        """Read every file and compare it with its hash.

        Raises:
            ValueError: naming the first that has changed.
        """
        for file in _files(self.manifest):
            if digest(self.folder / file.name) != file.sha256:
                raise ValueError(
                    f"{self.folder} is damaged: the content of {file.name} is not what was "
                    "written; prepare it again"
                )


def _files(manifest: Manifest) -> list[ArrayFile]:
    return [file for shard in manifest.shards for file in (shard.tokens, shard.documents)]


def _read_manifest(folder: Path) -> Manifest:
    path = folder / "manifest.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format"]
        if not isinstance(version, int):
            raise TypeError(f"its format is {version!r}")
        if version <= FORMAT:
            return Manifest.from_json(content)
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is damaged: {problem}; prepare the store again") from None
    raise ValueError(
        f"{folder} has store format {version}, newer than {FORMAT}, which this didlm reads: "
        "upgrade it"
    )
