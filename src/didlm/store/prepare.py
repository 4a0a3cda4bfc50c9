"""From sources to a token store: read, tokenize in parallel, write, and put into place whole."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.store.building import new_folder, write_json
from didlm.store.duplicates import count_duplicates
from didlm.store.encoding import Encoded, Encoder, encode_blocks
from didlm.store.format import Manifest, Store
from didlm.store.learning import learn_tokenizer
from didlm.store.progress import Meter
from didlm.store.shards import ShardWriter
from didlm.store.tally import Tally
from didlm.text.blocks import Block, Piece
from didlm.text.datasets import dataset_blocks
from didlm.text.opening import bytes_of_text
from didlm.text.reading import file_blocks
from didlm.text.records import Format
from didlm.text.sources import Source, find_sources

_WORTH_A_WORKER = 1 << 22  # bytes of text; less is done before a process has started


def prepare_store(
    sources: Sequence[str],
    out: Path,
    *,
    tokenizer: Tokenizer | None = None,
    vocabulary: int = 4096,
    column: str = "text",
    separator: str = "<|endoftext|>",
    held_out: float = 0.05,
    workers: int | None = None,
    skip_broken: bool = False,
    say: Callable[[str], None] | None = None,
    progress: bool = False,
) -> Store:
    """Make a token store of text; either all of it is there in the end, or nothing.

    Args:
        sources: files, folders, globs and datasets: PATH, PATH:WEIGHT or hf:NAME@CONFIG#SPLIT.
        out: the folder to make.
        tokenizer: what makes tokens of the text; None to learn one from it.
        vocabulary: how many ids one that is learnt may have.
        column: where the text is in .jsonl and .parquet; PROMPT+RESPONSE for two columns, of which
            the first is the prompt.
        separator: what stands between the documents of a .txt file.
        held_out: the share for validation, from which no tokenizer is learnt.
        workers: processes that tokenize; 0 for none but this one, None for one per core. The store
            does not depend on it.
        skip_broken: leave broken lines and rows out, instead of stopping at the first.
        say: what to do with sentences that warn; None to keep silent.
        progress: whether to show on stderr how far it is.

    Raises:
        ValueError: in one sentence, if the text cannot be read or the store not be written.
    """
    form = Format(column, separator)
    found = find_sources(sources)
    if not 0 <= held_out < 1:
        raise ValueError(f"the share held out must be at least 0 and below 1: got {held_out}")
    if workers is not None and workers < 0:
        raise ValueError(f"there cannot be {workers} workers; 0 is for none but this process")
    total = _size(found)
    with new_folder(Path(out)) as folder, Meter(total, progress) as meter:
        learnt = tokenizer is None
        if tokenizer is None:
            meter.say(f"learning a tokenizer of {vocabulary} ids")
            tokenizer = learn_tokenizer(found, form, vocabulary, held_out, skip_broken)
            meter.restart()
        tokenizer.save(folder)
        # What was saved is what is read again: the same tokens, and the same fingerprint.
        tokenizer = Tokenizer.load(folder)
        encoder = Encoder(tokenizer, form, skip_broken)
        processes = _workers(found) if workers is None else workers
        tally = _write(found, encoder, processes, folder, meter)
        if not tally.tokens:
            names = ", ".join(source.name for source in found)
            raise ValueError(f"{names}: there are no documents, for all of the text is whitespace")
        options = {
            "column": column,
            "separator": separator,
            "held_out": held_out,
            "skip_broken": skip_broken,
            "learnt": learnt,
        }
        manifest = tally.manifest(tokenizer, options, found)
        write_json(folder / "manifest.json", manifest.to_json())
    for sentence in warnings(manifest, tally.first_broken):
        (say or _silence)(sentence)
    return Store.open(out)


def warnings(manifest: Manifest, first_broken: str = "") -> list[str]:
    """What a user should know about a store, a sentence each."""
    counts = manifest.counts
    sentences = []
    if counts.broken:
        first = f"; the first: {first_broken}" if first_broken else ""
        sentences.append(f"broken lines or rows left out: {counts.broken:,}{first}")
    if counts.empty:
        sentences.append(f"empty documents left out: {counts.empty:,}")
    if counts.duplicates:
        sentences.append(
            "documents with the same text as an earlier one, which are kept: "
            f"{counts.duplicates:,} of {counts.documents:,}"
        )
    if counts.inexact:
        sentences.append(
            "documents that the tokenizer does not give back exactly, so that bits per byte will "
            f"be of normalised text: {counts.inexact:,} of {counts.documents:,}"
        )
    return sentences


@dataclass(frozen=True)
class _Place:
    """Where a block is from."""

    source: int
    done: int  # bytes of all sources read by then
    piece: bool
    hash: int | None  # of the document that ends with this piece


def _write(
    found: list[Source], encoder: Encoder, workers: int, folder: Path, meter: Meter
) -> Tally:
    tally = Tally(len(found))
    writer = ShardWriter(folder, encoder.dtype)
    long = _LongDocument()
    encoded_blocks = encode_blocks(_blocks(found, encoder.form), encoder, workers)
    try:
        for place, encoded in encoded_blocks:
            tally.empty += encoded.empty
            tally.broken += len(encoded.broken)
            tally.first_broken = tally.first_broken or next(iter(encoded.broken), "")
            if place.piece:
                long.add(place, encoded, writer, tally)
            else:
                tally.inexact += encoded.inexact
                tally.add(place.source, encoded.lengths, encoded.bytes)
                writer.add(
                    encoded.tokens, encoded.lengths, encoded.prompts, encoded.hashes, place.source
                )
            documents = int(tally.documents.sum())
            meter.update(place.done, int(tally.bytes.sum()) + long.bytes, documents, tally.tokens)
        tally.shards = writer.finish()
    finally:
        encoded_blocks.close()  # its workers end now, and not when somebody forgets the error
        writer.close()
    meter.say("looking for duplicates")
    tables = [folder / shard.documents.name for shard in tally.shards]
    tally.duplicates = count_duplicates(tables, int(tally.documents.sum()))
    return tally


@dataclass
class _LongDocument:
    """What is known of a document that comes in pieces."""

    bytes: int = 0
    inexact: bool = False

    def add(self, place: _Place, encoded: Encoded, writer: ShardWriter, tally: Tally) -> None:
        writer.add_piece(encoded.tokens)
        self.bytes += encoded.bytes
        self.inexact |= bool(encoded.inexact)
        if place.hash is None:
            return
        length = writer.end_pieces(place.hash, place.source)
        if length:
            tally.add(place.source, np.array([length]), self.bytes)
            tally.inexact += self.inexact
        else:
            tally.empty += 1
        self.bytes, self.inexact = 0, False


def _blocks(found: list[Source], form: Format) -> Iterator[tuple[_Place, Block]]:
    before = 0
    for number, source in enumerate(found):
        if source.dataset:
            for rows in dataset_blocks(source.name, source.dataset, form):
                yield _Place(number, before, False, None), rows
        for file in source.files:
            for block in file_blocks(file, form):
                piece = isinstance(block, Piece)
                ends = block.hash if isinstance(block, Piece) else None
                yield _Place(number, before + block.done, piece, ends), block
            before += file.stat().st_size


def _size(found: list[Source]) -> int | None:
    """Bytes of all files; None if there is a dataset, of which that is not known."""
    if any(source.dataset for source in found):
        return None
    return sum(file.stat().st_size for source in found for file in source.files)


def _workers(found: list[Source]) -> int:
    useful = os.cpu_count() or 1
    if not any(source.dataset for source in found):  # of which the size is not known
        size = sum(bytes_of_text(file) for source in found for file in source.files)
        useful = min(useful, size // _WORTH_A_WORKER)
    return useful if useful > 1 else 0


def _silence(sentence: str) -> None:
    pass
