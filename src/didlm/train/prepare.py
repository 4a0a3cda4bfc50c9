"""From a path to tensors: documents, tokenizer, corpora and method of a training run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from didlm.data import stories
from didlm.data.documents import fixed_chunks, read_documents, split_by_hash
from didlm.data.loader import Corpus
from didlm.data.tokenizer import Tokenizer
from didlm.methods.did import DID
from didlm.train.settings import Settings

EMBEDDED_STORIES = 20_000


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything about the data that a run needs."""

    train: Corpus
    valid: Corpus
    valid_bytes: int  # of the text of the validation documents
    valid_texts: list[str]
    tokenizer: Tokenizer
    method: DID


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
    valid = valid[: settings.valid_documents]
    train_corpus = _corpus(train, tokenizer, settings)
    valid_corpus = _corpus(valid, tokenizer, settings)
    kept = [tokenizer.decode(valid_corpus[number]) for number in range(len(valid_corpus))]
    method = DID(
        bos=tokenizer.bos,
        fixed_length=settings.fixed,
        given_share=settings.given_share,
        weighting=settings.weighting,
    )
    return Prepared(
        train=train_corpus,
        valid=valid_corpus,
        # Cut documents are scored on what is left of them.
        valid_bytes=sum(len(text.encode()) for text in kept),
        valid_texts=valid,
        tokenizer=tokenizer,
        method=method,
    )


def _documents(settings: Settings) -> tuple[list[str], list[str]]:
    if not settings.data:
        return (
            stories.training_stories(EMBEDDED_STORIES, settings.seed),
            stories.validation_stories(settings.valid_documents),
        )
    documents = read_documents(Path(settings.data), settings.separator, settings.column)
    try:
        fraction = float(settings.valid)
    except ValueError:
        return documents, read_documents(Path(settings.valid), settings.separator, settings.column)
    return split_by_hash(documents, fraction)


def _corpus(documents: list[str], tokenizer: Tokenizer, settings: Settings) -> Corpus:
    tokens = tokenizer.encode_batch(documents)
    if settings.fixed:
        return Corpus.of(fixed_chunks(tokens, settings.fixed_length, tokenizer.separator))
    return Corpus.of([np.asarray(document[: settings.max_length]) for document in tokens])
