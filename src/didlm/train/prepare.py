"""From a path to tensors: documents, tokenizer, corpora and method of a training run."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from didlm.data import stories
from didlm.data.corpus import Corpus, Documents
from didlm.data.tokenizer import Tokenizer
from didlm.methods.method import Method
from didlm.methods.registry import find_method
from didlm.pretrained import Model
from didlm.store.cache import cached_store
from didlm.store.format import Store
from didlm.text.hashing import is_held_out
from didlm.text.sources import is_store
from didlm.train.settings import Settings

EMBEDDED_STORIES = 20_000


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything about the data that a run needs."""

    train: Corpus
    valid: Corpus
    valid_bytes: int  # of the text of the validation documents
    cut: int  # training documents that were longer than they may be
    tokenizer: Tokenizer
    method: Method
    lossless: bool  # whether the tokenizer gives the text back exactly
    fingerprint: str  # of documents and tokenizer: a run goes on only with the same
    sources: list[str]  # the names of what was read
    learnt: bool  # whether the tokenizer was learnt from the data
    notes: list[str]  # what the user ought to know about the data
    start: Model | None = None  # to go on from


@dataclass(frozen=True, eq=False)
class _Texts:
    """Documents on both sides, and what is known of them."""

    train: Documents
    valid: Documents
    tokenizer: Tokenizer
    lossless: bool
    fingerprint: str
    sources: list[str]
    learnt: bool
    notes: list[str]


def prepare(settings: Settings, show: bool = False) -> Prepared:
    """Read, split and tokenize the data; from a store nothing but tables is read.

    Args:
        settings: of the run.
        show: whether to show on stderr how far it is.

    Raises:
        ValueError: in one sentence, if the data cannot be used.
    """
    start = Model.from_pretrained(settings.init) if settings.init else None
    if start is not None and start.method.name != settings.method:
        raise ValueError(
            f"the model {settings.init} is of the method '{start.method.name}' and cannot go on "
            f"as '{settings.method}': name its own with --method"
        )
    named = _tokenizer(settings, start)
    texts = _stored(settings, named, show) if settings.data else _embedded(settings, named)
    tokenizer = texts.tokenizer
    method = find_method(settings.method).build(tokenizer, **_options(settings))
    longest = method.length or settings.max_length
    notes = list(texts.notes)
    train, cut = _laid_out("training", texts.train, method, settings, longest, notes)
    # The first by their hashes, and not by their places: of all sources, and always the same.
    shuffled = texts.valid.select(np.argsort(texts.valid.table["hash"], kind="stable"))
    valid, _ = _laid_out("validation", shuffled, method, settings, longest, [])
    valid = valid.first(settings.valid_documents)
    return Prepared(
        train=train,
        valid=valid,
        # Cut documents are scored on what is left of them, and prompts are not.
        valid_bytes=sum(
            tokenizer.count_bytes(text[valid.prompt(number) : method.finish(text)])
            for number, text in enumerate(valid)
        ),
        cut=cut,
        tokenizer=tokenizer,
        method=method,
        lossless=texts.lossless,
        fingerprint=texts.fingerprint,
        sources=texts.sources,
        learnt=texts.learnt,
        notes=notes,
        start=start,
    )


def _tokenizer(settings: Settings, start: Model | None) -> Tokenizer | None:
    """The one that is asked for; None to take that of a store, or to learn one.

    Raises:
        ValueError: if it is not that of the model to start from.
    """
    named = Tokenizer.load(Path(settings.tokenizer)) if settings.tokenizer else None
    if start is None:
        return named
    if named is not None and named.fingerprint() != start.tokenizer.fingerprint():
        raise ValueError(
            f"the tokenizer {settings.tokenizer} is not that of the model {settings.init}, "
            "which can only read its own: leave it out"
        )
    return start.tokenizer


def _embedded(settings: Settings, tokenizer: Tokenizer | None) -> _Texts:
    if settings.valid != Settings.valid:
        raise ValueError("valid goes with data: the embedded stories have a validation set")
    train = stories.training_stories(EMBEDDED_STORIES, settings.seed)
    valid = stories.validation_stories(settings.valid_documents)
    learnt = tokenizer is None
    tokenizer = tokenizer or Tokenizer.train_bpe(train, settings.vocabulary)
    separator = tokenizer.separator
    what = f"embedded stories {EMBEDDED_STORIES} {settings.seed} {tokenizer.fingerprint()}"
    return _Texts(
        Corpus.of(tokenizer.encode_batch(train), separator),
        Corpus.of(tokenizer.encode_batch(valid), separator),
        tokenizer,
        tokenizer.lossless(valid),
        hashlib.sha256(what.encode()).hexdigest(),
        ["the stories embedded in didlm"],
        learnt,
        [],
    )


def _stored(settings: Settings, tokenizer: Tokenizer | None, show: bool) -> _Texts:
    """The documents of a store, or of text that is made into one."""
    fraction = _fraction(settings.valid)
    store = _store(settings.data, settings, tokenizer, fraction or 0.0, show)
    documents, notes = Documents.of_store(store), store_notes(store)
    if fraction is None:
        other = _store(settings.valid, settings, store.tokenizer, 0.0, show)
        train, valid = documents, Documents.of_store(other)
        fingerprint = store.manifest.fingerprint + other.manifest.fingerprint
        lossless = store.manifest.lossless and other.manifest.lossless
    else:
        train, valid = _split(documents, fraction, settings)
        fingerprint, lossless = store.manifest.fingerprint, store.manifest.lossless
    sources = [PurePath(source.name).name or source.name for source in store.manifest.sources]
    learnt = bool(store.manifest.options["learnt"])
    return _Texts(train, valid, store.tokenizer, lossless, fingerprint, sources, learnt, notes)


def _fraction(valid: str) -> float | None:
    """How much to split off; None if validation documents are named."""
    try:
        fraction = float(valid)
    except ValueError:
        return None
    if not 0 < fraction < 1:
        raise ValueError(
            f"the fraction for validation must lie between 0 and 1, both excluded: got {fraction}"
        )
    return fraction


def _store(
    data: str, settings: Settings, tokenizer: Tokenizer | None, held_out: float, show: bool
) -> Store:
    """The store that is named, or that of the text that is.

    Raises:
        ValueError: if it cannot be read, or has another tokenizer.
    """
    sources = sources_of(data)
    if not is_store(data):
        if any(is_store(source) for source in sources):
            raise ValueError(
                f"{data} has a token store among other data, which cannot be mixed any more: "
                "prepare all of the text together"
            )
        return cached_store(
            sources,
            tokenizer=tokenizer,
            vocabulary=settings.vocabulary,
            column=settings.column,
            separator=settings.separator,
            held_out=held_out,
            progress=show,
        )
    store = Store.open(Path(data))
    if tokenizer is not None:
        store.check_tokenizer(tokenizer, settings.tokenizer or settings.init or settings.data)
    return store


def joined(sources: Sequence[str]) -> str:
    """Sources as one setting: commas between them, and a backslash before those of a name."""
    return ",".join(source.replace(",", "\\,") for source in sources)


def sources_of(data: str) -> list[str]:
    """The sources that such a setting names."""
    if Path(data).exists():
        return [data]
    return [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", data)]


def store_notes(store: Store) -> list[str]:
    """What the user ought to know about the documents of a store."""
    counts = store.manifest.counts
    notes = []
    if counts.duplicates:
        notes.append(f"{counts.duplicates:,} documents are duplicates of others")
    if counts.broken:
        notes.append(f"{counts.broken:,} broken lines were left out")
    if not store.manifest.lossless:
        notes.append(
            "the tokenizer does not give the text back exactly: figures are of what it does"
        )
    return notes


def _split(
    documents: Documents, fraction: float, settings: Settings
) -> tuple[Documents, Documents]:
    """For training and for validation, by a hash of the text: duplicates fall on one side."""
    if len(documents) == 1:
        if find_method(settings.method).cuts_chunks(**_options(settings)):
            # A book, say: its end is for validation.
            return documents.split_at(round(int(documents.lengths[0]) * (1 - fraction)))
        raise ValueError(
            f"{settings.data} is one document: put '{settings.separator}' between documents, name "
            "validation documents with --valid, or cut it into chunks with --method did-fixed"
        )
    held_out = is_held_out(documents.table["hash"], fraction)
    if held_out.all() or not held_out.any():
        raise ValueError(
            f"splitting {len(documents)} documents at fraction {fraction} leaves none for "
            f"{'training' if held_out.all() else 'validation'}; give more documents or another "
            "fraction"
        )
    return documents.select(~held_out), documents.select(held_out)


def _options(settings: Settings) -> dict[str, Any]:
    """Those of the settings that a method may be concerned with."""
    names = ("given_share", "mistaken_share", "weighting", "fixed_length", "padding", "form")
    return {name: getattr(settings, name) for name in (*names, "objective")}


def _laid_out(
    side: str,
    documents: Documents,
    method: Method,
    settings: Settings,
    longest: int,
    notes: list[str],
) -> tuple[Corpus, int]:
    """The texts to learn from, and how many documents had to be cut for them."""
    cut = 0
    if method.variable_length:
        room = documents.table["prompt"] < longest
        if not room.all():
            notes.append(
                f"{(~room).sum():,} documents were left out: their prompts alone have {longest} "
                "tokens or more"
            )
            documents = documents.select(room)
        cut = int((documents.table["length"] > longest).sum())
        if cut:
            notes.append(f"{cut:,} documents were cut to {longest} tokens")
    try:
        corpus = method.lay_out(documents, settings.max_length)
    except ValueError as error:
        raise ValueError(f"{side} data: {error} (the setting is fixed_length)") from None
    if not corpus.tokens:
        raise ValueError(f"the {side} data have no tokens")
    return corpus, cut
