import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from didlm.text.blocks import parse
from didlm.text.datasets import dataset_blocks
from didlm.text.records import Format
from didlm.text.sources import CONVERTED, Dataset, find_sources


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.jsonl", "deep/c.txt.gz", "deep/d.PARQUET", "notes.md", ".x/e.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path


def names(source):
    return [str(file) for file in source.files]


def refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def test_a_file_a_folder_and_a_glob_are_sources(texts) -> None:
    file, folder, flat, deep = find_sources(["b.txt", ".", "*.[jt]*", "**/*.gz"])
    assert names(file) == ["b.txt"]
    assert names(folder) == ["a.jsonl", "b.txt", "deep/c.txt.gz", "deep/d.PARQUET"]
    assert names(flat) == ["a.jsonl", "b.txt"]
    assert names(deep) == ["deep/c.txt.gz"]
    assert {source.weight for source in (file, folder, flat, deep)} == {1.0}


def test_a_weight_stands_behind_a_colon(texts) -> None:
    sources = find_sources(["b.txt:2", "deep:0.5", "*.txt:3e-1", "hf:o/n:4"])
    assert [source.weight for source in sources] == [2, 0.5, 0.3, 4]
    assert [source.name for source in sources] == ["b.txt", "deep", "*.txt", "hf:o/n"]


def test_a_path_that_is_there_as_it_is_written_wins(texts) -> None:
    (texts / "c:2").mkdir()
    (texts / "c:2" / "f.txt").write_text("x")
    (texts / "[g].txt").write_text("x")
    (source, other) = find_sources(["c:2", "[g].txt"])
    assert (source.name, source.weight, names(source)) == ("c:2", 1, ["c:2/f.txt"])
    assert names(other) == ["[g].txt"]


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "nan"])
def test_weights_must_be_positive_numbers(texts, weight) -> None:
    with refused(f"the weight of b.txt must be a positive number: got {weight}"):
        find_sources([f"b.txt:{weight}"])


def test_datasets_have_a_config_and_a_split() -> None:
    plain, full = find_sources(["hf:owner/name", "hf:owner/name@en#test:2"])
    assert plain.dataset == Dataset("owner/name", None, "train")
    assert full.dataset == Dataset("owner/name", "en", "test")
    assert full.weight == 2
    with refused("'hf:@en' names no dataset; write hf:OWNER/NAME"):
        find_sources(["hf:@en"])


def test_datasets_may_have_a_revision() -> None:
    converted, tagged = find_sources(["hf:o/n@en~refs/convert/parquet#test:2", "hf:o/n~v1.0"])
    assert converted.dataset == Dataset("o/n", "en", "test", CONVERTED)
    assert converted.weight == 2
    assert tagged.dataset == Dataset("o/n", None, "train", "v1.0")
    with refused("'hf:o/n~#test' names no revision behind its ~; write one, such as refs/convert"):
        find_sources(["hf:o/n~#test"])


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hf:o/n", {"name": None, "split": "train", "revision": None}),
        ("hf:o/n@en~v1#test", {"name": "en", "split": "test", "revision": "v1"}),
        (f"hf:o/n@en~{CONVERTED}", {"data_dir": "en", "split": "train", "revision": CONVERTED}),
    ],
)
def test_a_dataset_is_asked_for_as_it_is_named(name, asked, monkeypatch) -> None:
    calls = []

    def load(path: str, streaming: bool, **options: object) -> list[dict]:
        calls.append((path, streaming, options))
        return [{"text": "a cat"}]

    monkeypatch.setattr("datasets.load_dataset", load)
    assert texts_of(name, "text") == ["a cat"]
    assert calls == [("o/n", True, asked)]


def test_configs_are_folders_where_the_hub_keeps_what_it_has_converted(tmp_path) -> None:
    """Read by the library itself; asked for by its name, a config is not found there."""
    for config in ("arxiv", "pubmed"):
        for split in ("train", "test"):
            folder = tmp_path / "papers" / config / split
            folder.mkdir(parents=True)
            table = pa.table({"abstract": [f"{config} {split} {n}" for n in range(2)]})
            pq.write_table(table, folder / "0000.parquet")
    place = f"hf:{tmp_path}/papers"
    found = texts_of(f"{place}@pubmed~{CONVERTED}#test", "abstract")
    assert found == ["pubmed test 0", "pubmed test 1"]
    with pytest.raises(ValueError, match="'pubmed' not found"):
        texts_of(f"{place}@pubmed#test", "abstract")


def test_of_a_single_config_the_name_may_be_left_out_there_too(tmp_path) -> None:
    folder = tmp_path / "treebank" / "penn" / "test"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"sentence": ["a cat"]}), folder / "0000.parquet")
    assert texts_of(f"hf:{tmp_path}/treebank~{CONVERTED}#test", "sentence") == ["a cat"]


def texts_of(name: str, column: str) -> list[str]:
    """The documents of a dataset."""
    (source,) = find_sources([name])
    blocks = dataset_blocks(name, source.dataset, Format(column))
    return [text for block in blocks for _, text in parse(block, Format(column)).documents]


def test_what_leads_nowhere_is_refused(texts) -> None:
    (texts / "empty.txt").write_text("")
    (texts / "none").mkdir()
    for name, sentence in {
        "no.txt": "there is no file no.txt",
        "no.txt:2": "there is no file no.txt",
        "owner/name": "there is no file owner/name; if you mean a dataset of Hugging Face, write "
        "hf:owner/name",
        "*.csv": "there is no file that matches *.csv",
        "none": "there is no file in none that can be read: the name of a file must end with .txt",
        "notes.md": "cannot read notes.md: its name must end with .txt or .jsonl",
        "empty.txt": "empty.txt is empty",
        "*.txt": "empty.txt is empty",
    }.items():
        with refused(sentence):
            find_sources([name])
    with refused("there is nothing to prepare"):
        find_sources([])
    with refused("expected a list of sources, got one, 'b.txt'; put it into a list"):
        find_sources("b.txt")


def test_a_store_is_no_text(texts) -> None:
    for name in ("manifest.json", "tokenizer.json"):
        (texts / "deep" / name).write_text("{}")
    with refused("deep is a token store, not text; it needs no preparing"):
        find_sources(["deep"])
