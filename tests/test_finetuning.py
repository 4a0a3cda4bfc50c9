"""Going on from a model, on prompts and responses."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import didlm
from didlm.data.batch import make_batch
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.command import evaluate_for_user
from didlm.evaluate.likelihood import evaluate
from didlm.methods.registry import OURS
from didlm.train.loop import train
from didlm.train.settings import Settings

WORDS = ["red", "blue", "green", "fox", "owl", "runs", "sleeps", "and", "then"]
WHOLE = [name for name in OURS if name != "did-fixed"]  # those that can have prompts


def lines(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def settings(data: str, **changes) -> Settings:
    return Settings().changed(
        {
            "data": data,
            "steps": 3,
            "batch": 8,
            "valid": "0.2",
            "validate_every": 3,
            "valid_documents": 10,
            "samples": 0,
            "log_every": 1,
            "vocabulary": 300,
            "max_length": 60,
            "fixed_length": 60,
            "padding": 60,
        }
        | changes
    )


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> str:
    rng = np.random.default_rng(0)
    rows = [{"text": " ".join(rng.choice(WORDS, rng.integers(4, 12)))} for _ in range(100)]
    return lines(tmp_path_factory.mktemp("texts") / "texts.jsonl", rows)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(100):
        words = rng.choice(WORDS, rng.integers(1, 5)).tolist()
        rows.append({"prompt": " ".join(words) + " |", "response": "".join(f" {w}" for w in words)})
    return lines(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", rows)


@pytest.mark.parametrize("method", WHOLE)
def test_a_model_goes_on_with_prompts_and_responses(texts, pairs, tmp_path, method) -> None:
    start = train(settings(texts, method=method), tmp_path / "start")
    changes = {"method": method, "init": str(tmp_path / "start"), "column": "prompt+response"}
    tuned = train(settings(pairs, **changes), tmp_path / "tuned")
    assert tuned.tokenizer.fingerprint() == start.tokenizer.fingerprint()
    assert tuned.network.config == start.network.config
    card = (tmp_path / "tuned" / "README.md").read_text()
    assert "| size | that of start |" in card
    (valid,) = [
        line
        for line in map(json.loads, (tmp_path / "tuned" / "metrics.jsonl").read_text().splitlines())
        if line["kind"] == "valid"
    ]
    assert "conditional_nats_per_token" not in valid  # all of it is conditional
    if tuned.method.bounded:
        # Responses have fewer tokens than prompts and responses together.
        tokens = valid["nats_per_document"] / valid["nats_per_token"]
        documents = [json.loads(line) for line in Path(pairs).read_text().splitlines()]
        mean = np.mean([len(tuned.tokenizer.encode(d["response"])) for d in documents])
        both = mean + np.mean([len(tuned.tokenizer.encode(d["prompt"])) for d in documents])
        assert 0.5 * mean < tokens < 0.75 * both


def test_a_model_goes_on_from_where_it_was(texts, tmp_path) -> None:
    """Its first loss is the last of the model's, not that of a new one."""
    train(settings(texts, steps=60, average=0.5), tmp_path / "start")
    train(settings(texts, init=str(tmp_path / "start"), steps=1), tmp_path / "more")
    train(settings(texts, steps=1), tmp_path / "new")

    def losses(folder) -> list[float]:
        rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [row["loss"] for row in rows if row["kind"] == "train"]

    assert losses(tmp_path / "more")[0] < 0.8 * losses(tmp_path / "new")[0]


def test_learnt_pairs_are_written_after_their_prompts(tmp_path) -> None:
    """Few enough to learn by heart: what follows a prompt is its own response."""
    pairs = [{"prompt": f"{w} |", "response": f" {w} {w}"} for w in ("red", "fox", "owl")] * 20
    data = lines(tmp_path / "pairs.jsonl", pairs)
    changes = {"column": "prompt+response", "valid": data, "steps": 250, "learning_rate": 6e-3}
    changes |= {"validate_every": 250}
    model = train(settings(data, **changes), tmp_path / "run")
    for word in ("red", "fox", "owl"):
        samples = model.generate(prompt=f"{word} |", num_samples=20, steps=64, seed=0)
        texts = [sample.text for sample in samples]
        assert all(set(text.split()) <= {word, "|"} for text in texts), texts
        assert texts.count(f"{word} | {word} {word}") >= 12, texts


def test_responses_are_scored_given_their_prompts(texts, pairs, tmp_path) -> None:
    """For an exact model: log p(prompt, response) - log p(prompt and anything), by hand."""
    model = train(settings(texts, method="ar"), tmp_path / "run")
    documents = [json.loads(line) for line in Path(pairs).read_text().splitlines()][:5]
    prompts, responses = ([d[name] for d in documents] for name in ("prompt", "response"))
    result = evaluate(model, responses, prompts=prompts)
    expected = []
    for prompt, response in zip(prompts, responses, strict=True):
        given, rest = model.tokenizer.encode(prompt), model.tokenizer.encode(response)
        batch = make_batch(model.method.training_examples([np.append(given, rest)], [0], 0))
        hidden = model.network(batch.x_t, batch.deleted, batch.longest)
        logits = model.network.logits(hidden)[:, : model.tokenizer.vocabulary]
        log_p = logits.log_softmax(-1)[range(len(batch.token)), batch.token]
        expected.append(-log_p[len(given) :].sum().item())
    np.testing.assert_allclose(result.nats[0], expected, rtol=1e-4)
    assert result.bytes == sum(len(response.encode()) for response in responses)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    evaluate_for_user(
        str(tmp_path / "run"),
        tmp_path / "pairs.jsonl",
        None,
        1,
        0,
        0,
        "prompt+response",
        "cpu",
        tmp_path / "figures.json",
    )
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["nats_per_token"] == pytest.approx(result.nats_per_token)
    assert figures["tokens"] == result.tokens


def test_what_cannot_be_is_refused_in_one_sentence(texts, pairs, tmp_path) -> None:
    train(settings(texts, padding=0), tmp_path / "start")
    start = str(tmp_path / "start")

    def refused(sentence: str, data: str = texts, **changes) -> None:
        with pytest.raises(ValueError, match=sentence):
            train(settings(data, **changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    refused("is of the method 'did' and cannot go on as 'ar'", init=start, method="ar")
    refused("neither a folder|there is no folder|is not a model", init=str(tmp_path / "nowhere"))
    Tokenizer.train_bpe(["other words", "other words"], 280).save(tmp_path / "other")
    refused("is not that of the model", init=start, tokenizer=str(tmp_path / "other"))
    both = {"column": "prompt+response", "padding": 0}
    refused("documents with prompts cannot be laid end to end", pairs, method="did-fixed", **both)
    refused("there are no documents|has no column", texts, column="prompt+response")
    refused("must be one of ddp, fsdp: got 'horovod'", distribution="horovod")
    refused("use bf16", distribution="fsdp", precision="fp16")


def test_prompts_that_leave_no_room_are_left_out_and_counted(tmp_path, capfd) -> None:
    rows = [{"prompt": "red fox |" * 30, "response": " red"}] * 3
    rows += [{"prompt": f"{w} |", "response": f" {w} " * 30} for w in WORDS * 3]
    data = lines(tmp_path / "pairs.jsonl", rows)
    model = train(settings(data, column="prompt+response", valid="0.3"), tmp_path / "run")
    said = capfd.readouterr().err
    assert "documents were left out: their prompts alone have 60 tokens or more" in said
    assert "documents were cut to 60 tokens" in said
    assert torch.isfinite(model.network.token_head).all()
    assert didlm.load(tmp_path / "run").longest == 60
