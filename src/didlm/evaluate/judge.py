"""Judges: models that say how likely a text is to them, whoever wrote it."""

import json
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from didlm._inputs import FloatArray, IntArray
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.likelihood import evaluate
from didlm.locate import locate
from didlm.methods.ar import AR
from didlm.pretrained import Model, load


class Judge(Protocol):
    """Anything that knows the likelihood of texts."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        ...

    def nats(self, texts: list[str]) -> tuple[FloatArray, IntArray]:
        """-log p of each text, and how many tokens it has to the judge."""
        ...


class OwnJudge:
    """An autoregressive model of ours: its likelihood is exact, ending the text included."""

    def __init__(self, name: str, model: Model) -> None:
        self.name, self.model = name, model

    def nats(self, texts: list[str]) -> tuple[FloatArray, IntArray]:
        """-log p of each text, cut to the longest that the model has learnt, and its tokens."""
        ids = self.model.tokenizer.encode_batch(texts)
        tokens = np.array([min(len(text), self.model.longest) for text in ids], dtype=np.int64)
        nats = np.zeros(len(texts))
        some = np.flatnonzero(tokens)
        if len(some):
            nats[some] = evaluate(self.model, [texts[number] for number in some]).nats[0]
        return nats, tokens


def find_judge(name: str, tokenizer: Tokenizer | None, device: torch.device | str = "cpu") -> Judge:
    """The judge of a name.

    Args:
        name: an autoregressive model of ours: its folder, shipped name or hub id; or the folder, or
            the name on the Hugging Face hub, of a causal model of the library transformers.
        tokenizer: of the model that is judged. A judge of ours must have the same one; others read
            texts with their own. None while that model is not there yet.
        device: where it is to run.

    Raises:
        ValueError: if there is none, it is damaged, or it cannot judge this model.
    """
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"there is no judge '{name}': the folder has no config.json")
    folder = _own_folder(name)
    if folder is not None:
        return _own_judge(name, folder, tokenizer, device)
    from didlm.evaluate.hub import hub_judge  # the library takes seconds to import

    return hub_judge(name, device)


def _own_folder(name: str) -> Path | None:
    """The folder of a model of ours; None if there is none of that name."""
    try:
        folder = locate(name)
    except ValueError:  # those of transformers have a search and sentences of their own
        return None
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(
            f"there is no judge '{name}': its config.json is damaged: {problem}"
        ) from None
    return folder if isinstance(config, dict) and "format" in config else None


def _own_judge(
    name: str, folder: Path, tokenizer: Tokenizer | None, device: torch.device | str
) -> Judge:
    try:
        model = load(folder, device)
    except ValueError as problem:
        raise ValueError(f"there is no judge '{name}': {problem}") from None
    if model.method.name != AR.name:
        raise ValueError(
            f"the model {name} cannot judge: its method is '{model.method.name}', and only "
            f"'{AR.name}' has an exact likelihood of texts of any length"
        )
    if tokenizer is not None and model.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise ValueError(
            f"the judge {name} has another tokenizer than the model, so that its figures would "
            "count other tokens: train it with --set tokenizer=FOLDER_OF_THE_MODEL"
        )
    return OwnJudge(name, model)
