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
from didlm.files import write_text
from didlm.text.documents import read_documents
from real_text_runs import SETTINGS, ZERO_SHOT, Setting, text_file
from shipped import cleaned

RAW = {"tinystories": "stories", "fables": "stories", "eltec": "novels"}  # folder of each source
SAMPLE = 2**25  # bytes from which a tokenizer is learnt
FACTS = "data.json"


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


def excerpt(texts: Sequence[str], size: int) -> list[str]:
    """About so many bytes of them: texts spread evenly, or if they are few the parts they share."""
    sizes = [len(text.encode()) for text in texts]
    share = size / sum(sizes)
    if share >= 1:
        return list(texts)
    if max(sizes) > size / 4:  # few long ones: the same share of each
        return [text[: max(1, int(len(text) * share))] for text in texts]
    places = np.arange(0, len(texts), 1 / share).astype(int)
    return [texts[place] for place in places]


def paragraphs(texts: Sequence[str]) -> list[str]:
    """The same, but a collection in one text falls apart into its lines, without headings."""
    if len(texts) > 1:
        return list(texts)
    lines = [line.strip() for line in texts[0].splitlines()]
    return [line for line in lines if line and not line.startswith("=")]


def _setting(
    setting: Setting, raw: Path, out: Path, context: int, vocabulary: int | None
) -> dict[str, float]:
    texts = {
        (name, side): _read(raw / RAW[name], f"{name}.{side}")
        for side in ("train", "valid")
        for name in (setting.training if side == "train" else setting.validation)
    }
    for (name, side), some in texts.items():
        write_texts(text_file(out, name, side), some)
    training = [text for (_, side), some in texts.items() if side == "train" for text in some]
    tokenizer = Tokenizer.train_bpe(_sample(training), vocabulary or setting.vocabulary)
    tokenizer.save(out / setting.name / "tokenizer")
    if setting.chunks:
        for (name, side), some in texts.items():
            path = text_file(out, name, side, chunked=True)
            write_texts(path, cut_into_chunks(tokenizer, some, context))
    lengths = [len(ids) for ids in tokenizer.encode_batch(training)]
    return {
        "documents": len(training),
        "bytes": sum(len(text.encode()) for text in training),
        "tokens": sum(lengths),
        # As they are learnt from: chunks, or documents cut to the longest length.
        "tokens_of_a_text": context
        if setting.chunks
        else float(np.minimum(lengths, context).mean()),
        "cut": 0 if setting.chunks else sum(length > context for length in lengths),
        "vocabulary": tokenizer.vocabulary,
    }


def _read(folder: Path, name: str) -> list[str]:
    """Stories without marks; novels as they are."""
    if folder.name == "stories":
        return cleaned(folder, name)
    return read_documents(folder / f"{name}.jsonl.xz")


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
    """Write a compressed .jsonl file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
