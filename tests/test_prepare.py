"""Text of every kind goes into a store and comes out as the tokenizer's ids."""

import errno
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import warnings as python_warnings
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as forall
from hypothesis import strategies as st
from pyarrow import parquet

from didlm.data import stories
from didlm.data.tokenizer import Tokenizer
from didlm.store import building, duplicates, learning, prepare, shards
from didlm.store.cache import cached_store
from didlm.store.format import Store
from didlm.store.prepare import prepare_store
from didlm.text import opening, reading
from didlm.text.documents import read_documents
from didlm.text.hashing import document_hash, is_held_out
from didlm.text.sources import find_sources

SEPARATOR = "<|endoftext|>"
STORIES = stories.training_stories(300, 0)
BPE = Tokenizer.train_bpe(STORIES, 400)
SOME = ["One day.", "The dog ran.\n\nIt hid.", "é 漢 🙂 tail ", "x"]
# Everything that pre-tokenization treats in its own way, and every kind of whitespace.
AWKWARD = st.text("ab1 '.é漢🙂\n\r\t\v\f\u00a0\u2003\u2028\u3000\x1c<|", max_size=30)


def refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def ids_in(store: Store) -> list[list[int]]:
    tokens = [np.load(file, mmap_mode="r") for file in store.token_files]
    return [
        tokens[d["shard"]][d["start"] : d["start"] + d["length"]].tolist()
        for d in store.documents()
    ]


def ids_of(texts, tokenizer=BPE) -> list[list[int]]:
    return [ids.tolist() for ids in tokenizer.encode_batch(texts)]


def write_jsonl(path: Path, texts, column="text") -> Path:
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts))
    return path


def zstd(content: bytes) -> bytes:
    return pyarrow.compress(content, "zstd", asbytes=True)


COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


def write(path: Path, texts) -> Path:
    """Write texts in the format that the name of a file says."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"id": range(len(texts)), "text": texts}), path)
        return path
    if ".jsonl" in path.name:
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    else:
        content = SEPARATOR.join(texts)
    compress = COMPRESS[path.suffix if path.suffix in COMPRESS else ""]
    path.write_bytes(compress(content.encode()))
    return path


FORMATS = [kind + ending for kind in (".txt", ".jsonl") for ending in COMPRESS] + [".parquet"]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_tokenizers_ids(tmp_path, ending) -> None:
    path = write(tmp_path / f"a{ending}", SOME)
    store = prepare_store([str(path)], tmp_path / "store", tokenizer=BPE)
    assert ids_in(store) == ids_of(SOME)
    assert store.documents()["hash"].tolist() == [document_hash(text) for text in SOME]
    counts = store.manifest.counts
    assert (counts.documents, counts.empty, counts.inexact) == (4, 0, 0)
    assert counts.bytes == sum(len(text.encode()) for text in SOME)
    assert counts.tokens == sum(map(len, ids_of(SOME)))
    assert read_documents(path) == SOME


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@forall(st.lists(AWKWARD, min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 40))
def test_blocks_of_any_size_give_the_same_store(tmp_path_factory, texts, block, chunk) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    texts = [*texts, "end"]
    apart = [text.strip("\r\n") for text in SEPARATOR.join(texts).split(SEPARATOR)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        patch.setattr(opening, "CHUNK", chunk)
        patch.setattr(shards, "SHARD_TOKENS", 16)
        for ending, expected in ((".txt", apart), (".jsonl", texts), (".parquet", texts)):
            path = write(folder / f"a{ending}", texts)
            expected = [text for text in expected if text.strip()]
            store = prepare_store([str(path)], folder / f"s{ending}", tokenizer=BPE)
            assert ids_in(store) == ids_of(expected)
            assert store.documents()["hash"].tolist() == [document_hash(t) for t in expected]
            assert store.manifest.counts.bytes == sum(len(t.encode()) for t in expected)
            assert store.manifest.lossless
            assert read_documents(path) == expected
            store.verify()


def test_a_separator_that_overlaps_itself_is_read_from_the_left(tmp_path, monkeypatch) -> None:
    text = "a---b-----c--d-e"
    (tmp_path / "a.txt").write_text(text)
    for block in range(1, 20):
        monkeypatch.setattr(reading, "BLOCK", block)
        monkeypatch.setattr(opening, "CHUNK", 2)
        assert read_documents(tmp_path / "a.txt", separator="--") == [
            document for document in text.split("--") if document
        ]


BERT_WORDS = ["the", "dog", "ran", "##n", "##y", "fun", ".", "'", "é", "e"]


@pytest.fixture
def bert(tmp_path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *BERT_WORDS])
    )
    return Tokenizer.load(tmp_path / "vocab.txt")


def test_a_document_longer_than_a_block_has_the_tokens_of_the_whole(
    tmp_path, bert, monkeypatch
) -> None:
    text = "The dog's  \n\n funny\u00a0 \tdog ran.\u2003 'Fun'...\r\n\r\n Été 漢 \u3000dog" * 40
    (tmp_path / "a.txt").write_bytes(f"\n\n{text}\r\n".encode())
    monkeypatch.setattr(opening, "CHUNK", 7)
    for number, block in enumerate((20, 64, 500)):
        monkeypatch.setattr(reading, "BLOCK", block)
        for tokenizer in (BPE, bert):
            out = tmp_path / f"{number}{tokenizer.vocabulary}"
            store = prepare_store([str(tmp_path / "a.txt")], out, tokenizer=tokenizer)
            assert ids_in(store) == ids_of([text], tokenizer)
            assert store.manifest.counts.documents == 1
            assert store.manifest.lossless == (tokenizer is BPE)


def test_text_without_any_whitespace_is_cut_in_the_end(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(opening, "CHUNK", 7)
    monkeypatch.setattr(reading, "BLOCK", 10)
    monkeypatch.setattr(reading, "LONGEST_WORD", 40)
    text = "漢é🙂" * 50
    (tmp_path / "a.txt").write_text(text)
    for separator in (SEPARATOR, "|"):
        assert read_documents(tmp_path / "a.txt", separator) == [text]


def test_a_lossy_tokenizer_is_found_out(tmp_path, bert) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["the dog ran.", "The DOG ran", "the dog", "\x00\x01"])
    said: list[str] = []
    store = prepare_store([str(path)], tmp_path / "store", tokenizer=bert, say=said.append)
    assert ids_in(store) == ids_of(["the dog ran.", "The DOG ran", "the dog"], bert)
    assert not store.manifest.lossless
    assert store.manifest.counts.inexact == 1
    assert store.manifest.counts.empty == 1  # nothing is left of control characters
    assert said == [
        "empty documents left out: 1",
        "documents that the tokenizer does not give back exactly, so that bits per byte will be of "
        "normalised text: 1 of 3",
    ]
    assert json.loads((tmp_path / "store/manifest.json").read_text())["lossless"] is False


@pytest.fixture(scope="module")
def much(tmp_path_factory) -> Path:
    """Documents shorter and longer than a block."""
    folder = tmp_path_factory.mktemp("much")
    write_jsonl(folder / "a.jsonl", [*(s + str(n) for n in range(3) for s in STORIES), " "])
    (folder / "b.txt").write_text(" ".join(STORIES))
    return folder


def test_the_store_does_not_depend_on_the_workers(much, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shards, "SHARD_TOKENS", 1 << 16)
    monkeypatch.setattr(opening, "CHUNK", 1 << 14)
    monkeypatch.setattr(reading, "BLOCK", 1 << 14)
    stores = [
        prepare_store([str(much)], tmp_path / str(n), vocabulary=300, workers=n) for n in (0, 1, 2)
    ]
    assert len(stores[0].token_files) > 2
    assert stores[0].manifest.counts.documents == 901
    for store in stores:
        assert store.manifest.fingerprint == stores[0].manifest.fingerprint
        assert store.manifest.counts == stores[0].manifest.counts
        assert store.manifest.lengths == stores[0].manifest.lengths
        assert store.manifest.sources == stores[0].manifest.sources


def test_workers_say_what_is_broken_first(much, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(opening, "CHUNK", 1 << 16)
    content = (much / "a.jsonl").read_bytes()
    whole = gzip.compress(content + b"\nbroken\n" + content)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-20])
    with refused("line 903 of"):  # though what reads ahead has seen the damage to the file
        prepare_store([str(tmp_path / "a.jsonl.gz")], tmp_path / "s", tokenizer=BPE, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl.gz"]


def test_workers_do_without_torch() -> None:
    program = "import sys, didlm.store.encoding; print({'torch', 'numba'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "set()\n"


def test_as_many_workers_as_there_is_text_for(tmp_path, monkeypatch) -> None:
    """Compressed text is more than its file: it is what workers have to read that counts."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for name, expected in (("a.jsonl", 3), ("a.jsonl.xz", 8), ("b.txt", 0), ("b.txt.gz", 5)):
        size = (3 if name.startswith("a") else 1.4) * 2**22
        (tmp_path / name).write_bytes(b"a" * int(size))
        assert prepare._workers(find_sources([str(tmp_path / name)])) == expected


def test_empty_documents_and_duplicates_are_counted(tmp_path) -> None:
    write(tmp_path / "a.txt", ["\n", "one", "two", " \n", "one", "\n"])
    write_jsonl(tmp_path / "b.jsonl", ["one", "", "three"])
    said: list[str] = []
    store = prepare_store([str(tmp_path)], tmp_path / "s", tokenizer=BPE, say=said.append)
    counts = store.manifest.counts
    # Whitespace at either end of a file is no document.
    assert (counts.documents, counts.empty, counts.duplicates) == (5, 2, 2)
    assert said == [
        "empty documents left out: 2",
        "documents with the same text as an earlier one, which are kept: 2 of 5",
    ]


@forall(st.lists(st.integers(0, 30)), st.integers(1, 7))
def test_duplicates_are_counted_in_any_number_of_passes(tmp_path_factory, numbers, at_once) -> None:
    folder = tmp_path_factory.mktemp("tables")
    spread = [number * (2**64 - 1) // 30 for number in numbers]
    rows = np.zeros(len(spread), shards.DOCUMENT)
    rows["hash"] = spread
    parts = [part for part in np.array_split(rows, 3) if len(part)]
    for name, part in enumerate(parts):
        np.save(folder / f"{name}.npy", part)
    tables = [folder / f"{name}.npy" for name in range(len(parts))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "AT_ONCE", at_once)
        patch.setattr(duplicates, "_ROWS", 2)
        found = duplicates.count_duplicates(tables, len(spread))
    assert found == len(spread) - len(set(spread))


def test_sources_have_their_weights_and_counts(tmp_path) -> None:
    one = write_jsonl(tmp_path / "a.jsonl", ["one"])
    two = write_jsonl(tmp_path / "b.jsonl", ["two", "three"])
    store = prepare_store([f"{one}:2", str(two)], tmp_path / "s", tokenizer=BPE)
    assert store.documents()["source"].tolist() == [0, 1, 1]
    assert [(s.name, s.weight, s.documents, s.bytes) for s in store.manifest.sources] == [
        (str(one), 2.0, 1, 3),
        (str(two), 1.0, 2, 8),
    ]
    same = prepare_store([f"{one}:3", str(two)], tmp_path / "t", tokenizer=BPE)
    assert same.manifest.fingerprint != store.manifest.fingerprint


def test_a_prompt_and_a_response_are_tokenized_apart(tmp_path) -> None:
    pairs = [("Who ran?", " The dog."), ("", "x"), ("ignored", " \n"), ("The d", "og ran")]
    records = [{"q": prompt, "a": answer, "id": 3} for prompt, answer in pairs]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "b.parquet")
    kept = [pair for pair in pairs if pair[1].strip()]
    for name in ("a.jsonl", "b.parquet"):
        out = tmp_path / f"s{name}"
        store = prepare_store([str(tmp_path / name)], out, tokenizer=BPE, column="q+a")
        assert ids_in(store) == [ids_of([q])[0] + ids_of([a])[0] for q, a in kept]
        assert store.documents()["prompt"].tolist() == [len(ids_of([q])[0]) for q, _ in kept]
        assert store.documents()["hash"].tolist() == [document_hash(q + a) for q, a in kept]
        assert store.manifest.counts.empty == 1
        assert store.manifest.lossless
    (tmp_path / "c.txt").write_text("x")
    with refused("c.txt is plain text and has no columns; 'q+a' is for .jsonl and .parquet"):
        prepare_store([str(tmp_path / "c.txt")], tmp_path / "s", tokenizer=BPE, column="q+a")
    for column in ("", "a+", "a+b+c"):
        with refused(f"one name, or two as in 'prompt+response': got '{column}'"):
            prepare_store([str(tmp_path / "c.txt")], tmp_path / "s", column=column)


BROKEN = ['{"text": "cut', "[1]", '{"id": 1}', '{"text": null}', '{"text": "\\ud800"}']


@pytest.mark.parametrize("line", [line.encode() for line in BROKEN] + [b'{"text": "\xff"}'])
def test_a_broken_line_stops_or_is_left_out(tmp_path, line, monkeypatch) -> None:
    monkeypatch.setattr(opening, "CHUNK", 20)
    path = tmp_path / "a.jsonl"
    good = [json.dumps({"text": text}).encode() for text in SOME]
    path.write_bytes(b"\n".join([*good[:2], b"", line, *good[2:], line]))
    with refused("byte 68 is 0xff" if b"\xff" in line else f"line 4 of {path} "):
        prepare_store([str(path)], tmp_path / "s")
    assert list(tmp_path.iterdir()) == [path]
    said: list[str] = []
    store = prepare_store(
        [str(path)], tmp_path / "s", tokenizer=BPE, skip_broken=True, say=said.append
    )
    assert ids_in(store) == ids_of(SOME)
    assert store.manifest.counts.broken == 2
    assert said[0].startswith("broken lines or rows left out: 2; the first: ")


def test_parquet_files_that_hold_no_text_are_refused(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"body": ["a"], "id": [1]}), path)
    with refused(f"{path} has no column 'text'; the columns there are: 'body', 'id'"):
        prepare_store([str(path)], tmp_path / "s", tokenizer=BPE)
    with refused(f"row 1 of {path} has a number in column 'id'; it must be a string"):
        prepare_store([str(path)], tmp_path / "s", tokenizer=BPE, column="id")
    parquet.write_table(pyarrow.table({"text": ["a", None, "b"]}), path, row_group_size=1)
    with refused(f"row 2 of {path} has null in column 'text'"):
        prepare_store([str(path)], tmp_path / "s", tokenizer=BPE)
    store = prepare_store([str(path)], tmp_path / "s", tokenizer=BPE, skip_broken=True)
    assert ids_in(store) == ids_of(["a", "b"])
    for content in (b"no parquet at all", path.read_bytes()[:-9]):
        (tmp_path / "b.parquet").write_bytes(content)
        with refused("b.parquet is damaged or no .parquet file: "):
            prepare_store([str(tmp_path / "b.parquet")], tmp_path / "t", tokenizer=BPE)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b" \n", "a.txt: there are no documents, for all of the text is whitespace"),
        ("a.txt", b"One \xff", "a.txt is not UTF-8: byte 4 is 0xff, counted from 0; convert"),
        ("a.txt.gz", b"plain", "a.txt.gz is damaged or no .gz file, and cannot be decompressed"),
        ("a.jsonl.zst", b"plain", "a.jsonl.zst is damaged or no .zst file"),
        ("a.txt", b"", "a.txt is empty"),
    ],
)
def test_files_that_cannot_be_read_leave_nothing_behind(tmp_path, name, content, sentence) -> None:
    (tmp_path / name).write_bytes(content)
    for tokenizer in (BPE, None):
        with refused(sentence):
            prepare_store([str(tmp_path / name)], tmp_path / "s", tokenizer=tokenizer)
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_place_must_be_free_and_leftovers_go(tmp_path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", SOME)
    out = tmp_path / "new" / "store"
    out.parent.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    prefix = building._prefix(out)
    for number in (ended.pid, os.getppid()):
        (out.parent / f"{prefix}{number}").mkdir()
    prepare_store([str(path)], out, tokenizer=BPE)
    left = {file.name for file in out.parent.iterdir()}
    assert left == {"store", f"{prefix}{os.getppid()}"}  # that one may be at work
    with refused(f"{out} is there already: remove it, or choose another place"):
        prepare_store([str(path)], out, tokenizer=BPE)
    with refused(f"cannot write {path / 'store'}: "):
        prepare_store([str(path)], path / "store", tokenizer=BPE)


def test_a_full_disk_and_ctrl_c_leave_nothing_behind(tmp_path, monkeypatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", SOME)

    def fail(error):
        def append(self, values):
            raise error

        return append

    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(shards._ArrayWriter, "append", fail(full))
    with refused(f"the disk is full: there is no room for {tmp_path / 's'}; make some"):
        prepare_store([str(path)], tmp_path / "s", tokenizer=BPE)
    monkeypatch.setattr(shards._ArrayWriter, "append", fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        prepare_store([str(path)], tmp_path / "s", tokenizer=BPE)
    assert list(tmp_path.iterdir()) == [path]


def test_impossible_options_are_refused(tmp_path) -> None:
    path = str(write_jsonl(tmp_path / "a.jsonl", SOME))
    with refused("the share held out must be at least 0 and below 1: got 1"):
        prepare_store([path], tmp_path / "s", held_out=1)
    with refused("there cannot be -1 workers"):
        prepare_store([path], tmp_path / "s", workers=-1)
    with refused("the separator between documents is empty"):
        prepare_store([path], tmp_path / "s", separator="")
    with refused("a vocabulary of 10 is too small"):
        prepare_store([path], tmp_path / "s", vocabulary=10)


def test_a_tokenizer_is_learnt_from_what_is_not_held_out(tmp_path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", STORIES)
    store = prepare_store([str(path)], tmp_path / "s", vocabulary=350, held_out=0.3)
    hashes = np.array([document_hash(story) for story in STORIES], np.uint64)
    train = [s for s, out in zip(STORIES, is_held_out(hashes, 0.3), strict=True) if not out]
    assert store.tokenizer.fingerprint() == Tokenizer.train_bpe(train, 350).fingerprint()
    held_out = is_held_out(store.documents()["hash"], 0.3)
    assert ids_in(store)[: len(STORIES)] == ids_of(STORIES, store.tokenizer)
    assert [s for s, out in zip(STORIES, held_out, strict=True) if not out] == train


def test_the_end_of_a_single_document_is_held_out(tmp_path) -> None:
    book = " ".join(STORIES)
    (tmp_path / "a.txt").write_text(book)
    store = prepare_store([str(tmp_path / "a.txt")], tmp_path / "s", vocabulary=350)
    beginning = book[: round(len(book) * 0.95)]
    assert store.tokenizer.fingerprint() == Tokenizer.train_bpe([beginning], 350).fingerprint()


def test_a_tokenizer_is_learnt_from_a_sample_of_all_files(tmp_path, monkeypatch) -> None:
    for number in range(10):
        write_jsonl(tmp_path / f"{number}.jsonl", [f"{number} {s}" for s in STORIES[:100]])
    monkeypatch.setattr(opening, "CHUNK", 2000)
    monkeypatch.setattr(learning, "SAMPLE", 40_000)
    seen: list[str] = []
    train = Tokenizer.train_bpe
    monkeypatch.setattr(Tokenizer, "train_bpe", lambda t, v: seen.extend(t) or train(t, v))
    prepare_store([str(tmp_path)], tmp_path / "s", vocabulary=300, held_out=0)
    assert 38_000 < sum(map(len, seen)) < 42_000
    shares = [sum(text.startswith(f"{number} ") for text in seen) for number in range(10)]
    assert min(shares) > 0.5 * max(shares)


def test_a_dataset_is_streamed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")  # the library's own
        pytest.importorskip("datasets")
    folder = tmp_path / "data"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", SOME)
    write_jsonl(folder / "test.jsonl", ["unseen"])
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")
        store = prepare_store([f"hf:{folder}:2"], tmp_path / "s", tokenizer=BPE, workers=0)
        assert ids_in(store) == ids_of(SOME)
        assert store.manifest.sources[0].weight == 2
        store = prepare_store([f"hf:{folder}#test"], tmp_path / "t", vocabulary=300, workers=0)
        assert store.manifest.counts.documents == 1
        with refused(f"row 1 of hf:{folder} has no column 'body'; the columns there are: 'text'"):
            prepare_store([f"hf:{folder}"], tmp_path / "u", tokenizer=BPE, column="body", workers=0)
        with refused(f"cannot read hf:{folder}#nosuch: "):
            prepare_store([f"hf:{folder}#nosuch"], tmp_path / "u", tokenizer=BPE, workers=0)


def test_without_the_extra_a_dataset_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused("hf:a/b needs the datasets library: pip install 'didlm[datasets]'"):
        prepare_store(["hf:a/b"], tmp_path / "s", tokenizer=BPE, workers=0)


def test_raw_text_is_prepared_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DIDLM_CACHE", str(tmp_path / "cache"))
    path = write_jsonl(tmp_path / "my texts.jsonl", SOME)
    monkeypatch.chdir(tmp_path)
    first = cached_store([str(path)], tokenizer=BPE)
    assert first.folder.parent == tmp_path / "cache"
    assert first.folder.name.startswith("my-texts-")
    made = first.folder.stat().st_ino
    assert cached_store([path.name], tokenizer=BPE).folder.stat().st_ino == made
    others = [
        cached_store([str(path)], vocabulary=300),
        cached_store([str(path)], vocabulary=300, held_out=0.2),
        cached_store([f"{path}:2"], tokenizer=BPE),
        cached_store([str(path)], tokenizer=BPE, separator="%"),
    ]
    assert len({store.folder for store in [first, *others]}) == 5
    os.truncate(first.token_files[0], 200)
    again = cached_store([str(path)], tokenizer=BPE)
    assert again.folder == first.folder
    again.verify()
    write_jsonl(path, [*SOME, "more"])
    assert cached_store([str(path)], tokenizer=BPE).manifest.counts.documents == 5


def test_the_cache_is_where_the_user_wants_it(tmp_path, monkeypatch) -> None:
    from didlm.store.cache import cache_folder

    monkeypatch.delenv("DIDLM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "didlm" / "stores"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "didlm" / "stores"


def test_progress_is_lines_or_a_bar(tmp_path, monkeypatch, capsys) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", STORIES)
    monkeypatch.setattr(opening, "CHUNK", 10_000)
    prepare_store([str(path)], tmp_path / "s", tokenizer=BPE)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("didlm.store.progress.PLAIN_EVERY", 0)
    monkeypatch.setattr("didlm.store.progress.WORTH_A_LINE", 0)
    prepare_store([str(path)], tmp_path / "t", vocabulary=300, progress=True)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "learning a tokenizer of 300 ids"
    assert re.fullmatch(r"0 of 0 MB read: \d+ documents, [\d,]+ tokens, [\d.]+ MB/s", said[1])
    monkeypatch.setenv("FORCE_COLOR", "1")
    prepare_store([str(path)], tmp_path / "u", tokenizer=BPE, progress=True)
    assert "looking for duplicates" in capsys.readouterr().err
