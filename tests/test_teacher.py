"""Texts of a teacher begin as real ones do, as often as these, and end by themselves."""

import importlib
import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from didlm.data.tokenizer import Tokenizer
from test_methods import model_for

TEXTS = ["Once upon a time there was a cat."] * 3 + ["One day, the dog ran home."]


@pytest.fixture
def teacher(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module("teacher")
    for name in {"teacher"} - before:
        del sys.modules[name]


def test_texts_begin_as_often_as_real_ones(teacher, tmp_path, monkeypatch) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "texts.jsonl").write_text(lines)
    starts = teacher.beginnings(tmp_path / "texts.jsonl")
    assert starts == {"Once upon a": 3, "One day, the": 1}
    model = model_for("ar", Tokenizer.train_bpe(TEXTS * 9, 270))
    monkeypatch.setattr(teacher, "LONGEST", 40)
    seen, write = [], model.infill_each

    def watched(*arguments, **controls):
        samples = write(*arguments, **controls)
        seen.extend(samples)
        return samples

    monkeypatch.setattr(model, "infill_each", watched)
    texts = list(islice(teacher.written(model, starts, 0.9, 0, 64), 120))
    found = Counter(" ".join(text.split(" ")[:2]) for text in texts)
    often = sum(count for words, count in found.items() if words.startswith("Once"))
    assert {text[:6] for text in texts} == {"Once u", "One da"}
    assert 70 < often < 110  # of 120, three in four
    assert len(set(texts)) > 100
    cut = {sample.text for sample in seen if len(sample.tokens) == 40}
    assert cut
    assert not cut & set(texts)
