"""From a path to tensors: documents, tokenizer, corpora and method of a training run."""

from dataclasses import dataclass
from pathlib import Path

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
    cut: int  # training documents that were longer than they may be
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
    train_corpus, cut = _corpus("training", train, tokenizer, settings)
    valid_corpus, _ = _corpus("validation", valid, tokenizer, settings)
    valid_corpus = valid_corpus.first(settings.valid_documents)
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
        cut=cut,
        tokenizer=tokenizer,
        method=method,
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
    if settings.fixed and 0 < fraction < 1:
        # A book, say: its end is for validation.
        end = round(len(documents[0]) * (1 - fraction))
        return [documents[0][:end]], [documents[0][end:]]
    raise ValueError(
        f"{settings.data} is one document: put '{settings.separator}' between documents, name a "
        "validation file with --valid, or cut it into chunks with --method did-fixed"
    )


def _corpus(
    side: str, documents: list[str], tokenizer: Tokenizer, settings: Settings
) -> tuple[Corpus, int]:
    """The documents as ids, and how many of them had to be cut."""
    tokens = tokenizer.encode_batch(documents)
    if settings.fixed:
        try:
            chunks = fixed_chunks(tokens, settings.fixed_length, tokenizer.separator)
        except ValueError as error:
            raise ValueError(f"{side} data: {error} (the setting is fixed_length)") from None
        return Corpus.of(chunks), 0
    corpus = Corpus.of([document[: settings.max_length] for document in tokens])
    if not len(corpus.tokens):
        raise ValueError(f"the {side} data have no tokens")
    return corpus, sum(len(document) > settings.max_length for document in tokens)
