import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given as forall
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from didlm.data.tokenizer import Tokenizer

STORIES = [
    "Once upon a time there was a little dragon.",
    "The little dragon lived on a little hill.",
    "Once there was a hill, and on the hill there was a dragon.",
]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture(scope="module")
def stories():
    return Tokenizer.train_bpe(STORIES, 300)


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def write_gpt2(folder, prefix="", end="<|endoftext|>"):
    """A small pair of GPT-2's kind, with GPT-2's own ids for Hello and for world after a space."""
    pieces = {"Hello": 15496, "Ġworld": 995}
    merges = [(word[:cut], word[cut]) for word in pieces for cut in range(1, len(word))]
    vocabulary = dict(pieces)
    free = iter(number for number in range(15498) if number not in pieces.values())
    for token in [*BYTES, *(left + right for left, right in merges), end]:
        if token not in vocabulary:
            vocabulary[token] = next(free)
    vocabulary |= {f"unused{number}": number for number in free}
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges), ""]
    (folder / f"{prefix}vocab.json").write_text(json.dumps(vocabulary))
    (folder / f"{prefix}merges.txt").write_text("\n".join(lines), encoding="utf-8")
    return vocabulary


BERT = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "hello",
    "##ing",
    "do",
    "not",
    "play",
    ",",
    "[",
    "]",
]


def write_bert(folder, prefix="", tokens=BERT):
    path = folder / f"{prefix}vocab.txt"
    path.write_text("\n".join([*tokens, ""]))
    return path


def test_importing_didlm_does_not_import_the_tokenizers_library() -> None:
    code = "import didlm, sys; sys.exit('tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@forall(st.text())
def test_every_text_comes_back_exactly(stories, text) -> None:
    assert stories.decode(stories.encode(text)) == text


@forall(st.lists(st.sampled_from(["<|bos|>", "<|", "bos", "|>", "the", " ", "\n", "\0", "\ufffd"])))
def test_no_text_holds_a_special_token(stories, pieces) -> None:
    text = "".join(pieces)
    ids = stories.encode(text)
    assert stories.bos not in ids
    assert stories.decode(ids) == text


def test_ids_are_int64_and_below_the_size_of_the_vocabulary(stories) -> None:
    ids = stories.encode("The hill 🙂")
    assert ids.dtype == np.int64
    assert 0 <= ids.min() <= ids.max() < stories.vocabulary <= 300
    assert stories.encode("").shape == (0,)


def test_a_batch_is_the_texts_one_by_one(stories) -> None:
    texts = [*STORIES, "", "漢"]
    for together, alone in zip(
        stories.encode_batch(texts), map(stories.encode, texts), strict=True
    ):
        np.testing.assert_array_equal(together, alone)


def test_what_is_frequent_takes_fewer_tokens(stories) -> None:
    assert len(stories.encode(" little")) == 1
    assert len(stories.encode(" elttil")) > 1


def test_bos_takes_part_in_the_vocabulary_and_separates_documents(stories) -> None:
    assert stories.token_text(stories.bos) == "<|bos|>"
    assert stories.separator == stories.bos
    assert stories.decode([stories.bos, *stories.encode("a hill"), stories.bos]) == "a hill"


def test_equal_documents_train_equal_tokenizers(stories) -> None:
    assert Tokenizer.train_bpe(iter(STORIES), 300).fingerprint() == stories.fingerprint()
    assert Tokenizer.train_bpe(STORIES[:2], 300).fingerprint() != stories.fingerprint()


def test_a_vocabulary_is_no_larger_than_the_documents_have_pairs_for() -> None:
    assert Tokenizer.train_bpe(["ab ab"], 1000).vocabulary == 258
    assert Tokenizer.train_bpe(["ab ab"], 1000, min_frequency=3).vocabulary == 257
    assert Tokenizer.train_bpe(["ab ab"], 257).vocabulary == 257


def test_ids_to_decode_may_be_lists_arrays_or_tensors(stories) -> None:
    ids = stories.encode("a dragon")
    for form in (ids, ids.tolist(), torch.from_numpy(ids)):
        assert stories.decode(form) == "a dragon"
    assert stories.decode([]) == ""


def test_one_token_can_be_read(stories) -> None:
    assert stories.token_text(int(stories.encode(" little")[0])) == " little"
    assert [stories.token_text(token) for token in stories.encode("é")] == [r"\xc3", r"\xa9"]


def test_a_saved_tokenizer_comes_back_equal(stories, tmp_path) -> None:
    file = stories.save(tmp_path / "new" / "folder")
    assert file == tmp_path / "new" / "folder" / "tokenizer.json"
    for path in (file, file.parent, str(file)):
        again = Tokenizer.load(path)
        assert again.fingerprint() == stories.fingerprint()
        assert (again.bos, again.vocabulary) == (stories.bos, stories.vocabulary)
        np.testing.assert_array_equal(again.encode("<|bos|> é"), stories.encode("<|bos|> é"))


def test_a_pickled_tokenizer_comes_back_equal(stories) -> None:
    again = pickle.loads(pickle.dumps(stories))
    assert again.fingerprint() == stories.fingerprint()
    np.testing.assert_array_equal(again.encode("<|bos|>"), stories.encode("<|bos|>"))


@pytest.mark.parametrize("prefix", ["", "gpt2."])
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "."])
def test_gpt2_loads_from_either_file_or_their_folder(tmp_path, prefix, name) -> None:
    vocabulary = write_gpt2(tmp_path, prefix)
    gpt2 = Tokenizer.load(tmp_path if name == "." else tmp_path / f"{prefix}{name}")
    assert gpt2.encode("Hello world").tolist() == [15496, 995]
    assert gpt2.vocabulary == len(vocabulary) == 15498
    assert gpt2.bos == gpt2.separator == vocabulary["<|endoftext|>"]
    assert gpt2.lossless(["<|endoftext|>", "Hello  wörld\n", "漢 🙂", ""])


def test_a_vocabulary_without_bos_gets_one_more_id(tmp_path) -> None:
    vocabulary = write_gpt2(tmp_path, end="unused")
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocabulary == len(vocabulary) + 1
    assert loaded.bos == loaded.separator == len(vocabulary)
    loaded.save(tmp_path)
    assert Tokenizer.load(tmp_path).bos == loaded.bos


@pytest.mark.parametrize("prefix", ["", "bert-base-uncased."])
def test_bert_loads_from_its_vocabulary_or_its_folder(tmp_path, prefix) -> None:
    path = write_bert(tmp_path, prefix)
    for bert in (Tokenizer.load(path), Tokenizer.load(tmp_path)):
        assert bert.encode("HELLO, playing").tolist() == [5, 10, 9, 6]
        assert (bert.vocabulary, bert.bos, bert.separator) == (len(BERT), 2, 3)
        assert bert.decode([2, 5, 10, 7, 8, 9, 6, 3]) == "hello, do not playing"
        assert bert.token_text(6) == "##ing"
        assert not {0, 2, 3, 4} & set(bert.encode("[CLS] [SEP] [PAD] [MASK]").tolist())


def test_lossless_says_whether_all_texts_survive(tmp_path, stories) -> None:
    bert = Tokenizer.load(write_bert(tmp_path))
    assert bert.lossless(["hello, playing", "do not"])
    assert not bert.lossless(["hello", "Hello"])
    assert not bert.lossless(["unknown"])
    assert stories.lossless([*STORIES, "Anything\tat all"])


def test_tokens_that_begin_with_a_space_are_known(stories, tmp_path) -> None:
    spaced = stories.begins_with_space()
    assert spaced.shape == (stories.vocabulary,)
    texts = [stories.token_text(token) for token in range(stories.vocabulary)]
    assert spaced.tolist() == [text.startswith(" ") for text in texts]
    assert spaced[stories.encode(" little")[0]]
    assert not spaced[[stories.bos, *stories.encode("\n")]].any()
    assert stories.begins_with_space() is spaced
    assert not Tokenizer.load(write_bert(tmp_path)).begins_with_space().any()


def test_special_tokens_and_missing_ids_begin_with_no_space() -> None:
    library = tokenizers.Tokenizer(models.BPE({"<|bos|>": 0, "Ġ": 1, "Ġ|": 3}, []))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["Ġ|"])
    assert Tokenizer(library).begins_with_space().tolist() == [False, True, False, False]


def test_the_first_unknown_word_is_found(stories, tmp_path) -> None:
    bert = Tokenizer.load(write_bert(tmp_path))
    assert bert.unknown == 1
    assert bert.first_unknown("Hello, playing") is None
    assert bert.first_unknown("Hello, Zebra and 🙂") == "Zebra"
    assert bert.first_unknown("hello [UNK]") == "UNK"
    assert stories.unknown is None
    assert stories.first_unknown("Zebra 🙂 <|bos|>") is None
    with assert_refused("half of a surrogate pair"):
        bert.first_unknown("\ud800")


def test_a_tokenizer_whose_bos_or_separator_has_id_0_keeps_it() -> None:
    model = models.WordLevel({"<s>": 0, "a": 1, "<unk>": 2}, unk_token="<unk>")
    assert Tokenizer(tokenizers.Tokenizer(model)).bos == 0
    model = models.WordLevel({"[SEP]": 0, "[CLS]": 1, "<unk>": 2}, unk_token="<unk>")
    assert Tokenizer(tokenizers.Tokenizer(model)).separator == 0


def test_nothing_is_cut_off_padded_or_left_to_chance(stories, tmp_path) -> None:
    content = json.loads(stories.save(tmp_path).read_text(encoding="utf-8"))
    content["model"]["dropout"] = 1.0
    careless = tokenizers.Tokenizer.from_str(json.dumps(content))
    careless.enable_truncation(3)
    careless.enable_padding(length=200)
    careless.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    for text in STORIES:
        np.testing.assert_array_equal(loaded.encode(text), stories.encode(text))
    assert loaded.fingerprint() == stories.fingerprint()


def test_nothing_is_added_around_a_text() -> None:
    library = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "a": 1}, unk_token="a"))
    library.post_processor = processors.BertProcessing(("<s>", 0), ("<s>", 0))
    assert library.encode("a").ids == [0, 1, 0]
    assert Tokenizer(library).encode("a").tolist() == [1]


def test_an_id_without_a_token_decodes_to_nothing() -> None:
    library = tokenizers.Tokenizer(models.BPE({"<|bos|>": 0, "a": 1, "b": 3}, []))
    library.decoder = decoders.ByteLevel()
    holed = Tokenizer(library)
    assert holed.vocabulary == 4
    assert holed.decode([1, 2, 3]) == "ab"
    assert holed.token_text(2) == ""


def test_two_tokens_with_one_id_are_refused() -> None:
    library = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 2}, []))
    with assert_refused("share the id 2"):
        Tokenizer(library)  # BOS is added with the next id that the library believes free


def test_ids_out_of_range_are_refused(stories) -> None:
    size = stories.vocabulary
    with assert_refused(
        f"id {size} at position 1 is not in the vocabulary; its ids are 0 to {size - 1}"
    ):
        stories.decode([0, size])
    with assert_refused("id -1 at position 0 is not in the vocabulary"):
        stories.decode([-1])
    with assert_refused("id 5000000000 at position 0 is not in the vocabulary"):
        stories.token_text(5_000_000_000)
    with assert_refused("ids must be integers: got float64"):
        stories.decode([0.5])


def test_what_is_not_text_is_refused(stories) -> None:
    with assert_refused("text 1 has half of a surrogate pair, '\\ud800', at character 2"):
        stories.encode_batch(["fine", "ab\ud800"])
    with assert_refused("text 0 must be a string: got int"):
        stories.encode(3)
    for method in (stories.encode_batch, stories.lossless):
        with assert_refused("expected a list of texts, got one text; put it into a list"):
            method("one text")


def test_impossible_trainings_are_refused() -> None:
    with assert_refused("a vocabulary of 256 is too small: 256 bytes and BOS take 257 ids"):
        Tokenizer.train_bpe(STORIES, 256)
    with assert_refused("there are no documents to train a tokenizer on"):
        Tokenizer.train_bpe([], 300)
    with assert_refused("expected a list of texts, got one text"):
        Tokenizer.train_bpe(STORIES[0], 300)


def test_saving_into_a_file_is_refused(stories, tmp_path) -> None:
    (tmp_path / "file").touch()
    with assert_refused(
        f"cannot save a tokenizer in {tmp_path / 'file'}: it is a file, not a folder"
    ):
        stories.save(tmp_path / "file")


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "x"])
def test_files_that_are_not_there_are_refused(tmp_path, name) -> None:
    missing = "vocab.json" if name == "merges.txt" else name
    with assert_refused(f"there is no file {tmp_path / missing}"):
        Tokenizer.load(tmp_path / name)


def test_folders_without_one_tokenizer_are_refused(tmp_path) -> None:
    with assert_refused(
        f"there is no tokenizer in {tmp_path}; it must hold tokenizer.json, a pair of"
    ):
        Tokenizer.load(tmp_path)
    write_gpt2(tmp_path, "gpt2.")
    write_bert(tmp_path, "bert.")
    with assert_refused(
        "more than one tokenizer: bert.vocab.txt, gpt2.vocab.json; give the path of one"
    ):
        Tokenizer.load(tmp_path)


def test_half_of_a_pair_is_refused(tmp_path) -> None:
    write_gpt2(tmp_path)
    (tmp_path / "merges.txt").rename(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "vocab.json"):
        with assert_refused(
            f"there is no {tmp_path / 'merges.txt'}, without which {tmp_path / 'vocab.j'}"
        ):
            Tokenizer.load(path)
    (tmp_path / "elsewhere").rename(tmp_path / "merges.txt")
    (tmp_path / "vocab.json").unlink()
    for path in (tmp_path, tmp_path / "merges.txt"):
        with assert_refused(
            f"there is no {tmp_path / 'vocab.json'}, without which {tmp_path / 'merges'}"
        ):
            Tokenizer.load(path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("notes.md", "hello", "notes.md is not a tokenizer; give tokenizer.json, a pair of"),
        ("tokenizer.json", "", "tokenizer.json is empty"),
        ("tokenizer.json", '{"model": ', "tokenizer.json is damaged, for it is not valid JSON: "),
        ("tokenizer.json", "{}", "tokenizer.json is not a tokenizer: Model missing"),
        ("tokenizer.json", "[1]", "tokenizer.json is not a tokenizer: "),
        ("vocab.txt", b"\xff", "vocab.txt is not UTF-8: byte 0 is 0xff"),
        (
            "vocab.txt",
            "a\nb\n",
            "vocab.txt is not a vocabulary of BERT's kind: it has no line [UNK]",
        ),
        ("vocab.txt", "[UNK]\na\na\n", "vocab.txt repeats 'a' of line 2"),
        ("vocab.json", '{"a": 0', "vocab.json is damaged, for it is not valid JSON: "),
        ("vocab.json", '["a"]', "vocab.json is not a vocabulary: it must hold an id for every"),
        ("vocab.json", '{"a": "b"}', "vocab.json is not a vocabulary: it must hold an id for"),
        (
            "vocab.json",
            '{"a": 0, "b": 0}',
            "vocab.json must be 0 to 1, each once, for its 2 tokens",
        ),
        ("vocab.json", '{"!": 0}', "lacks 255 of the 256 bytes, the first of them 0x00"),
        ("merges.txt", "H e l", "line 1 of {folder}/merges.txt must be two pieces with a space"),
        (
            "merges.txt",
            "#version: 0.2\nx y",
            "line 2 of {folder}/merges.txt merges 'x' and 'y', but",
        ),
    ],
)
def test_what_is_not_a_tokenizer_is_refused(tmp_path, name, content, sentence) -> None:
    write_gpt2(tmp_path)
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with assert_refused(sentence.format(folder=tmp_path)):
        Tokenizer.load(tmp_path / name)


@forall(st.text(alphabet="aé漢🙂 b", max_size=20), st.integers(0, 40))
def test_bytes_add_up_wherever_a_text_is_cut(text, place) -> None:
    tokenizer = Tokenizer.train_bpe(["ab a b"], 260)
    ids = tokenizer.encode(text)
    parts = [ids[:place], ids[place:]]
    assert sum(map(tokenizer.count_bytes, parts)) == len(text.encode())
