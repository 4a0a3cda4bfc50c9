import re

import pytest

from didlm.text.sources import Dataset, find_sources


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
