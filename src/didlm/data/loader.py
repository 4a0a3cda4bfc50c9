"""The loader: noised examples with exact targets, made by workers, packed into batches.

Example number e is a function of (seed, e) alone: which document it is, what is given, how much is
deleted. Packing, workers and ranks change when it is made and with whom it shares a batch, never
what it is. So the state of a loader is one number, and a run resumes exactly.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context

import numpy as np

from didlm.data.batch import Batch, Budget, fill, make_batch
from didlm.methods.examples import Examples
from didlm.methods.method import Method

CHUNK = 32  # examples a worker makes at a time
CHUNKS_AHEAD = 4  # that each worker makes before they are asked for


@dataclass(frozen=True)
class Corpus:
    """Documents as token ids, end to end: cheap to hand to workers."""

    tokens: np.ndarray  # [total]
    offsets: np.ndarray  # [documents + 1]

    @staticmethod
    def of(documents: Sequence[np.ndarray]) -> "Corpus":
        """Lay documents end to end."""
        offsets = np.cumsum([0, *(len(document) for document in documents)])
        return Corpus(np.concatenate([np.empty(0, np.int64), *documents]), offsets)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        """The ids of one document."""
        return self.tokens[self.offsets[number] : self.offsets[number + 1]]

    def first(self, count: int) -> "Corpus":
        """The first documents."""
        offsets = self.offsets[: count + 1]
        return Corpus(self.tokens[: offsets[-1]], offsets)

    @property
    def longest(self) -> int:
        """Tokens in the longest document."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def mean_length(self) -> float:
        """Tokens per document."""
        return len(self.tokens) / len(self)

    @property
    def length_dispersion(self) -> float:
        """How much more the lengths vary than at random: (variance - mean) / mean^2, at least 0."""
        mean = self.mean_length
        variance = float(np.diff(self.offsets).var())
        return max(0.0, (variance - mean) / mean**2) if mean else 0.0


class TrainingExamples:
    """An endless list of chunks of examples: every epoch in an order of its own."""

    def __init__(self, corpus: Corpus, method: Method, seed: int) -> None:
        self.corpus, self.method, self.seed = corpus, method, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __getitem__(self, chunk: int) -> Examples:
        """Examples number CHUNK * chunk to CHUNK * (chunk + 1)."""
        numbers = range(CHUNK * chunk, CHUNK * (chunk + 1))
        texts = [self.corpus[self._document(number)] for number in numbers]
        return self.method.training_examples(texts, numbers, self.seed)

    def _document(self, number: int) -> int:
        epoch, place = divmod(number, len(self.corpus))
        if self._order[0] != epoch:
            # A triple: apart from the seeds of examples, which are pairs.
            rng = np.random.default_rng((self.seed, epoch, 1))
            self._order = (epoch, rng.permutation(len(self.corpus)))
        return int(self._order[1][place])


class Loader:
    """Batches without end, from a state that can be saved.

    Args:
        corpus: the training documents.
        method: what to make of them.
        budget: the most a batch may hold.
        seed: of documents' order and of all noise.
        workers: processes that make examples; 0 makes them here, between two steps.
        start: the number of the first example, from `state` of an earlier loader.
    """

    def __init__(
        self,
        corpus: Corpus,
        method: Method,
        budget: Budget,
        seed: int,
        workers: int = 0,
        start: int = 0,
    ) -> None:
        self.state = start
        self.waited = 0.0  # seconds the consumer has waited for batches
        self._examples = TrainingExamples(corpus, method, seed)
        self._budget, self._workers = budget, workers

    def __iter__(self) -> Iterator[Batch]:
        """The batches. `state` is the number of the first example that is in none of them yet."""
        batches = fill(self._stream(), self._budget)
        while True:
            started = time.perf_counter()
            examples = next(batches)
            batch = make_batch(examples)
            self.waited += time.perf_counter() - started
            self.state += len(examples)
            yield batch

    def _stream(self) -> Iterator[Examples]:
        first, skip = divmod(self.state, CHUNK)
        chunks = self._made_by_workers(first) if self._workers else self._made_here(first)
        for examples in chunks:
            yield examples.part(skip, len(examples)) if skip else examples
            skip = 0

    def _made_here(self, first: int) -> Iterator[Examples]:
        for chunk in count(first):
            yield self._examples[chunk]

    def _made_by_workers(self, first: int) -> Iterator[Examples]:
        # A forked process may not use CUDA or threads of its parent; spawned ones start clean.
        pool = ProcessPoolExecutor(
            self._workers, get_context("spawn"), _start_worker, (self._examples,)
        )
        ahead = CHUNKS_AHEAD * self._workers
        waiting = deque(pool.submit(_make_chunk, first + number) for number in range(ahead))
        try:
            for chunk in count(first + ahead):
                examples = waiting.popleft().result()
                waiting.append(pool.submit(_make_chunk, chunk))
                yield examples
        finally:
            pool.shutdown(cancel_futures=True)


_worker_examples: TrainingExamples | None = None


def _start_worker(examples: TrainingExamples) -> None:
    """Give a worker process what it makes examples of, once."""
    global _worker_examples
    _worker_examples = examples


def _make_chunk(chunk: int) -> Examples:
    assert _worker_examples is not None
    return _worker_examples[chunk]


def budget_for(corpus: Corpus, sequences: int) -> Budget:
    """Budgets that `sequences` documents fill: with room to spare, so that they rarely bind.

    Given tokens stay, so a batch may keep nearly all of its tokens; there is about one target for
    each token deleted.
    """
    tokens = int(1.25 * sequences * corpus.mean_length) + 2 * corpus.longest
    rows = tokens + sequences
    return Budget(sequences=sequences, rows=rows, target_rows=rows, targets=2 * rows)
