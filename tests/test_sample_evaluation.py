"""`didlm evaluate --samples` from end to end."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.likelihood import evaluate
from didlm.evaluate.order import measure_order
from didlm.evaluate.quality import data_lengths, ks_distance, measure
from didlm.evaluate.samples import write_samples
from didlm.generate.results import Sample
from didlm.methods.registry import OURS
from didlm.pretrained import load
from test_methods import TEXT, model_for

KEYS = {
    "method", "samples", "steps", "nfe", "seconds", "network_seconds", "sampling_seconds",
    "entropy_bits", "length_mean", "length_std", "data_length_mean", "length_ks", "distinct",
    "copied_13_grams", "judge", "generative_perplexity", "generative_nats_per_token", "order",
}  # fmt: skip
DOCUMENTS = [TEXT.strip(), "the dog saw a cat.", "a dog and a cat and the cat"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


@pytest.fixture(scope="module")
def place(tokenizer, tmp_path_factory):
    """A folder with models of every method, and documents."""
    folder = tmp_path_factory.mktemp("place")
    for name in OURS:
        model_for(name, tokenizer).save_pretrained(folder / name)
    lines = [json.dumps({"text": text, "other": "a cat"}) + "\n" for text in DOCUMENTS]
    (folder / "data.jsonl").write_text("".join(lines))
    return folder


def run(*arguments: object):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def figures(place, tmp_path, *arguments: object, model: str = "did") -> dict:
    out = tmp_path / "figures.json"
    result = run(
        "--model", place / model, "--samples", "--num", 5, "--steps", 8, "--json", out, *arguments
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(out.read_text())


class TestFigures:
    @pytest.mark.parametrize("name", OURS)
    def test_every_method_can_be_measured(self, name, place, tmp_path) -> None:
        found = figures(place, tmp_path, "--order", model=name)
        assert set(found) >= KEYS
        assert (found["method"], found["samples"]) == (name, 5)
        for absent in ("data_length_mean", "length_ks", "copied_13_grams", "judge"):
            assert found[absent] is None
        assert set(found["distinct"]) == {"1", "2", "3", "4"}
        assert found["seconds"] >= found["network_seconds"] > 0
        total = found["network_seconds"] + found["sampling_seconds"]
        assert total == pytest.approx(found["seconds"])
        assert found["nfe"] <= found["steps"]
        assert found["order"]["insertions_per_step"] > 0

    def test_they_are_those_of_the_samples_that_generate_writes(self, place, tmp_path) -> None:
        found = figures(place, tmp_path, "--seed", 3, "--batch-size", 2, "--top-p", 0.9)
        samples = load(place / "did").generate(num_samples=5, steps=8, seed=3, top_p=0.9)
        assert found["lengths"] == [len(sample) for sample in samples]
        assert found["length_mean"] == pytest.approx(np.mean(found["lengths"]))
        assert found["length_std"] == pytest.approx(np.std(found["lengths"]))
        assert found["nfe"] == pytest.approx(np.mean([sample.nfe for sample in samples]))
        assert found["order"] is None
        assert found["settings"] == {
            "num": 5, "seed": 3, "batch_size": 2, "steps": 8, "top_p": 0.9, "temperature": 1.0,
            "position_temperature": 1.0, "rate_scale": 1.0, "repeats": True,
        }  # fmt: skip

    def test_insertion_never_bears_neighbours_together_and_masked_diffusion_does(
        self, tokenizer
    ) -> None:
        for name in OURS:
            samples = model_for(name, tokenizer).generate(num_samples=30, steps=4, seed=0)
            order = measure_order(samples, tokenizer)
            if name == "radd":
                assert order.together > 0.1
            else:
                assert order.together == 0

    def test_lengths_are_compared_with_the_data(self, place, tmp_path, tokenizer) -> None:
        found = figures(place, tmp_path, "--data", place / "data.jsonl")
        lengths = [len(tokenizer.encode(text)) for text in DOCUMENTS]
        assert found["data_length_mean"] == pytest.approx(np.mean(lengths))
        assert found["length_ks"] == pytest.approx(ks_distance(found["lengths"], lengths))
        found = figures(place, tmp_path, "--data", place / "data.jsonl", "--column", "other")
        assert found["data_length_mean"] == len(tokenizer.encode("a cat"))
        found = figures(place, tmp_path, "--data", place / "data.jsonl", "--documents", 1)
        assert found["data_length_mean"] == lengths[0]

    def test_lengths_of_the_data_are_what_the_model_is_trained_on(self, tokenizer) -> None:
        model = model_for("did", tokenizer)
        assert data_lengths(model, [TEXT * 100]).tolist() == [model.longest]
        assert set(data_lengths(model_for("did-fixed", tokenizer), [TEXT * 9])) == {12}

    def test_copying_is_found(self, place, tmp_path) -> None:
        model = load(place / "ar")
        tokens = model.tokenizer.encode(TEXT * 2).tolist()
        copy = Sample(TEXT * 2, tokens, list(range(1, len(tokens) + 1)), 9, 9, 0.0, 0, 0)
        assert len(tokens) > 13
        assert measure(model, [copy], training=["none of it", TEXT * 3]).copied == 1
        assert measure(model, [copy], training=["none of it"]).copied == 0
        assert measure(model, [copy]).copied is None
        found = figures(place, tmp_path, "--training-data", place / "data.jsonl", model="ar")
        assert found["copied_13_grams"] == 0

    def test_a_judge_of_ours_gives_its_exact_likelihood(self, place, tmp_path) -> None:
        found = figures(place, tmp_path, "--judge", place / "ar")
        judge, texts = load(place / "ar"), load(place / "did").generate(None, None, 5, 8, seed=0)
        some = [sample.text for sample in texts if sample.text]
        nats = np.array([evaluate(judge, [text]).nats.item() for text in some])
        tokens = np.array([min(len(judge.tokenizer.encode(t)), judge.longest) for t in some])
        assert found["judge"] == str(place / "ar")
        assert found["generative_perplexity"] == pytest.approx(
            math.exp((nats / tokens).mean()), rel=1e-4
        )
        assert found["generative_nats_per_token"] == pytest.approx(
            nats.sum() / tokens.sum(), rel=1e-4
        )
        assert found["texts_not_judged"] == 5 - len(some)

    def test_the_bar_on_a_terminal_changes_nothing(self, place, monkeypatch) -> None:
        model, screen = load(place / "did"), io.StringIO()
        plain = write_samples(model, 5, 0, 2, steps=4)
        terminal = Console(file=screen, force_terminal=True)
        monkeypatch.setattr("didlm.evaluate.samples.Console", lambda **_: terminal)
        shown = write_samples(model, 5, 0, 2, steps=4)
        assert [sample.tokens for sample in shown] == [sample.tokens for sample in plain]
        assert "5/5" in screen.getvalue()

    def test_people_get_a_table(self, place) -> None:
        result = run("--model", place / "did", "--samples", "--num", 3, "--steps", 4, "--order")
        assert "did: 3 texts" in result.stdout
        assert "order of writing" in result.stdout


class TestRefusals:
    """Each is one sentence, before anything is written."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--judge", "no/such/judge"], "there is no judge 'no/such/judge': "),
            (["--judge", "HERE/other"], "another tokenizer than the model"),
            (["--judge", "HERE/radd"], "its method is 'radd'"),
            (["--data", "HERE/empty.txt"], "empty.txt is empty"),
            (["--training-data", "HERE/none.txt"], "there is no file"),
            (["--num", "0"], "cannot write 0 texts"),
            (["--steps", "0"], "steps"),
            (["--batch-size", "0"], "a batch size of 0"),
            (["--json", "HERE/nowhere/figures.json"], "there is no folder"),
            (["--draws", "3"], "--draws has no effect with --samples"),
            (["--device", "abacus"], "there is no device 'abacus'"),
        ],
    )
    def test_bad_input_is_found_out_before_writing(
        self, place, monkeypatch, arguments, sentence
    ) -> None:
        other = Tokenizer.train_bpe([TEXT] * 3, 270)
        model_for("ar", other).save_pretrained(place / "other")
        (place / "empty.txt").write_text("")

        def write(*_: object) -> None:
            raise AssertionError("it began to write")

        monkeypatch.setattr("didlm.generate.writing._write_batch", write)
        arguments = [argument.replace("HERE", str(place)) for argument in arguments]
        result = run("--model", place / "did", "--samples", *arguments)
        assert isinstance(result.exception, ValueError), result.exception
        assert sentence in str(result.exception)
        assert "\n" not in str(result.exception)

    def test_data_too_short_for_a_chunk_is_found_out_too(self, place, tmp_path) -> None:
        (tmp_path / "short.txt").write_text("a cat")
        data = tmp_path / "short.txt"
        result = run("--model", place / "did-fixed", "--samples", "--data", data)
        assert "too few for one chunk" in str(result.exception)

    def test_without_samples_there_must_be_data(self, place) -> None:
        result = run("--model", place / "did")
        assert "--data is missing" in str(result.exception)

    @pytest.mark.parametrize("option", [["--judge", "x"], ["--order"], ["--top-p", "0.5"]])
    def test_options_of_samples_need_samples(self, place, option) -> None:
        result = run("--model", place / "did", "--data", place / "data.jsonl", *option)
        assert f"{option[0]} has no effect without --samples" in str(result.exception)

    def test_nothing_is_measured_without_samples(self, tokenizer) -> None:
        with pytest.raises(ValueError, match="no samples"):
            measure(model_for("did", tokenizer), [])
