"""The format on disk, and what is said about a store that is not as it should be."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from didlm.data.tokenizer import Tokenizer
from didlm.store import shards
from didlm.store.format import DOCUMENT, Store, is_store
from didlm.store.prepare import prepare_store

TEXTS = ["One day.", "the dog ran far away and hid", "x", "a b c d e f g h"]
BPE = Tokenizer.train_bpe(TEXTS, 300)


def refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD_TOKENS", 16)
        return prepare_store([str(folder / "a.jsonl")], folder / "store", tokenizer=BPE)


@pytest.fixture
def store(made, tmp_path):
    shutil.copytree(made.folder, tmp_path / "store")
    return Store.open(tmp_path / "store")


def test_a_store_can_be_read_with_numpy_alone(store) -> None:
    manifest = json.loads((store.folder / "manifest.json").read_text())
    found = []
    for shard in manifest["shards"]:
        tokens = np.load(store.folder / shard["tokens"]["name"], mmap_mode="r")
        documents = np.load(store.folder / shard["documents"]["name"])
        assert tokens.dtype == np.uint16
        assert documents.dtype == DOCUMENT
        assert (len(tokens), len(documents)) == (
            shard["tokens"]["items"],
            shard["documents"]["items"],
        )
        found += [tokens[d["start"] : d["start"] + d["length"]].tolist() for d in documents]
    assert len(manifest["shards"]) > 1
    assert found == [ids.tolist() for ids in BPE.encode_batch(TEXTS)]
    names = {file.name for file in store.folder.iterdir()}
    assert {"manifest.json", "tokenizer.json", "00000.tokens.npy", "00000.documents.npy"} < names


def test_the_documents_tell_how_to_read_one(store, monkeypatch) -> None:
    text = (Path(__file__).parents[1] / "docs/data.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = program.replace('json.load(open("manifest.json"))', "manifest")
    ids: list[list[int]] = []
    program += "        found.append(rest.tolist())\n"
    monkeypatch.chdir(store.folder)
    manifest = json.loads(Path("manifest.json").read_text())
    exec(program, {"manifest": manifest, "found": ids})
    assert ids == [ids.tolist() for ids in BPE.encode_batch(TEXTS)]


def test_the_manifest_says_what_is_in_the_store(store) -> None:
    manifest = store.manifest
    lengths = [len(ids) for ids in BPE.encode_batch(TEXTS)]
    assert manifest.counts.documents == 4
    assert manifest.counts.tokens == sum(lengths)
    assert manifest.counts.bytes == sum(map(len, TEXTS))
    assert manifest.lengths.mean == pytest.approx(np.mean(lengths))
    assert manifest.lengths.longest == max(lengths)
    by_power = np.bincount([length.bit_length() - 1 for length in lengths])
    assert manifest.lengths.histogram == by_power.tolist()
    assert manifest.tokenizer == BPE.fingerprint()
    assert manifest.vocabulary == BPE.vocabulary
    assert manifest.options == {
        "column": "text",
        "separator": "<|endoftext|>",
        "held_out": 0.05,
        "skip_broken": False,
        "learnt": False,
    }
    assert manifest.lossless
    written = json.loads((store.folder / "manifest.json").read_text())
    assert written == manifest.to_json()
    assert written["fingerprint"] == manifest.fingerprint


def test_many_ids_take_more_room(tmp_path) -> None:
    words = [f"w{number}" for number in range(70_000)]
    (tmp_path / "vocab.txt").write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", *words]))
    (tmp_path / "a.txt").write_text("w5 w69999")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt")
    store = prepare_store([str(tmp_path / "a.txt")], tmp_path / "s", tokenizer=tokenizer)
    tokens = np.load(store.token_files[0], mmap_mode="r")
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [8, 70_002]


def change(store, **fields):
    path = store.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_newer_format_is_refused(store) -> None:
    change(store, format=2, shards="in a way of the future")
    assert is_store(store.folder)
    with refused("has store format 2, newer than 1, which this didlm reads: upgrade it"):
        Store.open(store.folder)


def test_a_damaged_store_is_refused(store) -> None:
    manifest, folder = (store.folder / "manifest.json").read_bytes(), store.folder
    for content in (b"", manifest[:-30], b"[]", b"{}", b'{"format": "one"}', b"\xff"):
        (folder / "manifest.json").write_bytes(content)
        with refused(f"{folder}/manifest.json is damaged: "):
            Store.open(folder)
    change_to = json.loads(manifest)
    del change_to["counts"]["tokens"]
    (folder / "manifest.json").write_text(json.dumps(change_to))
    with refused("manifest.json is damaged: "):
        Store.open(folder)
    (folder / "manifest.json").write_bytes(manifest)
    BPE.train_bpe(["other", "text"], 270).save(folder)
    with refused("its tokenizer.json is not the one its tokens were made with"):
        Store.open(folder)
    BPE.save(folder)
    (folder / "00001.tokens.npy").write_bytes(b"short")
    with refused("damaged: 00001.tokens.npy has 5 bytes where its manifest says "):
        Store.open(folder)
    (folder / "00001.tokens.npy").unlink()
    with refused(f"{folder} is damaged: it has no 00001.tokens.npy; prepare it again"):
        Store.open(folder)
    shutil.rmtree(folder)
    with refused(f"{folder} is not a token store: it has no manifest.json and tokenizer.json"):
        Store.open(folder)


def test_a_changed_byte_is_found(store) -> None:
    store.verify()
    path = store.folder / "00000.documents.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with refused("damaged: the content of 00000.documents.npy is not what was written"):
        Store.open(store.folder).verify()


def test_another_tokenizer_is_refused(store) -> None:
    store.check_tokenizer(Tokenizer.load(store.folder), "the same")
    other = Tokenizer.train_bpe(["other", "text"], 270)
    with refused(f"{store.folder} was prepared with another tokenizer than other.json: prepare"):
        store.check_tokenizer(other, "other.json")
