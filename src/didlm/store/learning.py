"""A tokenizer learnt from a sample of the sources, spread evenly over them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.text.blocks import Block, Piece, parse
from didlm.text.datasets import dataset_blocks
from didlm.text.hashing import document_hash, is_held_out
from didlm.text.reading import file_blocks
from didlm.text.records import Format
from didlm.text.sources import Source

SAMPLE = 1 << 26  # bytes of text to learn from, at most about


def learn_tokenizer(
    sources: Iterable[Source],
    form: Format,
    vocabulary: int,
    held_out: float,
    skip_broken: bool = False,
) -> Tokenizer:
    """Byte-level BPE from blocks that lie as far apart as makes them few enough.

    Documents that the hash holds out for validation are left out, and so is the end of a document
    longer than a block, or of the only one.

    Args:
        sources: where the text is. Of a dataset that is streamed, only the beginning is read.
        form: where the documents are in it.
        vocabulary: how many ids there may be.
        held_out: the share for validation.
        skip_broken: leave broken lines out.

    Raises:
        ValueError: if something cannot be read, or there is no text.
    """
    sources = list(sources)
    datasets = [source for source in sources if source.dataset]
    files = [file for source in sources for file in source.files]
    sample = SAMPLE * (len(sources) - len(datasets)) // len(sources)
    texts = _from_files(files, form, sample, held_out, skip_broken)
    for source in datasets:
        texts += _from_dataset(source, form, SAMPLE // len(sources), skip_broken)
    if not texts:
        raise ValueError(
            f"{', '.join(source.name for source in sources)}: there are no documents, for all of "
            "the text is whitespace"
        )
    if len(texts) == 1:
        return Tokenizer.train_bpe([texts[0][: round(len(texts[0]) * (1 - held_out))]], vocabulary)
    hashes = np.array([document_hash(text) for text in texts], dtype=np.uint64)
    kept = [t for t, out in zip(texts, is_held_out(hashes, held_out), strict=True) if not out]
    return Tokenizer.train_bpe(kept or texts, vocabulary)


def _from_files(
    files: list[Path], form: Format, sample: int, held_out: float, skip_broken: bool
) -> list[str]:
    total = sum(file.stat().st_size for file in files)
    texts: list[str] = []
    before = taken = 0
    for file in files:
        size = file.stat().st_size
        for block in file_blocks(file, form):
            late = isinstance(block, Piece) and block.done > size * (1 - held_out)
            if taken < sample * (before + block.done) / total and not late:
                taken += block.size
                texts += _texts(block, form, skip_broken)
        before += size
    return texts


def _from_dataset(source: Source, form: Format, sample: int, skip_broken: bool) -> list[str]:
    assert source.dataset is not None
    texts: list[str] = []
    taken = 0
    for block in dataset_blocks(source.name, source.dataset, form):
        taken += block.size
        texts += _texts(block, form, skip_broken)
        if taken >= sample:
            break
    return texts


def _texts(block: Block, form: Format, skip_broken: bool) -> list[str]:
    return [prompt + text for prompt, text in parse(block, form, skip_broken).documents]
