"""The loader: noised examples with exact targets, made by workers, packed into batches.

Example number e is a function of (seed, e) alone: which text it is, what is given, how much is
deleted. Step number s takes exactly the examples s * batch to (s + 1) * batch, however many
processes share them and into however many batches they are packed. So a run resumes exactly, from
the number of its step, on as many processes as there are then.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch

from didlm.data.batch import Batch, Budget, fill, make_batch
from didlm.data.corpus import Corpus, Shards, Slice
from didlm.given import given_prefix
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.workers import start_workers

CHUNK = 32  # examples a worker makes at a time
CHUNKS_AHEAD = 4  # that each worker makes before they are asked for


@dataclass(frozen=True)
class Order:
    """Some examples to make: their numbers, what their texts are made of, how much is given."""

    numbers: list[int]
    slices: list[list[Slice]]
    prompts: list[int]


@dataclass(frozen=True)
class Maker:
    """Makes examples to order, in a worker or here."""

    shards: Shards
    method: Method
    seed: int

    def make(self, order: Order) -> Examples:
        """The examples."""
        texts = [self.shards.read(slices) for slices in order.slices]
        givens = [
            given_prefix(len(text), prompt) if prompt else None
            for text, prompt in zip(texts, order.prompts, strict=True)
        ]
        return self.method.training_examples(texts, order.numbers, self.seed, givens)


@dataclass(frozen=True)
class Share:
    """What one of several processes takes of every step."""

    rank: int = 0
    ranks: int = 1


class Loader:
    """The batches of every step, without end.

    Args:
        corpus: the training texts.
        method: what to make of them.
        budget: the most a batch may hold.
        batch: examples of a step, over all processes.
        seed: of the order of texts and of all noise.
        workers: processes that make examples; 0 makes them here, between two steps.
        start: how many steps have been taken before.
        share: which part of every step is made here.
    """

    def __init__(
        self,
        corpus: Corpus,
        method: Method,
        budget: Budget,
        batch: int,
        seed: int,
        workers: int = 0,
        start: int = 0,
        share: Share | None = None,
    ) -> None:
        share = share or Share()
        if batch % share.ranks:
            raise ValueError(
                f"a batch of {batch} cannot be shared equally by {share.ranks} processes"
            )
        self.steps = start  # whose batches have been handed out
        self.waited = 0.0  # seconds the consumer has waited for batches
        self._corpus, self._budget, self._batch = corpus, budget, batch
        self._share, self._workers = share, workers
        self._seed = seed
        self._maker = Maker(corpus.shards, method, seed)
        self._texts_per_epoch = corpus.epoch  # asked once: there may be many texts to count
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __iter__(self) -> Iterator[list[Batch]]:
        """The batches of one step after the other: one, or more where one does not hold all."""
        stream = self._stream()
        size = self._batch // self._share.ranks
        waiting: list[Examples] = []
        while True:
            started = time.perf_counter()
            while sum(map(len, waiting)) < size:
                waiting.append(next(stream))
            examples = Examples.join(waiting)
            waiting = [examples.part(size, len(examples))]
            batches = [make_batch(b) for b in fill([examples.part(0, size)], self._budget)]
            self.waited += time.perf_counter() - started
            self.steps += 1
            yield batches

    def text_of(self, number: int) -> int:
        """Which text an example is made of: every epoch has an order of its own."""
        epoch, place = divmod(number, self._texts_per_epoch)
        if self._epoch[0] != epoch:
            # A triple: apart from the seeds of examples, which are pairs.
            rng = np.random.default_rng((self._seed, epoch, 1))
            self._epoch = (epoch, self._corpus.order(rng))
        return int(self._epoch[1][place])

    def _stream(self) -> Iterator[Examples]:
        """The examples of this process, from the first of the next step on."""
        first, skip = divmod(self.steps * (self._batch // self._share.ranks), CHUNK)
        orders = (self._order(chunk) for chunk in count(first))
        made = self._made_by_workers(orders) if self._workers else map(self._maker.make, orders)
        for examples in made:
            yield examples.part(skip, len(examples)) if skip else examples
            skip = 0

    def _order(self, chunk: int) -> Order:
        """Those of the examples of this process that one task makes."""
        size = self._batch // self._share.ranks
        numbers = []
        for place in range(CHUNK * chunk, CHUNK * (chunk + 1)):
            step, within = divmod(place, size)
            numbers.append(step * self._batch + self._share.rank * size + within)
        texts = [self.text_of(number) for number in numbers]
        return Order(
            numbers,
            [self._corpus.slices(text) for text in texts],
            [self._corpus.prompt(text) for text in texts],
        )

    def _made_by_workers(self, orders: Iterator[Order]) -> Iterator[Examples]:
        methods = [type(self._maker.method).__module__]
        pool = start_workers(self._workers, _start_worker, self._maker, imports=methods)
        waiting = deque(
            pool.submit(_make, next(orders)) for _ in range(CHUNKS_AHEAD * self._workers)
        )
        try:
            for order in orders:
                examples = waiting.popleft().result()
                waiting.append(pool.submit(_make, order))
                yield examples
        finally:
            pool.shutdown(cancel_futures=True)


_maker: Maker | None = None


def _start_worker(maker: Maker) -> None:
    """Give a worker process what it makes examples of, once."""
    global _maker
    _maker = maker
    # Threads of a worker would spin on the cores of the other workers: 16 of them made it 14 times
    # slower.
    torch.set_num_threads(1)


def _make(order: Order) -> Examples:
    assert _maker is not None
    return _maker.make(order)


def budget_for(corpus: Corpus, sequences: int) -> Budget:
    """Budgets that `sequences` texts fill: with room to spare, so that they rarely bind.

    Given tokens stay, so a batch may keep nearly all of its tokens; there is about one target for
    each token deleted.
    """
    tokens = int(1.25 * sequences * corpus.mean_length) + 2 * corpus.longest
    rows = tokens + sequences
    return Budget(sequences=sequences, rows=rows, target_rows=rows, targets=2 * rows)
