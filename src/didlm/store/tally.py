"""Counting what goes into a store."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

import didlm
from didlm.data.tokenizer import Tokenizer
from didlm.store.format import FORMAT, Counts, Lengths, Manifest, Origin
from didlm.store.shards import Shard
from didlm.text.sources import Source


@dataclass
class Tally:
    """What has been found and written so far."""

    sources: int
    documents: np.ndarray = field(init=False)  # [sources], as the two that follow
    token_counts: np.ndarray = field(init=False)
    bytes: np.ndarray = field(init=False)
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(64, np.int64))
    empty: int = 0
    broken: int = 0
    first_broken: str = ""
    inexact: int = 0
    longest: int = 0
    duplicates: int = 0
    shards: list[Shard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documents, self.token_counts, self.bytes = np.zeros((3, self.sources), np.int64)

    @property
    def tokens(self) -> int:
        """Of all sources."""
        return int(self.token_counts.sum())

    def add(self, source: int, lengths: np.ndarray, text: int) -> None:
        """Count documents of these lengths, whose text has so many bytes together."""
        if len(lengths):
            self.documents[source] += len(lengths)
            self.token_counts[source] += lengths.sum()
            self.bytes[source] += text
            self.longest = max(self.longest, int(lengths.max()))
            # frexp gives the number of binary digits: 1 for 1, 2 for 2 and 3, 3 for 4 to 7
            self.histogram += np.bincount(np.frexp(lengths)[1] - 1, minlength=64)

    def manifest(
        self, tokenizer: Tokenizer, options: dict[str, Any], found: list[Source]
    ) -> Manifest:
        """All of it, for the store."""
        documents = int(self.documents.sum())
        filled = int(np.flatnonzero(self.histogram)[-1]) + 1
        per_source = zip(found, self.documents, self.token_counts, self.bytes, strict=True)
        return Manifest(
            format=FORMAT,
            didlm=didlm.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            options=options,
            tokenizer=tokenizer.fingerprint(),
            vocabulary=tokenizer.vocabulary,
            counts=Counts(
                documents=documents,
                tokens=self.tokens,
                bytes=int(self.bytes.sum()),
                empty=self.empty,
                broken=self.broken,
                duplicates=self.duplicates,
                inexact=self.inexact,
            ),
            lengths=Lengths(
                self.tokens / documents, self.longest, self.histogram[:filled].tolist()
            ),
            sources=[Origin(s.name, s.weight, int(d), int(t), int(b)) for s, d, t, b in per_source],
            shards=self.shards,
        )
