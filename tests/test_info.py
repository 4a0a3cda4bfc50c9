import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.info import describe, in_words
from didlm.methods.did import DID
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.pretrained import Model
from didlm.store.prepare import prepare_store

BPE = Tokenizer.train_bpe(["One day.", "two"], 270)


def refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


@pytest.fixture
def store(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "One day."}\n{"text": "xyzzy"}\n{"text": "x"}\n')
    return prepare_store([f"{tmp_path / 'a.jsonl'}:2"], tmp_path / "store", tokenizer=BPE)


def test_a_store_is_described(store, tmp_path) -> None:
    about = describe(store.folder)
    assert about["store"] == store.manifest.to_json() | {"verified": False}
    assert json.loads(json.dumps(about)) == about
    words = in_words(about)
    assert words.startswith(f"{store.folder} is a token store\n")
    assert re.search(r"documents +3\n", words)
    assert f"{tmp_path / 'a.jsonl'}: weight 2, 3 documents" in words
    assert re.search(r" 1  █+ +1\n", words)
    assert "every file is as it was written" in in_words(describe(store.folder, verify=True))


def test_a_damaged_store_is_found_by_verifying(store) -> None:
    content = bytearray(store.token_files[0].read_bytes())
    content[-1] ^= 1
    store.token_files[0].write_bytes(content)
    describe(store.folder)
    with refused("the content of 00000.tokens.npy is not what was written"):
        describe(store.folder, verify=True)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    torch.manual_seed(0)
    config = ModelConfig(BPE.vocabulary, 1, 16, 2, 16, condition=8)
    model = Model(Network(config), BPE, DID(BPE.bos), longest=77)
    model.save_pretrained(folder)
    settings = {"method": "did", "preset": "tiny", "data": "a.txt", "steps": 50}
    data = {"training_documents": 1000, "training_tokens": 5000}
    (folder / "run.json").write_text(
        json.dumps({"started": "now", "command": "didlm", "settings": settings, "data": data})
    )
    lines = [{"step": 10, "loss": 3.0}, {"step": 10, "nats_per_document": 12.5}, {"step": 20}]
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 3'  # a line that was cut off
    (folder / "metrics.jsonl").write_text(text)
    for step in (10, 20):
        (folder / "checkpoints" / f"step-{step:08}").mkdir(parents=True)
    return folder, model


def test_a_run_is_also_a_model(run) -> None:
    folder, model = run
    about = describe(folder)
    assert about["run"]["step"] == 20
    assert about["run"]["validation"] == {"step": 10, "nats_per_document": 12.5}
    assert about["run"]["checkpoints"] == ["step-00000010", "step-00000020"]
    assert about["model"]["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert about["model"]["vocabulary"] == BPE.vocabulary
    assert about["model"]["longest"] == 77
    words = in_words(about)
    assert "is a training run" in words
    assert "is a model" in words
    assert "20 of 50" in words
    assert "12.500 nats per document at step 10" in words
    assert re.search("suggests +nothing", words)
    with refused("only a token store can be verified"):
        describe(folder, verify=True)


def test_a_model_is_also_known_by_its_shipped_name() -> None:
    result = CliRunner().invoke(app, ["info", "stories"])
    assert result.exit_code == 0, result.output
    assert re.search(r"suggests +top_p 0\.8, rate_scale 1\.08, repeats False\n", result.output)


def test_what_is_none_of_them_is_refused(run, tmp_path) -> None:
    folder, _ = run
    file = tmp_path / "file.txt"
    file.write_text("x")
    nowhere = tmp_path / "nowhere"
    for path, reason in ((tmp_path, "has none of their files"), (nowhere, "is not there"),
                         (file, "is a file")):  # fmt: skip
        with refused(f"{path} is not a token store, a run or a model: it {reason}"):
            describe(path)
    whole = (folder / "config.json").read_text()
    (folder / "config.json").write_text(json.dumps(json.loads(whole) | {"defaults": [0.5]}))
    with refused("config.json is damaged: it is not a JSON object"):
        describe(folder)
    (folder / "config.json").write_text(whole)
    (folder / "run.json").write_text("[]")
    with refused("run.json is damaged: it is not a JSON object"):
        describe(folder)
    (folder / "run.json").unlink()
    (folder / "model.safetensors").write_bytes(b"short")
    with refused("model.safetensors is damaged: it has no readable header"):
        describe(folder)
    (folder / "config.json").write_text('{"architectures": []}')
    with refused("has a config.json, but it is not that of a didlm model"):
        describe(folder)


def test_a_misspelt_shipped_name_is_guessed() -> None:
    with refused("storys is not a token store, a run or a model: it is not there: did you mean"):
        describe(Path("storys"))
