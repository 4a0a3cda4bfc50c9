import gzip
import json
import lzma
import re

import numpy as np
import pyarrow
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from didlm.text.documents import read_documents
from didlm.text.hashing import document_hash, is_held_out

SEPARATOR = "<|endoftext|>"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def test_the_separator_stands_between_the_documents_of_a_text_file(write) -> None:
    path = write("a.txt", f"One.\n\nStill one.\n{SEPARATOR}\nTwo.\n{SEPARATOR}\n \t\n")
    assert read_documents(path) == ["One.\n\nStill one.", "Two."]


def test_a_text_file_without_a_separator_is_one_document(write) -> None:
    assert read_documents(write("a.txt", "One.\n\n\nStill one.\r\n")) == ["One.\n\n\nStill one."]


def test_the_separator_can_be_another(write) -> None:
    assert read_documents(write("a.txt", "a%b%%c"), separator="%") == ["a", "b", "c"]
    with assert_refused("the separator between documents is empty; give at least one character"):
        read_documents(write("a.txt", "a"), separator="")


def test_a_line_of_json_holds_a_document_exactly_as_it_is(write) -> None:
    texts = ["\n indented\r\n", f"with {SEPARATOR} inside", "line\u2028separator", "é 漢 🙂"]
    lines = [json.dumps({"text": text, "id": 1}, ensure_ascii=False) for text in texts]
    path = write("a.jsonl", "\n".join([*lines, "", '{"text": " \\n"}', ""]))
    assert read_documents(path) == texts


def test_the_column_can_be_another(write) -> None:
    path = write("a.jsonl", '{"question": "Why?", "answer": "So."}\r\n')
    assert read_documents(path, column="answer") == ["So."]


def zstd(content):
    return pyarrow.compress(content, "zstd", asbytes=True)


COMPRESSION = [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)]


@pytest.mark.parametrize(("ending", "compress"), COMPRESSION)
def test_compressed_files_read_like_plain_ones(write, ending, compress) -> None:
    assert read_documents(write("a.b.txt" + ending, compress(b"One."))) == ["One."]
    assert read_documents(write("a.JSONL" + ending, compress(b'{"text": "One."}'))) == ["One."]


def test_a_byte_order_mark_is_not_part_of_the_text(write) -> None:
    assert read_documents(write("a.txt", b"\xef\xbb\xbfOne.")) == ["One."]
    assert read_documents(write("a.jsonl", b'\xef\xbb\xbf{"text": "One."}')) == ["One."]


def test_files_that_are_not_there_are_refused(tmp_path) -> None:
    with assert_refused(f"there is no file {tmp_path / 'a.txt'}"):
        read_documents(tmp_path / "a.txt")
    with assert_refused(f"there is no file in {tmp_path} that can be read"):
        read_documents(tmp_path)
    with assert_refused(f"there is no file that matches {tmp_path}/*.txt"):
        read_documents(tmp_path / "*.txt")


@pytest.mark.parametrize("name", ["a.csv", "a", "txt", "a.gz", "a.csv.xz", "a.txt.zip"])
def test_unknown_endings_are_refused(write, name) -> None:
    with assert_refused(
        f"{name}: its name must end with .txt or .jsonl, or with either of them and .gz"
    ):
        read_documents(write(name, "One."))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.xz"])
def test_empty_files_are_refused(write, name) -> None:
    with assert_refused(f"{name} is empty"):
        read_documents(write(name, b""))


def test_compressed_emptiness_is_refused(write) -> None:
    with assert_refused("a.txt.gz is empty"):
        read_documents(write("a.txt.gz", gzip.compress(b"")))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", " \n"), ("a.txt", f"\n{SEPARATOR}\n"), ("a.jsonl", '{"text": ""}\n\n')],
)
def test_files_without_documents_are_refused(write, name, content) -> None:
    with assert_refused(f"{name} holds no documents: all of its text is whitespace"):
        read_documents(write(name, content))


def test_text_that_is_not_utf8_is_refused(write) -> None:
    with assert_refused("a.txt is not UTF-8: byte 4 is 0xe9, counted from 0; convert it to UTF-8"):
        read_documents(write("a.txt", "Une été?".encode("latin-1")))
    with assert_refused("byte 3 is 0xff, counted from 0 in what it decompresses to; convert"):
        read_documents(write("a.txt.gz", gzip.compress(b"One\xff")))


@pytest.mark.parametrize(("ending", "compress"), COMPRESSION)
def test_damaged_compression_is_refused(write, ending, compress) -> None:
    good = compress(b"One." * 100)
    noise = good[:15] + bytes(byte ^ 255 for byte in good[15:])
    for content in (b"plain text", good[:-12], noise):
        with assert_refused(f"a.txt{ending} is damaged or no {ending} file"):
            read_documents(write("a.txt" + ending, content))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"text": "cut', "line 2 of {path} is not valid JSON: Unterminated string"),
        ("[" * 100_000, "line 2 of {path} is not valid JSON"),
        ('["a"]', 'holds a list; every line must be a JSON object such as {{"text":'),
        ("3", "line 2 of {path} holds a number"),
        ('{"Text": "a", "id": 1}', "has no column 'text'; the columns there are: 'Text', 'id'"),
        ("{}", "line 2 of {path} has no column 'text'; the columns there are: none"),
        ('{"text": null}', "has null in column 'text'; it must be a string"),
        ('{"text": 1.5}', "has a number in column 'text'; it must be a string"),
        ('{"text": ["a"]}', "has a list in column 'text'; it must be a string"),
        ('{"text": "ab\\ud800"}', "half of a surrogate pair, '\\ud800', at character 2"),
    ],
)
def test_lines_that_hold_no_text_are_refused(write, line, sentence) -> None:
    path = write("a.jsonl", '{"text": "a"}\n' + line)
    with assert_refused(sentence.format(path=path)):
        read_documents(path)


def split(documents: list[str], fraction: float) -> tuple[list[str], list[str]]:
    hashes = np.array([document_hash(document) for document in documents], np.uint64)
    pairs = list(zip(documents, is_held_out(hashes, fraction), strict=True))
    return [d for d, held in pairs if not held], [d for d, held in pairs if held]


def test_about_the_asked_share_goes_to_validation_and_order_stays() -> None:
    documents = [f"document {number}" for number in range(4000)]
    train, valid = split(documents, 0.1)
    assert sorted(train + valid) == sorted(documents)
    assert [document for document in documents if document in set(train)] == train
    assert abs(len(valid) - 400) < 5 * np.sqrt(4000 * 0.1 * 0.9)


@forall(st.lists(st.text(max_size=3), min_size=1), st.lists(st.text(max_size=3)))
def test_duplicates_fall_on_one_side_and_newcomers_move_nobody(documents, newcomers) -> None:
    documents = [*documents, *(str(number) for number in range(20))]
    train, valid = split(documents, 0.5)
    assert not set(train) & set(valid)
    later_train, later_valid = split(newcomers + documents, 0.5)
    assert set(train) <= set(later_train)
    assert set(valid) <= set(later_valid)


def test_the_split_is_the_same_on_every_machine() -> None:
    # By `sha256sum`, these letters' hashes start with ca, 3e, 2e, 18, 3f, 25, cd and aa.
    assert split(list("abcdefgh"), 0.5) == (list("agh"), list("bcdef"))
    assert split(list("abcdefgh"), 0.125) == (list("abcefgh"), list("d"))
