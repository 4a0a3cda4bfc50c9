"""From a path to tensors: documents, tokenizer, corpora and method of a training run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didlm.data import stories
from didlm.data.documents import read_documents, split_by_hash
from didlm.data.loader import Corpus
from didlm.data.tokenizer import Tokenizer
from didlm.methods.method import Method
from didlm.methods.registry import find_method
from didlm.train.settings import Settings

EMBEDDED_STORIES = 20_000
MEASURED = 1000  # documents of each side that tell whether the tokenizer gives text back exactly


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything about the data that a run needs."""

    train: Corpus
    valid: Corpus
    valid_bytes: int  # of the text of the validation documents
    cut: int  # training documents that were longer than they may be
    tokenizer: Tokenizer
    method: Method
    lossless: bool = True  # whether the tokenizer gives the documents back exactly


def prepare(settings: Settings) -> Prepared:
    """Read, split and tokenize the data.

    Raises:
        ValueError: in one sentence, if the data cannot be used.
    """
    train, valid = _documents(settings)
    if settings.tokenizer:
        tokenizer = Tokenizer.load(Path(settings.tokenizer))
    else:
        tokenizer = Tokenizer.train_bpe(train, settings.vocabulary)
    method = find_method(settings.method).build(tokenizer, **_options(settings))
    train_corpus, cut = _corpus("training", train, tokenizer, method, settings)
    valid_corpus, _ = _corpus("validation", valid, tokenizer, method, settings)
    valid_corpus = valid_corpus.first(settings.valid_documents)
    kept = [valid_corpus[number] for number in range(len(valid_corpus))]
    return Prepared(
        train=train_corpus,
        valid=valid_corpus,
        # Cut documents are scored on what is left of them.
        valid_bytes=sum(tokenizer.count_bytes(text[: method.finish(text)]) for text in kept),
        cut=cut,
        tokenizer=tokenizer,
        method=method,
        lossless=tokenizer.lossless([*train[:MEASURED], *valid[:MEASURED]]),
    )


def _documents(settings: Settings) -> tuple[list[str], list[str]]:
    if not settings.data:
        if settings.valid != Settings.valid:
            raise ValueError("valid goes with data: the embedded stories have a validation set")
        return (
            stories.training_stories(EMBEDDED_STORIES, settings.seed),
            stories.validation_stories(settings.valid_documents),
        )
    documents = read_documents(Path(settings.data), settings.separator, settings.column)
    try:
        fraction = float(settings.valid)
    except ValueError:
        return documents, read_documents(Path(settings.valid), settings.separator, settings.column)
    if len(documents) > 1:
        return split_by_hash(documents, fraction)
    chunks = find_method(settings.method).cuts_chunks(**_options(settings))
    if chunks and 0 < fraction < 1:
        # A book, say: its end is for validation.
        end = round(len(documents[0]) * (1 - fraction))
        return [documents[0][:end]], [documents[0][end:]]
    raise ValueError(
        f"{settings.data} is one document: put '{settings.separator}' between documents, name a "
        "validation file with --valid, or cut it into chunks with --method did-fixed"
    )


def _options(settings: Settings) -> dict[str, Any]:
    """Those of the settings that a method may be concerned with."""
    names = ("given_share", "weighting", "fixed_length", "padding", "form")
    return {name: getattr(settings, name) for name in names}


def _corpus(
    side: str, documents: list[str], tokenizer: Tokenizer, method: Method, settings: Settings
) -> tuple[Corpus, int]:
    """The documents as ids, and how many of them had to be cut."""
    tokens = tokenizer.encode_batch(documents)
    try:
        texts = method.lay_out(tokens, settings.max_length)
    except ValueError as error:
        raise ValueError(f"{side} data: {error} (the setting is fixed_length)") from None
    corpus = Corpus.of(texts)
    if not len(corpus.tokens):
        raise ValueError(f"the {side} data have no tokens")
    longest = method.length or settings.max_length
    cut = sum(len(document) > longest for document in tokens) if method.variable_length else 0
    return corpus, cut
