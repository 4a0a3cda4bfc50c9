"""`didlm compare`: every model measured alike, and a page that holds all of it."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from didlm.cli import app
from didlm.compare.gather import Entry, Run, metrics, perplexity_at_entropy
from didlm.compare.plots import draw_all
from didlm.compare.tables import all_tables
from didlm.data.batch import make_batch
from didlm.data.corpus import Corpus
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.order import measure_order
from didlm.evaluate.quality import Quality, Verdict
from didlm.methods.registry import OURS, find_method
from didlm.model.config import preset
from didlm.model.flops import training_flops
from didlm.model.transformer import Network
from didlm.pretrained import Model, load

TEXTS = [
    "a cat saw a dog. ",
    "the dog saw the cat and a cat. ",
    "a dog and a cat saw the dog. ",
] * 4
METHODS = ["did", "did-fixed", "radd", "ilm", "ar"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """One untrained model of each method, as folders."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.train_bpe(TEXTS, 270)
    found = {}
    for name in METHODS:
        torch.manual_seed(0)
        options = {"fixed_length": 8} | ({"padding": 20} if name == "radd" else {})
        method = find_method(name).build(tokenizer, **options)
        config = preset("tiny", tokenizer.vocabulary, method.heads)
        config = replace(config, layers=1, width=16, heads=2, feed_forward=16, mean_length=8.0)
        network = Network(replace(config, condition=8 if config.condition else None))
        Model(network, tokenizer, method, method.length or 30).save_pretrained(place / name)
        found[name] = place / name
    lines = [{"kind": "train", "step": 1, "loss": 9.0}, {"kind": "train", "step": 2, "loss": 8.0}]
    lines.append({"kind": "valid", "step": 2, "nats_per_document": 20.0, "flops": 5e6})
    metrics = "\n".join(map(json.dumps, lines))
    (found["did"] / "metrics.jsonl").write_text(metrics, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("data") / "unseen.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    return file


def compare(*arguments: object):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


class Page(HTMLParser):
    """What a page would load from elsewhere, its tables and its pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elsewhere: list[str] = []
        self.pictures, self.cells = 0, []
        self.feed(text)

    def handle_starttag(self, tag, attributes) -> None:
        for name, value in attributes:
            if name in ("src", "href") and not (value or "").startswith("data:"):
                self.elsewhere.append(value or "")
        self.pictures += tag == "img"

    def handle_data(self, data) -> None:
        self.cells.append(data)


@pytest.fixture(scope="module")
def report(folders, data, tmp_path_factory) -> Path:
    """The report on all methods."""
    out = tmp_path_factory.mktemp("report") / "new"
    options = ["--num", 6, "--steps", 2, "--steps", 4, "--temperature", 0.5, "--temperature", 1]
    options += ["--training-data", data, "--batch-size", 6]
    result = compare(*folders.values(), "--data", data, *options, "--out", out)
    assert result.exit_code == 0, result.output
    return out


def test_every_method_is_in_one_report(report) -> None:
    figures = json.loads((report / "results.json").read_text(encoding="utf-8"))
    models = {model["name"]: model for model in figures["models"]}
    assert list(models) == METHODS
    kinds = {name: (m["likelihood"] or {}).get("kind") for name, m in models.items()}
    assert kinds == {
        "did": "bound", "did-fixed": "bound", "radd": "bound", "ilm": None, "ar": "exact",
    }  # fmt: skip
    assert [len(m["samples"]) for m in models.values()] == [
        2,
        2,
        2,
        1,
        1,
    ]  # ilm and ar have no steps
    for name, model in models.items():
        for run in model["samples"]:
            assert run["nfe"] >= 1
            assert 0 <= run["network_seconds"] <= run["seconds"]
            assert run["copied_13_grams"] is None or 0 <= run["copied_13_grams"] <= 1
            judged = name != "did-fixed"
            assert (run["generative_perplexity"] is not None) == judged
            assert (run["length_ks"] is not None) == judged
    assert models["did"]["training_flops"] == 5e6
    assert models["ar"]["training_flops"] is None


def test_what_a_model_suggests_counts_for_nothing(folders, data, report, tmp_path) -> None:
    model = load(folders["did"])
    model.defaults = {"top_p": 0.1, "rate_scale": 0.2}
    model.save_pretrained(tmp_path / "did")
    options = ["--num", 6, "--steps", 4, "--training-data", data, "--batch-size", 6]
    result = compare(tmp_path / "did", "--data", data, *options, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    found, before = (
        json.loads((folder / "results.json").read_text(encoding="utf-8"))["models"][0]
        for folder in (tmp_path / "report", report)
    )
    one, other = found["samples"][-1], before["samples"][-1]
    assert one["steps_asked"] == other["steps_asked"] == 4
    assert (one["lengths"], one["entropy_bits"]) == (other["lengths"], other["entropy_bits"])


def test_the_page_needs_nothing_from_elsewhere(report) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.elsewhere == []
    assert "@import" not in text
    assert page.pictures >= 6
    shown = " ".join(page.cells)
    for name in METHODS:
        assert name in shown
    assert "<code>didlm" in text


def test_lengths_that_vary_and_one_length_share_no_table(report) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    tables = re.findall(r"<table>.*?</table>", text, re.DOTALL)
    whole, samples, chunks, samples_of_chunks = tables
    assert "did-fixed" not in whole
    assert re.findall(r"<tr><td>([^<]*)", chunks) == ["did-fixed"]
    assert "bound" in chunks
    assert "exact" not in chunks
    assert re.findall(r"<tr><td>([^<]*)", whole) == ["did", "radd", "ilm", "ar"]
    names = re.findall(r"<tr><td>([^<]*)", samples)
    assert names == ["did", "did", "radd", "radd", "ilm", "ar", "data"]
    assert re.findall(r"<tr><td>([^<]*)", samples_of_chunks) == ["did-fixed"] * 2


def test_the_embedded_stories_tell_the_truth_beside_it(folders, tmp_path) -> None:
    result = compare(
        folders["ilm"], "--documents", 3, "--num", 2, "--steps", 1, "--out", tmp_path / "r"
    )
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "r" / "results.json").read_text(encoding="utf-8"))
    assert figures["facts"]["exact entropy"].startswith("58.4")
    assert figures["models"][0]["samples"][0]["valid"] == 0.0
    assert figures["facts"]["judge"] == "none"


def test_bad_input_is_refused_before_anything_is_measured(folders, data, tmp_path) -> None:
    file, empty = tmp_path / "file", tmp_path / "empty.txt"
    file.write_text("x", encoding="utf-8")
    empty.write_text("", encoding="utf-8")
    short = tmp_path / "short.txt"
    short.write_text("a cat", encoding="utf-8")
    did = folders["did"]
    for arguments, sentence in [
        ([did, did], "one model is named twice"),
        ([did, "--num", 1], "at least 2 samples"),
        ([did, "--steps", 0], "steps must be at least 1"),
        ([did, "--temperature", 0], "temperatures must be positive"),
        ([did, "--out", file], "is not a folder"),
        ([did, "--out", file / "deeper"], "is not a folder"),
        ([did, "--training-data", data], "goes with --data"),
        ([folders["ar"], folders["did-fixed"], "--data", short], "short"),
        ([tmp_path / "nowhere"], "nowhere"),
        ([did, "--data", empty], "empty"),
        ([did, "--data", data, "--judge", folders["ilm"]], "cannot judge: its method is 'ilm'"),
    ]:
        out = [] if "--out" in arguments else ["--out", tmp_path / "never"]
        result = compare(*arguments, *out)
        assert result.exit_code != 0
        assert sentence in str(result.exception), arguments
    assert not (tmp_path / "never").exists()


def entry(points: list[tuple[float, float, float]]) -> Entry:
    """A model whose (temperature, entropy, perplexity) are known."""
    some = Entry("x", "did", 10, True, True, 1e9, None)
    for temperature, bits, perplexity in points:
        verdict = Verdict("judge", np.array([np.log(perplexity)]), np.array([1]))
        lengths = np.array([3, 4])
        quality = Quality("did", 4, 4, 0.2, 0.1, bits, lengths, lengths, {2: 0.5}, None, verdict)
        order = measure_order([], None)
        some.by_temperature.append(Run(4, temperature, quality, 0.5, order, "text"))
    some.by_steps.append(some.by_temperature[-1])
    return some


def test_perplexity_at_equal_entropy_is_interpolated_and_never_extrapolated() -> None:
    found = entry([(0.5, 4.0, 2.0), (0.8, 4.5, 4.0), (1.0, 5.0, 16.0)])
    assert perplexity_at_entropy(found, 4.5) == pytest.approx(4.0)
    assert perplexity_at_entropy(found, 4.75) == pytest.approx(8.0)  # the geometric mean
    assert perplexity_at_entropy(found, 5.0) == pytest.approx(16.0)
    assert perplexity_at_entropy(found, 5.01) is None
    assert perplexity_at_entropy(found, 3.9) is None


def test_tables_leave_out_what_is_not_known() -> None:
    found = entry([(1.0, 5.0, 16.0)])
    table = all_tables([found], found.best, None)[-1]
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["the same at the data's entropy"] == row["perplexity to the judge"] == "16"
    assert row["13-grams copied"] == ""
    assert row["valid"] == "50.0%"
    colder = entry([(1.0, 4.0, 16.0)]).best
    (cells,) = [row for row in all_tables([found], colder, None)[-1].rows if row[0] == "x"]
    assert "outside the sweep" in cells


def test_plots_are_pngs() -> None:
    pictures = draw_all([entry([(1.0, 5.0, 16.0)])], 4.9, 58.4)
    assert all(png.startswith(b"\x89PNG") for png in pictures.values())
    assert "Perplexity at equal entropy" in pictures
    assert "Training loss" not in pictures  # there is no curve


@pytest.mark.parametrize("name", OURS)
def test_flops_are_those_that_torch_counts(name) -> None:
    """Up to attention, which torch's counter does not know on every device."""
    tokenizer = Tokenizer.train_bpe(TEXTS, 270)
    method = find_method(name).build(tokenizer, fixed_length=8)
    config = preset("tiny", tokenizer.vocabulary, method.heads)
    network = Network(config)
    texts = list(method.lay_out(Corpus.of(tokenizer.encode_batch(TEXTS)), 100))
    batch = make_batch(method.training_examples(texts, range(len(texts)), seed=0))
    with FlopCounterMode(display=False) as counter:
        hidden = network(batch.x_t, batch.deleted, batch.longest)
        total = (hidden[batch.target_rows] @ network.token_head.T).sum()
        if config.rates:
            total = total + network.log_rate(hidden, batch.deleted, batch.x_t).sum()
        if config.stop:
            total = total + network.stop_logit(hidden, batch.x_t).sum()
        total.backward()
    known = {str(k): v for k, v in counter.get_flop_counts()["Global"].items()}
    products = sum(v for name, v in known.items() if "attention" not in name)
    pairs = float(batch.x_t.offsets.diff().double().square().sum())
    attention = 12 * config.layers * config.width * pairs / (2 if config.causal else 1)
    assert training_flops(config, batch) - attention == pytest.approx(products, rel=0.03)


def test_damaged_lines_of_a_run_are_passed_over(tmp_path) -> None:
    good = {"kind": "train", "step": 3, "loss": 1.0}
    lines = [json.dumps(good), "[1]", '{"a": 1}', '{"kind": "valid", "step": 3}', '{"kind": "tr']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert metrics(tmp_path) == [good]
    assert metrics(tmp_path / "nowhere") == []


def test_a_judge_must_suit_every_model(folders, data, tmp_path) -> None:
    other = Tokenizer.train_bpe(["quite another text, with other words"], 262)
    method = find_method("did").build(other)
    config = preset("tiny", other.vocabulary, method.heads)
    Model(Network(config), other, method, 30).save_pretrained(tmp_path / "other")
    result = compare(
        folders["did"], tmp_path / "other", "--data", data, "--judge", folders["ar"],
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert "another tokenizer" in str(result.exception)
    assert not (tmp_path / "out").exists()
