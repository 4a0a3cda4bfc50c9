"""Texts as token ids: whole documents or chunks of them, each a few slices of shards.

Shards are flat arrays of ids, in memory or mapped from the files of a store. Which slices make up a
text is known to the training process; those who only read them need nothing but the shards.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from didlm._inputs import FloatArray, IntArray, Integers, token_ids
from didlm.store.format import Store
from didlm.store.shards import DOCUMENT

SEPARATORS = -1  # the shard that holds nothing else


class Slice(NamedTuple):
    """A stretch of a shard."""

    shard: int
    start: int
    length: int


class Shards:
    """Flat arrays of ids; those in files are mapped by each process for itself, when needed."""

    def __init__(self, shards: Sequence[np.ndarray | Path], separator: int = 0) -> None:
        self._shards, self.separator = list(shards), separator
        self._mapped: dict[int, np.ndarray] = {}

    def read(self, slices: Iterable[Slice]) -> IntArray:
        """The ids in some slices, end to end."""
        pieces = [
            np.full(length, self.separator)
            if shard == SEPARATORS
            else self._shard(shard)[start : start + length].astype(np.int64)
            for shard, start, length in slices
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.int64), *pieces])

    def _shard(self, number: int) -> np.ndarray:
        shard = self._shards[number]
        if isinstance(shard, np.ndarray):
            return shard
        if number not in self._mapped:
            self._mapped[number] = np.load(shard, mmap_mode="r")
        return self._mapped[number]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_mapped": {}}  # a map of a file would be sent as all that it holds


class Corpus(ABC):
    """Texts to learn from, or to be measured on."""

    shards: Shards
    lengths: IntArray  # tokens of each text
    weights: FloatArray | None  # how often each comes in an epoch; None if all come once

    @abstractmethod
    def slices(self, number: int) -> list[Slice]:
        """What a text is made of."""

    @abstractmethod
    def first(self, count: int) -> "Corpus":
        """The first texts."""

    def prompt(self, number: int) -> int:
        """How many tokens at the beginning of a text are given."""
        return 0

    @property
    def has_prompts(self) -> bool:
        """Whether anything is given of any text."""
        return False

    @staticmethod
    def of(documents: Iterable[Integers], separator: int = 0) -> "Documents":
        """Documents laid into memory."""
        arrays = [token_ids(ids, f"document {n}") for n, ids in enumerate(documents)]
        table = np.zeros(len(arrays), DOCUMENT)
        table["length"] = [len(ids) for ids in arrays]
        table["start"] = np.cumsum(table["length"]) - table["length"]
        flat = np.concatenate([np.empty(0, np.int64), *arrays])
        return Documents(Shards([flat], separator), table)

    @abstractmethod
    def __len__(self) -> int:
        """The number of texts."""

    def __getitem__(self, number: int) -> IntArray:
        """The ids of one text."""
        return self.shards.read(self.slices(number))

    def __iter__(self) -> Iterator[IntArray]:
        """The ids of one text after the other."""
        return (self[number] for number in range(len(self)))

    @property
    def tokens(self) -> int:
        """How many there are in all texts."""
        return int(self.lengths.sum())

    @property
    def longest(self) -> int:
        """Tokens in the longest text."""
        return int(self.lengths.max(initial=0))

    @property
    def mean_length(self) -> float:
        """Tokens per text, as often as each comes."""
        return float(np.average(self.lengths, weights=self.weights))

    @property
    def length_dispersion(self) -> float:
        """How much more the lengths vary than at random: (variance - mean) / mean^2, at least 0."""
        mean = self.mean_length
        variance = float(np.average((self.lengths - mean) ** 2, weights=self.weights))
        return max(0.0, (variance - mean) / mean**2) if mean else 0.0

    @property
    def epoch(self) -> int:
        """How many texts come until each has come as often as its weight says."""
        return len(self) if self.weights is None else max(1, round(float(self.weights.sum())))

    def order(self, rng: np.random.Generator) -> IntArray:
        """The texts of an epoch, in random order [epoch].

        A text of weight 2.5 comes twice in some epochs and three times in the others.
        """
        order = rng.permutation(len(self))
        if self.weights is None:
            return order
        # The total is made whole, so that every epoch has as many: its sum is exact at the end.
        upto = np.cumsum(self.weights[order])
        upto *= self.epoch / upto[-1]
        upto[-1] = self.epoch
        whole = np.minimum(np.floor(upto + rng.random()).astype(np.int64), self.epoch)
        times = np.diff(whole, prepend=0)
        return rng.permutation(np.repeat(order, times))


@dataclass(frozen=True, eq=False)
class Documents(Corpus):
    """Whole documents, one slice each."""

    shards: Shards
    table: np.ndarray  # [documents] of DOCUMENT
    weights: FloatArray | None = None
    padding: int = 0  # with separators, to so many tokens; shorter than none of them

    @staticmethod
    def of_store(store: Store) -> "Documents":
        """All documents of a store."""
        table = store.documents()
        by_source = np.array([source.weight for source in store.manifest.sources])
        weights = by_source[table["source"]] if len(set(by_source.tolist())) > 1 else None
        return Documents(Shards(store.token_files, store.tokenizer.separator), table, weights)

    @property
    def lengths(self) -> IntArray:  # type: ignore[override]
        """Tokens of each document, padding included."""
        return np.maximum(self.table["length"], self.padding)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.table)

    def slices(self, number: int) -> list[Slice]:
        """Its stretch of a shard, and what pads it."""
        shard, length = int(self.table["shard"][number]), int(self.table["length"][number])
        slices = [Slice(shard, int(self.table["start"][number]), length)]
        if self.padding > length:
            slices.append(Slice(SEPARATORS, 0, self.padding - length))
        return slices

    def prompt(self, number: int) -> int:
        """How many tokens at the beginning are given."""
        return int(self.table["prompt"][number])

    @property
    def has_prompts(self) -> bool:
        """Whether any document has a prompt."""
        return bool(self.table["prompt"].any())

    def select(self, which: np.ndarray) -> "Documents":
        """Some of the documents."""
        weights = None if self.weights is None else self.weights[which]
        return replace(self, table=self.table[which], weights=weights)

    def first(self, count: int) -> "Documents":
        """The first documents."""
        return self.select(np.arange(min(count, len(self))))

    def cut(self, longest: int) -> "Documents":
        """The documents, none with more than so many tokens."""
        table = self.table.copy()
        table["length"] = np.minimum(table["length"], longest)
        return replace(self, table=table)

    def padded(self, length: int) -> "Documents":
        """The documents, cut or filled with separators so that each has so many tokens."""
        return replace(self.cut(length), padding=length)

    def split_at(self, place: int) -> tuple["Documents", "Documents"]:
        """The only document there is, in two."""
        (start,), (length,) = self.table["start"].tolist(), self.table["length"].tolist()
        left, right = self.table.copy(), self.table.copy()
        left["length"] = place
        right["start"], right["length"] = start + place, length - place
        return replace(self, table=left), replace(self, table=right)

    def chunks(self, length: int) -> "Chunks":
        """Chunks of exactly so many tokens, cut from the documents laid end to end.

        Every document is followed by the separator. What is left at the end is dropped.

        Raises:
            ValueError: if not even one chunk can be filled, or the length makes no sense.
        """
        if length < 1:
            raise ValueError(f"a chunk must have at least 1 token: got length {length}")
        if self.has_prompts:
            raise ValueError("documents with prompts cannot be laid end to end and cut into chunks")
        ends = np.cumsum(self.table["length"] + 1)
        total = int(ends[-1]) if len(ends) else 0
        if total < length:
            raise ValueError(
                f"the documents have {total} tokens with their separators, "
                f"too few for one chunk of {length}; give more text or shorter chunks"
            )
        return Chunks(self, length, total // length, ends)


@dataclass(frozen=True, eq=False)
class Chunks(Corpus):
    """Stretches of one length, from documents laid end to end with separators between them."""

    documents: Documents
    length: int
    count: int
    ends: IntArray  # where each document and its separator end

    @property
    def shards(self) -> Shards:  # type: ignore[override]
        """Those of the documents."""
        return self.documents.shards

    @property
    def lengths(self) -> IntArray:  # type: ignore[override]
        """All the same."""
        return np.full(self.count, self.length)

    def __len__(self) -> int:
        """The number of chunks."""
        return self.count

    @cached_property
    def weights(self) -> FloatArray | None:  # type: ignore[override]
        """Of the document in which each begins."""
        if self.documents.weights is None:
            return None
        starts = self.length * np.arange(self.count)
        return self.documents.weights[np.searchsorted(self.ends, starts, "right")]

    def slices(self, number: int) -> list[Slice]:
        """Parts of the documents that a chunk runs through, with their separators."""
        position, end = self.length * number, self.length * (number + 1)
        document = int(np.searchsorted(self.ends, position, "right"))
        slices = []
        while position < end:
            separator = int(self.ends[document]) - 1  # its place
            if position < separator:
                row = self.documents.table[document]
                stop = min(end, separator)
                start = int(row["start"]) + int(row["length"]) - (separator - position)
                slices.append(Slice(int(row["shard"]), start, stop - position))
                position = stop
            if position < end:
                slices.append(Slice(SEPARATORS, 0, 1))
                position += 1
            document += 1
        return slices

    def first(self, count: int) -> "Chunks":
        """The first chunks."""
        return replace(self, count=min(count, self.count))
