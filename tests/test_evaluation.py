"""Evaluation: bounds against the truth, and errors that are honest."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.bound import likelihood_bound
from didlm.evaluate.likelihood import REPLICATES, Likelihood, evaluate
from didlm.evaluate.paths import path_bound
from didlm.methods.did import FixedDID
from didlm.methods.registry import OURS
from didlm.packed import pack
from didlm.train.loop import train
from didlm.train.settings import Settings
from test_methods import TEXT, model_for, network_for


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


DOCUMENTS = [TEXT.strip(), "the dog saw a cat.", "a dog and a cat and the cat", "the cat"] * 3


class TestPaths:
    LENGTH, VOCABULARY = 3, 3

    def model(self):
        method = FixedDID(bos=0, fixed_length=self.LENGTH)
        return network_for(method, self.VOCABULARY), method

    @torch.no_grad()
    def truth(self, network, text: tuple[int, ...]) -> float:
        """p(text), summed over all ways of inserting one token after the other."""
        chance = {(): 1.0}
        for size in range(self.LENGTH):
            following: dict[tuple[int, ...], float] = {}
            states = list(chance)
            x_t = pack([list(state) for state in states], bos=0)
            none = torch.zeros(len(states))
            hidden = network(x_t, none, size + 1)
            rates = network.log_rate(hidden, none, x_t).view(len(states), size + 1)
            logits = (hidden @ network.token_head.T)[:, : self.VOCABULARY]
            joint = rates.softmax(-1)[..., None] * logits.softmax(-1).view(
                len(states), size + 1, self.VOCABULARY
            )
            for number, state in enumerate(states):
                for gap, token in itertools.product(range(size + 1), range(self.VOCABULARY)):
                    result = (*state[:gap], token, *state[gap:])
                    share = chance[state] * float(joint[number, gap, token])
                    following[result] = following.get(result, 0.0) + share
            chance = following
        assert sum(chance.values()) == pytest.approx(1, abs=1e-5)
        return chance[text]

    def test_the_bound_lies_above_the_truth_and_falls_with_the_number_of_paths(self) -> None:
        network, method = self.model()
        for text in [(1, 1, 1), (1, 2, 1), (2, 2, 1)]:
            truth = -math.log(self.truth(network, text))
            means, errors = [], []
            for paths, repeats in ((1, 400), (4, 150), (64, 30)):
                rng = np.random.default_rng(paths)
                bounds = [
                    path_bound(network, method, np.array(text), paths, rng) for _ in range(repeats)
                ]
                error = np.std(bounds) / math.sqrt(repeats)
                assert np.mean(bounds) > truth - 4 * error - 1e-6
                means.append(np.mean(bounds))
                errors.append(error)
            assert means[2] == pytest.approx(truth, abs=0.02)
            assert means[0] >= means[1] - 3 * np.hypot(*errors[:2]) - 1e-6
            assert means[1] >= means[2] - 5e-3

    def test_one_path_is_no_worse_than_the_plain_bound(self) -> None:
        network, method = self.model()
        corpus = Corpus.of([np.array([1, 2, 1])] * 300)
        plain = likelihood_bound(network, method, corpus, budget_for(corpus, 64), draws=3)
        rng = np.random.default_rng(0)
        one = [path_bound(network, method, np.array([1, 2, 1]), 1, rng) for _ in range(300)]
        assert plain.tight is not None
        error = plain.nats.std() / math.sqrt(300) + np.std(one) / math.sqrt(300)
        assert plain.tight.mean() < plain.nats.mean()
        assert np.mean(one) == pytest.approx(plain.tight.mean(), abs=4 * error)

    @pytest.mark.parametrize("name", ["did", "radd", "ar"])
    def test_other_models_have_none(self, name, tokenizer) -> None:
        model = model_for(name, tokenizer)
        rng = np.random.default_rng(0)
        sentence = f"needs a model of the method 'did-fixed': this one's is '{name}'"
        with pytest.raises(ValueError, match=sentence):
            path_bound(model.network, model.method, np.array([1]), 1, rng)
        with pytest.raises(ValueError, match=sentence):
            evaluate(model, DOCUMENTS, paths=2)

    def test_it_stands_beside_the_other_bounds(self, tokenizer) -> None:
        figures = evaluate(model_for("did-fixed", tokenizer), DOCUMENTS, paths=16).summary()
        assert figures["paths"] == 16
        dice, dse = figures["nats_per_token"], figures["nats_per_token_dse"]
        assert figures["nats_per_token_paths"] < dse < dice


class TestLikelihood:
    @pytest.mark.parametrize("name", [name for name in OURS if name != "ilm"])
    def test_counts_match_the_documents(self, name, tokenizer) -> None:
        result = evaluate(model_for(name, tokenizer, padding=30), DOCUMENTS)
        summary = result.summary()
        assert summary["method"] == name
        assert summary["kind"] == ("exact" if name == "ar" else "bound")
        if result.variable_length:
            assert result.tokens == sum(len(tokenizer.encode(text)) for text in DOCUMENTS)
            assert result.bytes == sum(len(text.encode()) for text in DOCUMENTS)
            assert summary["documents"] == len(DOCUMENTS)
        assert summary["perplexity"] == pytest.approx(math.exp(result.nats_per_token))
        bits = result.nats.sum(1).mean() / math.log(2) / result.bytes
        assert summary["bits_per_byte"] == pytest.approx(bits)

    def test_the_tighter_bound_is_tighter(self, tokenizer) -> None:
        summary = evaluate(model_for("did", tokenizer), ["a a a a cat cat"]).summary()
        assert summary["nats_per_token_dse"] < summary["nats_per_token"]

    @pytest.mark.parametrize("name", ["did", "radd"])
    def test_the_standard_error_of_the_noise_is_honest(self, name, tokenizer) -> None:
        model = model_for(name, tokenizer, padding=20)
        if model.network.rate_head is not None:  # as wild as it is, its rates have heavy tails
            model.network.rate_head.weight.data.mul_(0.05)
        documents = [text[:24] for text in DOCUMENTS[:4]]
        runs = [evaluate(model, documents, seed=REPLICATES * run) for run in range(200)]
        means = np.array([run.nats_per_token for run in runs])
        z = (means - means.mean()) / np.array([run.stderr for run in runs])
        assert 0.75 < z.var() < 1.35

    def test_an_exact_likelihood_has_no_noise(self, tokenizer) -> None:
        result = evaluate(model_for("ar", tokenizer), DOCUMENTS)
        assert result.stderr == 0
        assert result.stderr_documents > 0

    def test_documents_of_many_lengths_are_no_error_in_themselves(self) -> None:
        lengths = np.array([3, 10, 50, 200])
        exact = Likelihood("ar", True, 1.5 * lengths[None], None, lengths, 900, 0, True)
        assert exact.stderr_documents == pytest.approx(0, abs=1e-12)
        one = Likelihood("ar", True, np.array([[800.0]]), None, np.array([1]), 9, 0, True)
        assert one.summary()["stderr_documents"] is None
        json.dumps(one.summary(), allow_nan=False)

    def test_bytes_are_those_of_the_text_even_where_chunks_cut_characters(self, tokenizer) -> None:
        texts = ["naïve 漢字 and 🙂 again " * 3]
        (ids,) = tokenizer.encode_batch(texts)
        chunks = evaluate(model_for("did-fixed", tokenizer, fixed_length=4), texts)
        stream = np.append(ids, tokenizer.separator)
        left = stream[len(stream) // 4 * 4 :]
        assert chunks.bytes == len(texts[0].encode()) - tokenizer.count_bytes(left)

    def test_no_bound_no_figures(self, tokenizer) -> None:
        with pytest.raises(ValueError, match="'ilm' has no bound"):
            evaluate(model_for("ilm", tokenizer), DOCUMENTS)


class TestOrder:
    """What a model has learnt of the order of words shows in the figures."""

    TEXTS = ("one two three four five six seven eight", "eight six four two seven five three one")

    @pytest.mark.parametrize("method", ["ar", "did"])
    def test_shuffled_words_score_far_worse(self, method, tmp_path) -> None:
        data = tmp_path / "data.txt"
        data.write_text("<|endoftext|>".join(self.TEXTS * 20))
        settings = Settings(
            method=method, data=str(data), valid=str(data), vocabulary=300, steps=80, batch=16,
            warmup=10, average=0.9, given_share=0.0, validate_every=80, valid_documents=2,
            samples=1, sample_steps=4,
        )  # fmt: skip
        model = train(settings, tmp_path / "run")
        rng = np.random.default_rng(0)
        shuffled = [" ".join(rng.permutation(text.split())) for text in self.TEXTS * 4]
        ordered = evaluate(model, self.TEXTS)
        wrong = evaluate(model, shuffled)
        assert wrong.nats_per_token > 3 * ordered.nats_per_token
        assert wrong.nats_per_token > ordered.nats_per_token + 2


class TestCommand:
    def run(self, *arguments: object) -> object:
        return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])

    def test_figures_are_shown_and_written(self, tokenizer, tmp_path) -> None:
        model_for("did", tokenizer).save_pretrained(tmp_path / "model")
        data = tmp_path / "data.jsonl"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
        out = tmp_path / "figures.json"
        result = self.run("--model", tmp_path / "model", "--data", data, "--json", out)
        assert result.exit_code == 0, result.output
        assert "upper bound" in result.stdout
        figures = json.loads(out.read_text())
        wanted = {"method", "bits_per_byte", "nats_per_token", "perplexity", "stderr"}
        assert wanted | {"documents", "tokens", "bytes"} <= set(figures)

    def test_an_empty_file_is_refused(self, tokenizer, tmp_path) -> None:
        model_for("did", tokenizer).save_pretrained(tmp_path / "model")
        (tmp_path / "empty.txt").write_text("")
        result = self.run("--model", tmp_path / "model", "--data", tmp_path / "empty.txt")
        assert "is empty" in str(result.exception)

    @pytest.mark.parametrize("name", ["ar", "did"])
    def test_bytes_and_tokens_are_those_of_the_file(self, name, tokenizer, tmp_path) -> None:
        model_for(name, tokenizer).save_pretrained(tmp_path / "model")
        texts = ["the dog saw a cat.", "una niña vio un 🐕", "a cat"]
        data, out = tmp_path / "data.jsonl", tmp_path / "figures.json"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        result = self.run("--model", tmp_path / "model", "--data", data, "--json", out)
        assert result.exit_code == 0, result.output
        figures = json.loads(out.read_text())
        assert figures["bytes"] == sum(len(text.encode("utf-8")) for text in texts)
        assert figures["tokens"] == sum(len(tokenizer.encode(text)) for text in texts)
        assert (figures["documents"], figures["documents_cut"]) == (3, 0)
