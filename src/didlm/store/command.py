"""The command that prepares text for training."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from didlm.data.tokenizer import Tokenizer
from didlm.store.format import Store
from didlm.store.prepare import prepare_store


def prepare_for_user(
    sources: list[str],
    out: Path,
    tokenizer: Path | None,
    vocabulary: int,
    column: str,
    separator: str,
    held_out: float,
    workers: int | None,
    skip_broken: bool,
) -> None:
    """Make a store, say how far it is meanwhile, and show what came of it."""
    started = time.perf_counter()
    store = prepare_store(
        sources,
        out,
        tokenizer=Tokenizer.load(tokenizer) if tokenizer else None,
        vocabulary=vocabulary,
        column=column,
        separator=separator,
        held_out=held_out,
        workers=workers,
        skip_broken=skip_broken,
        say=lambda sentence: print(f"didlm: {sentence}", file=sys.stderr),
        progress=True,
    )
    Console(highlight=False).print(_summary(store, time.perf_counter() - started))


def _summary(store: Store, seconds: float) -> Table:
    manifest = store.manifest
    counts, lengths = manifest.counts, manifest.lengths
    table = Table(show_header=False, box=None, title=str(store.folder), title_justify="left")
    rows = {
        "documents": f"{counts.documents:,}",
        "tokens": f"{counts.tokens:,}, of a vocabulary of {manifest.vocabulary:,}",
        "bytes of text": f"{counts.bytes:,}",
        "tokens per document": f"{lengths.mean:,.1f}, at most {lengths.longest:,}",
        "given back exactly": exactness(store),
        "empty, left out": f"{counts.empty:,}",
        "broken, left out": f"{counts.broken:,}",
        "duplicates, kept": f"{counts.duplicates:,}",
        "time": f"{seconds:,.1f} s, {counts.bytes / 1e6 / seconds:,.1f} MB of text a second",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def exactness(store: Store) -> str:
    """Whether the tokenizer gives the text back, in words."""
    counts = store.manifest.counts
    if store.manifest.lossless:
        return "all documents"
    return f"all but {counts.inexact:,}: bytes are those of normalised text"
