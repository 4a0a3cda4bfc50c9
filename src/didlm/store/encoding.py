"""From a block to tokens: what each worker does, in processes of their own or in this one."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.text.blocks import Block, Piece, parse
from didlm.text.hashing import document_hash
from didlm.text.records import Format
from didlm.workers import start_workers

Tag = TypeVar("Tag")

_AHEAD = 2  # blocks per worker that wait for it or for the writer


@dataclass(frozen=True)
class Encoded:
    """The documents of a block as arrays; those without tokens are counted as empty."""

    tokens: np.ndarray  # of all documents, end to end
    lengths: np.ndarray
    prompts: np.ndarray
    hashes: np.ndarray
    bytes: int
    empty: int
    broken: list[str]
    inexact: int


@dataclass(frozen=True)
class Encoder:
    """Makes tokens of blocks."""

    tokenizer: Tokenizer
    form: Format
    skip_broken: bool

    def __call__(self, block: Block) -> Encoded:
        """The tokens of the documents in a block, and whether they give the text back.

        Raises:
            ValueError: if a line or row is broken and is not to be skipped.
        """
        parsed = parse(block, self.form, self.skip_broken)
        texts = [prompt + text for prompt, text in parsed.documents]
        prompts: list[list[int]] = [[] for _ in texts]
        if len(self.form.columns) == 2:
            prompts = self._ids([prompt for prompt, _ in parsed.documents])
        answers = self._ids([text for _, text in parsed.documents])
        ids = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        back = self.tokenizer.library.decode_batch(ids)
        # A piece without tokens is still part of its document.
        kept = np.array([len(d) > 0 or isinstance(block, Piece) for d in ids], dtype=np.bool_)
        texts_kept = [(a, b) for a, b, keep in zip(texts, back, kept, strict=True) if keep]
        return Encoded(
            tokens=np.array(list(chain.from_iterable(ids)), dtype=self.dtype),
            lengths=np.array([len(document) for document in ids], dtype=np.int64)[kept],
            prompts=np.array([len(prompt) for prompt in prompts], dtype=np.int64)[kept],
            hashes=np.array([document_hash(text) for text in texts], dtype=np.uint64)[kept],
            bytes=sum(len(text.encode()) for text, _ in texts_kept),
            empty=parsed.empty + int((~kept).sum()),
            broken=parsed.broken,
            inexact=sum(text != given_back for text, given_back in texts_kept),
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds every id."""
        return np.dtype(np.uint16 if self.tokenizer.vocabulary <= 1 << 16 else np.uint32)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        encodings = self.tokenizer.library.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def encode_blocks(
    blocks: Iterable[tuple[Tag, Block]], encoder: Encoder, workers: int
) -> Generator[tuple[Tag, Encoded], None, None]:
    """The tokens of blocks, in their order, with the tags they came with.

    Args:
        blocks: tags, and what to make tokens of.
        encoder: what makes them.
        workers: the number of processes; 0 for none but this one. The result does not depend on it.

    Raises:
        ValueError: for the first block that cannot be read.
    """
    if not workers:
        for tag, block in blocks:
            yield tag, encoder(block)
        return
    pool = start_workers(workers, _start_worker, encoder)
    try:
        yield from _in_order(iter(blocks), pool, _AHEAD * workers)
    except BrokenProcessPool:
        raise ValueError(
            "a worker ended before its work was done, perhaps for lack of memory; "
            "try fewer with --workers, or 0 for none"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    blocks: Iterator[tuple[Tag, Block]], pool: ProcessPoolExecutor, ahead: int
) -> Iterator[tuple[Tag, Encoded]]:
    pending: deque[tuple[Tag, Future[Encoded]]] = deque()
    problem: ValueError | None = None
    while problem is None:
        try:
            item = next(blocks, None)
        except ValueError as error:
            problem = error  # what is wrong with an earlier block comes first
            continue
        if item is None:
            break
        pending.append((item[0], pool.submit(_work, item[1])))
        if len(pending) > ahead:
            tag, future = pending.popleft()
            yield tag, future.result()
    for tag, future in pending:
        yield tag, future.result()
    if problem:
        raise problem


_encoder: Encoder | None = None  # of a worker


def _start_worker(encoder: Encoder) -> None:
    global _encoder
    _encoder = encoder
    # There is a worker for every core; the library's threads would only be in their way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"


def _work(block: Block) -> Encoded:
    assert _encoder is not None
    return _encoder(block)
