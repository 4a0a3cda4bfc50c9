"""Real text made ready for the comparison: one tokenizer for all methods of a setting.

The folder holds everything that runs and figures need, and is small enough to travel.
"""

import json
import lzma
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.files import write_bytes, write_text
from didlm.text.documents import read_documents
from real_text_runs import SETTINGS, ZERO_SHOT, Setting, text_file
from shipped import cleaned

RAW = {"tinystories": "stories", "fables": "stories", "eltec": "novels"}  # folder of each source
SAMPLE = 2**24  # bytes from which a tokenizer is learnt
FACTS = "data.json"
FEW = 16  # texts, of which none is left out


def prepare(raw: Path, out: Path, context: int, vocabulary: int | None) -> dict[str, object]:
    """Write texts, tokenizers and facts into a folder.

    Args:
        raw: the folder with the texts as they are.
        out: the folder to make.
        context: tokens of a chunk.
        vocabulary: of the tokenizers; None for that of each setting.
    """
    facts: dict[str, object] = {"context": context}
    for setting in SETTINGS.values():
        facts[setting.name] = _setting(setting, raw, out, context, vocabulary)
    (out / "eval").mkdir(parents=True, exist_ok=True)
    for name in ZERO_SHOT:
        shutil.copy(raw / "eval" / f"{name}.jsonl.xz", out / "eval")
    write_text(out / FACTS, json.dumps(facts, indent=1) + "\n")
    return facts


def read_facts(data: Path) -> dict[str, Any]:
    """What `prepare` has written about the data.

    Raises:
        ValueError: if there are none.
    """
    try:
        return json.loads((data / FACTS).read_text(encoding="utf-8"))
    except OSError:
        raise ValueError(f"{data} has no {FACTS}: prepare the data first") from None


def validation_sets(setting: Setting, data: Path) -> dict[str, list[str]]:
    """Unseen documents of a setting, by the names of their sources."""
    return {name: read_documents(text_file(data, name, "valid")) for name in setting.validation}


def judged_texts(setting: Setting, data: Path) -> list[str]:
    """Unseen texts such as a model of the setting should write.

    They are chunks, or documents, as many of each kind as the model has learnt from: otherwise even
    a perfect model would have other lengths.
    """
    if setting.chunks:
        files = [text_file(data, name, "valid", chunked=True) for name in setting.validation]
        return [text for file in files for text in read_documents(file)]
    sets, learnt = validation_sets(setting, data), read_facts(data)[setting.name]["of"]
    share = min(len(texts) / learnt[name] for name, texts in sets.items())
    counts = {name: max(1, round(share * learnt[name])) for name in sets}
    return [text for name, texts in sets.items() for text in texts[: counts[name]]]


def excerpt(texts: Sequence[str], size: int) -> list[str]:
    """About so many bytes of them: texts spread evenly, or if they are few the parts they share."""
    sizes = [len(text.encode()) for text in texts]
    share = size / sum(sizes)
    if share >= 1:
        return list(texts)
    if len(texts) < FEW:  # books, or a collection in one text: the same share of each
        return [text[: max(1, int(len(text) * share))] for text in texts]
    places = np.arange(0, len(texts), 1 / share).astype(int)
    return [texts[place] for place in places]


def paragraphs(texts: Sequence[str]) -> list[str]:
    """The same, but a collection in one text falls apart into its lines, without headings."""
    if len(texts) > 1:
        return list(texts)
    lines = [line.strip() for line in texts[0].splitlines()]
    return [line for line in lines if line and not line.startswith("=")]


def make_chunks(data: Path) -> None:
    """Cut what is learnt in chunks into texts for the judge, where that has not been done.

    They would be as large as the texts themselves, so they do not travel but are made where the
    runs are.
    """
    context = read_facts(data)["context"]
    for setting in SETTINGS.values():
        for name in setting.training if setting.chunks else ():
            for side in ("train", "valid"):
                path = text_file(data, name, side, chunked=True)
                if not path.exists():
                    tokenizer = Tokenizer.load(data / setting.name / "tokenizer")
                    texts = read_documents(text_file(data, name, side))
                    write_texts(path, cut_into_chunks(tokenizer, texts, context))


def _setting(
    setting: Setting, raw: Path, out: Path, context: int, vocabulary: int | None
) -> dict[str, object]:
    training: list[str] = []
    counts = {}
    for side, names in (("train", setting.training), ("valid", setting.validation)):
        for name in names:
            path, source = text_file(out, name, side), raw / RAW[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            if RAW[name] == "stories":  # less their marks
                write_texts(path, cleaned(source, f"{name}.{side}"))
            else:
                shutil.copy(source / path.name, path)
            if side == "train":
                texts = read_documents(path)
                counts[name] = len(texts)
                training += texts
    tokenizer = Tokenizer.train_bpe(_sample(training), vocabulary or setting.vocabulary)
    tokenizer.save(out / setting.name / "tokenizer")
    lengths = np.array([len(ids) for ids in tokenizer.encode_batch(training)])
    # As they are learnt from: chunks, or documents cut to the longest length.
    used = context if setting.chunks else float(np.minimum(lengths, context).mean())
    return {
        "documents": len(training),
        "of": counts,
        "bytes": sum(len(text.encode()) for text in training),
        "tokens": int(lengths.sum()),
        "tokens_of_a_text": used,
        "cut": 0 if setting.chunks else int((lengths > context).sum()),
        "vocabulary": tokenizer.vocabulary,
    }


def _sample(texts: Sequence[str]) -> list[str]:
    """Evenly spread texts to learn a tokenizer from."""
    size = sum(len(text) for text in texts)
    return list(islice(texts, 0, None, max(1, round(size / SAMPLE))))


def cut_into_chunks(tokenizer: Tokenizer, texts: Iterable[str], length: int) -> list[str]:
    """Stretches of so many tokens as texts of their own, for a judge of chunks.

    A character of several bytes that a cut divides is left out. The tokens of a stretch that begins
    or ends within a word may be others, and one more or less.
    """
    chunks = []
    for ids in tokenizer.encode_batch(list(texts)):
        for start in range(0, len(ids) - length + 1, length):
            chunks.append(tokenizer.decode(ids[start : start + length]).strip("\ufffd"))
    return chunks


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Write a .jsonl file, compressed if its name says so."""
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(lines).encode()
    write_bytes(path, lzma.compress(content) if path.suffix == ".xz" else content)
