"""Stores of raw text, prepared once and found again."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from didlm.data.tokenizer import Tokenizer
from didlm.store.format import FORMAT, Store
from didlm.store.prepare import prepare_store
from didlm.text.sources import Source, find_sources


def cache_folder() -> Path:
    """Where such stores are: $DIDLM_CACHE, or didlm/stores in the user's cache."""
    if folder := os.environ.get("DIDLM_CACHE"):
        return Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "didlm" / "stores"


def cached_store(
    sources: Sequence[str],
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
    """The store of these sources from the cache, prepared first if it is not there.

    Files are known by their names, sizes and times of change, datasets by their names. A store that
    is damaged is made again.

    Args:
        sources: as for `prepare_store`, and so are the others.
        tokenizer: what makes tokens of the text; None to learn one from it.
        vocabulary: how many ids one that is learnt may have.
        column: where the text is in .jsonl and .parquet.
        separator: what stands between the documents of a .txt file.
        held_out: the share for validation, from which no tokenizer is learnt.
        workers: processes that tokenize.
        skip_broken: leave broken lines and rows out.
        say: what to do with sentences that warn.
        progress: whether to show on stderr how far it is.

    Raises:
        ValueError: in one sentence, if the text cannot be read or the store not be written.
    """
    found = find_sources(sources)
    learning = [tokenizer.fingerprint()] if tokenizer else [vocabulary, held_out]
    key = [FORMAT, [_identity(s) for s in found], learning, column, separator, skip_broken]
    out = cache_folder() / f"{_stem(found[0])}-{_digest(key)}"
    if out.exists():
        try:
            return Store.open(out)
        except ValueError:  # damaged
            shutil.rmtree(out, ignore_errors=True)
    try:
        return prepare_store(
            sources,
            out,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            column=column,
            separator=separator,
            held_out=held_out,
            workers=workers,
            skip_broken=skip_broken,
            say=say,
            progress=progress,
        )
    except ValueError:
        if out.is_dir():  # another process was quicker
            return Store.open(out)
        raise


def _identity(source: Source) -> list[Any]:
    files = [(str(file.resolve()), file.stat()) for file in source.files]
    return [
        source.name if source.dataset else "",
        source.weight,
        [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files],
    ]


def _digest(key: list[Any]) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _stem(source: Source) -> str:
    """A name by which people recognise a source."""
    name = Path(source.name).name.partition(".")[0]
    return re.sub(r"[^\w-]+", "-", name).strip("-")[:40] or "texts"
