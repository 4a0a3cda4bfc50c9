"""The command as a user runs it: in a process of its own."""

import json
import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import didlm
from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.methods.did import DID
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.pretrained import Model


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from didlm.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_explain_shows_the_papers_example_deletion_and_targets() -> None:
    result = run("explain")
    assert result.returncode == 0
    assert "N = 5" in result.stdout
    assert "t = 0.500   <BOS>" in result.stdout
    assert "a 0.4   b 0.6   g 0.2" in result.stdout
    assert run("explain").stdout == result.stdout
    assert run("explain", "--seed", "1").stdout != result.stdout


def test_align_shows_targets() -> None:
    result = run("align", "a b a", "a")
    assert result.returncode == 0
    assert "<BOS> _ a    a 0.5   b 0.5" in result.stdout
    assert "N = 2" in result.stdout
    assert run("align", "", "").returncode == 0
    assert "[/] _ [b]" in run("align", "[/] a [b]", "[/] [b]").stdout  # no markup


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["align", "a b", "c"], "didlm: 'c' is not contained in 'a b'"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--steps", "0"], "steps must be at least 1: got 0"),
        (["generate", "--model", "nowhere"], "there is no model 'nowhere': it is neither a f"),
        (["train", "--out", "x", "--data", "no.txt"], "no.txt"),
        (["train", "--out", "x", "--preset", "huge"], "there is no preset 'huge'"),
        (["train", "--out", "x", "--set", "stepz=3"], "no setting 'stepz': did you mean 'steps'?"),
        (["train", "--out", "x", "--set", "steps"], "--set takes NAME=VALUE: got 'steps'"),
        (["train", "--out", "x", "--recipe", "cake"], "'cake' is neither a recipe"),
        (["train", "--out", "x", "--device", "abacus"], "there is no device 'abacus'"),
        (
            ["train", "--out", "x", "--method", "gan"],
            "there is no method 'gan': known are did, did-fixed",
        ),
        (["train", "--out", "x", "--seed", "-1"], "seed must not be negative: got -1"),
        (["train", "--out", "x", "--set", "average=1"], "average must be at least 0 and below 1"),
        (["train", "--out", "x", "--valid", "0.1"], "valid goes with data"),
        (["prepare", "no.txt", "--out", "x"], "didlm: there is no file no.txt\n"),
        (["prepare", "a/b", "--out", "x"], "if you mean a dataset of Hugging Face, write hf:a/b"),
        (["info", "."], "didlm: . is not a token store, a run or a model"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_code_2(
    arguments, sentence, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())  # nothing half-written


BAD_DATA = {
    "empty": (b"", "empty"),
    "latin": (b'{"text": "caf\xe9"}\n', "UTF-8"),
    "blank": (b'{"text": "  "}\n', "no documents"),
    "column": (b'{"words": "a b"}\n', "'text'"),
    "json": (b"{text: 1}\n", "line 1"),
}


@pytest.mark.parametrize(("content", "word"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_gets_a_sentence_and_exit_code_2(content, word, tmp_path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    data.write_bytes(content)
    result = run("train", "--data", str(data), "--out", str(out), "--steps", "1")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert word in result.stderr
    assert not out.exists()


def test_train_then_generate_as_a_user_would(tmp_path) -> None:
    data, out = tmp_path / "texts.txt", tmp_path / "model"
    data.write_text("<|endoftext|>".join(f"the fox number {n} runs" for n in range(60)))
    result = run(
        "train", "--preset", "tiny", "--data", str(data), "--steps", "4", "--out", str(out),
        "--seed", "1", "--device", "cpu", "--valid", "0.2", "--set", "batch=4",
        "--set", "valid_documents=3",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "bits per byte" in result.stderr
    first, second = (
        run("generate", "--model", str(out), "--num", "2", "--steps", "8", "--seed", "3")
        for _ in "ab"
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    again = run("train", "--data", str(data), "--steps", "1", "--out", str(out))
    assert again.returncode == 2
    assert "holds a run already" in again.stderr
    wrong = run("generate", "--model", str(out), "--device", "abacus")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "didlm: there is no device 'abacus' on this machine\n",
    )
    blocked = run("train", "--data", str(data), "--steps", "1", "--out", str(data / "below"))
    assert blocked.returncode == 2
    assert len(blocked.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """The folder of an untrained model."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train_bpe(["Once upon a time there was a fox"] * 3, 300)
    torch.manual_seed(0)
    config = ModelConfig(tokenizer.vocabulary, 1, 16, 2, 16, condition=8, mean_length=9.0)
    Model(Network(config), tokenizer, DID(tokenizer.bos), longest=64).save_pretrained(folder)
    return str(folder)


def test_generate_leaves_the_files_it_is_asked_for(model, tmp_path) -> None:
    lines, page = tmp_path / "texts.jsonl", tmp_path / "trace.html"
    lines.write_text("old")
    result = run(
        "generate", "--model", model, "--num", "2", "--steps", "4", "--seed", "3", "--watch",
        "--json", str(lines), "--trace", str(page), "--prompt", "Once ", "--suffix", " fox",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    with lines.open(encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    assert [sample["sample"] for sample in samples] == [0, 1]
    for sample in samples:
        assert {"text", "tokens", "length", "steps", "nfe", "seconds", "seed"} <= sample.keys()
        assert sample["length"] == len(sample["tokens"])
        assert sample["text"].startswith("Once ")
        assert sample["text"].endswith(" fox")
    printed = "\n\n".join(sample["text"] for sample in samples) + "\n"
    assert result.stdout == re.sub("\r\n?", "\n", printed)  # as pipes are read here
    assert "sample 1 of seed 3" in page.read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["texts.jsonl", "trace.html"]
    status, *notes = result.stderr.splitlines()  # without a terminal, watching is a line
    assert re.fullmatch(r"step +\d+  time 0.000 +\d+ tokens", status)
    assert notes == [f"didlm: written: {lines}", f"didlm: written: {page}"]


def test_a_text_can_be_written_again_by_the_seed_that_is_named(model, tmp_path) -> None:
    template = "[...3] upon a [_] there[...]"
    arguments = ["infill", template, "--model", model, "--steps", "4", "--force", " fox"]
    first = run(*arguments, "--trace", str(tmp_path / "trace.gif"))
    assert first.returncode == 0, first.stderr
    assert (tmp_path / "trace.gif").read_bytes().startswith(b"GIF")
    assert re.fullmatch(r".* upon a .* there.*\n", first.stdout, re.DOTALL)
    assert " fox" in first.stdout
    (seed,) = re.findall(r"the seed was (\d+): --seed \1 writes this again", first.stderr)
    again = run(*arguments, "--seed", seed)
    assert (again.stdout, again.stderr) == (first.stdout, "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["infill", "a [...0]"], "the blank [...0] has no room for any token: leave it out"),
        (["infill", "a [...-1]"], "[...-1] is not a blank: write [...5] for at most 5 tokens"),
        (["infill", "a [...5-2]"], "a blank of at least 5 and at most 2 tokens is impossible"),
        (["generate", "--top-p", "2"], "top-p must be above 0 and at most 1: got 2.0"),
        (["generate", "--trace", "a.txt"], "a.txt: its name must end with .html or .gif"),
        (["generate", "--trace", "folder.html"], "cannot write folder.html: it is a folder"),
        (["generate", "--json", "nowhere/a"], "cannot write nowhere/a: there is no folder nowhere"),
        (["generate", "--json", "folder.html"], "cannot write folder.html: it is a folder"),
    ],
)
def test_what_cannot_be_written_is_found_out_before_the_work(
    model, arguments, sentence, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    result = run(*arguments, "--model", model, "--steps", "1")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("didlm: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["folder.html"]


LEAVES_A_FILE = [
    ["generate", "--model", "none", "--json"],
    ["generate", "--model", "none", "--trace"],
    ["infill", "[_]", "--model", "none", "--json"],
    ["infill", "[_]", "--model", "none", "--trace"],
    ["evaluate", "--model", "none", "--data", "none.txt", "--json"],
    ["evaluate", "--model", "none", "--samples", "--json"],
    ["lm-eval", "--model", "none", "--tasks", "none", "--json"],
]
LEAVES_A_FOLDER = [
    ["compare", "none", "--out"],
    ["convert", "none.pt", "--tokenizer", "none.json", "--out"],
    ["demo", "--out"],
    ["reproduce", "sizes", "--model", "owt-did-small=none", "--out"],
    ["train", "--data", "none.txt", "--out"],
]


@pytest.mark.parametrize("command", LEAVES_A_FILE + LEAVES_A_FOLDER, ids=" ".join)
def test_every_command_looks_at_the_place_for_its_results_first(
    command, tmp_path, monkeypatch
) -> None:
    """Before it reads anything: the models and texts that are named here do not exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    place = "file/below.html" if command in LEAVES_A_FILE else "file/below"
    result = CliRunner().invoke(app, [*command, place])
    reason = "there is no folder file" if command in LEAVES_A_FILE else "file is not a folder"
    assert isinstance(result.exception, ValueError)
    assert place in str(result.exception)
    assert reason in str(result.exception)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_a_file_that_cannot_be_written_gets_a_sentence_and_leaves_nothing(
    model, option, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("generate", "--model", model, "--steps", "1", option, "a" * 400 + ".html")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "File name too long" in result.stderr
    assert not list(tmp_path.iterdir())


def test_one_long_document_is_for_chunks(tmp_path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the fox sees the owl and the owl sees the moon. " * 200)
    result = run("train", "--data", str(book), "--out", str(tmp_path / "a"), "--steps", "1")
    assert result.returncode == 2
    assert "is one document" in result.stderr
    settings = ["--set", "fixed_length=16", "--set", "batch=2", "--set", "valid_documents=2"]
    result = run(
        "train", "--method", "did-fixed", "--data", str(book), "--out", str(tmp_path / "b"),
        "--steps", "2", *settings,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    result = run(
        "train", "--method", "did-fixed", "--data", str(book), "--out", str(tmp_path / "c"),
        "--steps", "2",
    )  # fmt: skip
    assert result.returncode == 2
    assert "validation data" in result.stderr
    assert "fixed_length" in result.stderr


def test_a_short_demo(tmp_path) -> None:
    result = run("demo", "--steps", "3", "--out", str(tmp_path / "demo"))
    assert result.returncode == 0, result.stderr
    assert "exact entropy               58.4 nats a story" in result.stdout
    assert (tmp_path / "demo/tiny/curve.png").stat().st_size > 10_000
    assert (tmp_path / "demo/story.html").stat().st_size > 10_000
    for made in ("story.html", "tiny/curve.png"):
        assert str(tmp_path / "demo" / made) in result.stdout
    assert result.stdout.count(" generate --prompt") == 1


@pytest.mark.long
def test_the_demo_comes_within_twice_the_entropy(tmp_path) -> None:
    command = [sys.executable, "-c", "from didlm.cli import main; main()", "demo"]
    command += ["--out", str(tmp_path / "demo")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
    ratio = float(result.stdout.split("ratio")[1].split()[0])
    assert ratio < 2


def test_version() -> None:
    assert run("--version").stdout == f"didlm {didlm.__version__}\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, didlm.cli; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_submodules_are_reached_from_the_package() -> None:
    assert didlm.alignment.insertion_targets([1], [False]).token.tolist() == [1]
    assert "packed" in dir(didlm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = didlm.nothing


def test_text_is_prepared_and_the_store_described(tmp_path) -> None:
    texts = ["One day.", "", "One day.", "Two."]
    lines = [json.dumps({"body": text}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "broken"]))
    store = tmp_path / "store"
    command = ["prepare", f"{tmp_path / 'a.jsonl'}:2", "--out", str(store), "--column", "body"]
    refused = run(*command)
    assert refused.returncode == 2
    assert f"didlm: line 5 of {tmp_path / 'a.jsonl'} is not valid JSON" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    made = run(*command, "--skip-broken", "--vocabulary", "260")
    assert made.returncode == 0
    for row in ("documents +3", "empty, left out +1", "broken, left out +1", "duplicates, kept +1"):
        assert re.search(row, made.stdout), row
    assert "MB of text a second" in made.stdout
    assert "broken lines or rows left out: 1; the first: line 5 of" in made.stderr
    about = json.loads(run("info", str(store), "--json", "--verify").stdout)
    assert about["store"]["counts"]["documents"] == 3
    assert about["store"]["verified"]
    assert "is a token store" in run("info", str(store)).stdout
    again = run(*command)
    assert again.returncode == 2
    assert "is there already" in again.stderr
