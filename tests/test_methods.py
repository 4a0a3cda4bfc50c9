"""The methods beside DID: their losses against direct computations, and all of them end to end."""

import itertools
import math
import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from didlm.data.batch import make_batch
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.bound import likelihood_bound
from didlm.generate import scorer as scorers
from didlm.given import given_prefix, given_suffix
from didlm.loss import batch_loss, sequence_costs
from didlm.methods import registry
from didlm.methods.ar import AR
from didlm.methods.ilm import ILM
from didlm.methods.method import Method
from didlm.methods.radd import FORMS, RADD
from didlm.methods.registry import OURS, find_method
from didlm.model.config import PRESETS, ModelConfig, preset
from didlm.model.transformer import Network
from didlm.packed import pack
from didlm.pretrained import Model, load
from didlm.train.loop import train
from didlm.train.settings import Settings

TEXT = "a cat saw a dog and the dog saw the cat. "
BOS, MASK = 0, 3
DATA = {(1, 1, 2): 0.4, (2, 1, 1): 0.3, (1, 2, 2): 0.2, (2, 2, 2): 0.1}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


def network_for(method: Method, vocabulary: int, **changes) -> Network:
    """A small network with opinions."""
    heads = method.heads
    config = ModelConfig(
        vocabulary,
        layers=2,
        width=32,
        heads=2,
        feed_forward=48,
        condition=16 if heads.timed else None,
        rates=heads.rates,
        normalised=heads.normalised,
        causal=heads.causal,
        stop=heads.stop,
        flags=heads.flags,
        marks=heads.marks,
    )
    network = Network(replace(config, **changes)).eval()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            spread = 0.02 if ".modulation." in name else 0.3
            torch.nn.init.normal_(parameter, std=spread, generator=generator)
    return network


def model_for(name: str, tokenizer: Tokenizer, **options) -> Model:
    options = {"fixed_length": 12} | options
    method = find_method(name).build(tokenizer, **options)
    return Model(network_for(method, tokenizer.vocabulary), tokenizer, method, method.length or 40)


class TestRADD:
    LENGTH = 4
    MASKS = tuple(m for m in itertools.product((False, True), repeat=LENGTH) if any(m))

    def expected(self, method: RADD, cost: dict[tuple[bool, ...], float]) -> float:
        """The mean of weight x cost over all draws of a form."""
        places = (np.arange(4000) + 0.5) / 4000
        rng, total = np.random.default_rng(0), 0.0
        for place in places:
            noise = method._training_noise(self.LENGTH, place, rng)
            for mask in self.MASKS:
                k = sum(mask)
                if noise.count is None:
                    chance = noise.deleted**k * (1 - noise.deleted) ** (self.LENGTH - k)
                else:
                    chance = (k == noise.count) / math.comb(self.LENGTH, k)
                total += chance * noise.weight * cost[mask] / len(places)
        return total

    def test_the_three_forms_have_one_mean(self) -> None:
        rng = np.random.default_rng(1)
        cost = {mask: sum(mask) * rng.random() for mask in self.MASKS}
        method = RADD(BOS, MASK, 2, self.LENGTH)
        means = {form: self.expected(replace(method, form=form), cost) for form in FORMS}
        means["geometric"] = self.expected(replace(method, form="t", schedule="geometric"), cost)
        assert means["k"] > 0
        for mean in means.values():
            assert mean == pytest.approx(means["k"], rel=2e-3)

    @pytest.mark.parametrize("form", FORMS)
    def test_masked_tokens_are_targets_at_their_own_rows(self, form) -> None:
        method = RADD(BOS, MASK, 2, 6, form=form)
        texts = [np.array([1, 2, 1, 1, 2, 2])] * 50
        examples = method.training_examples(texts, range(50), seed=3)
        whole = pack(texts, BOS).tokens.numpy()
        masked = examples.tokens == MASK
        assert (examples.row == np.flatnonzero(masked)).all()
        assert (examples.token == whole[masked]).all()
        assert (examples.tokens[~masked] == whole[~masked]).all()
        assert 0.3 < masked.mean() < 0.6  # half of them, less BOS

    def conditional(self, seen: dict[int, int], place: int, token: int, tilt: float) -> float:
        """p(token at a place | what is seen), exactly, or tilted away from it."""
        fitting = {x: p for x, p in DATA.items() if all(x[i] == v for i, v in seen.items())}
        exact = sum(p for x, p in fitting.items() if x[place] == token) / sum(fitting.values())
        return (1 - tilt) * exact + tilt * (0.8 if token == 1 else 0.2)

    @pytest.mark.parametrize("tilt", [0.0, 0.3])
    def test_the_bound_is_tight_if_exact_and_else_above_the_truth(self, tilt) -> None:
        method = RADD(BOS, MASK, 9, 3)
        for text, probability in DATA.items():
            array, bounds = np.array(text), []
            for seed in range(1500):
                state = method.evaluation_examples([array], [0], seed, draws=3)
                cost = 0.0
                for part in (state.part(i, i + 1) for i in range(len(state))):
                    read = part.tokens[1:]
                    seen = {i: int(v) for i, v in enumerate(read) if v != MASK}
                    for row, token, target in zip(part.row, part.token, part.target, strict=True):
                        cost -= target * math.log(self.conditional(seen, row - 1, token, tilt))
                bounds.append(cost)
            mean, error = np.mean(bounds), np.std(bounds) / math.sqrt(len(bounds))
            orders = []
            for order in itertools.permutations(range(3)):
                chances = [
                    self.conditional({i: text[i] for i in order[:n]}, place, text[place], tilt)
                    for n, place in enumerate(order)
                ]
                orders.append(math.prod(chances))
            truth = -math.log(np.mean(orders))
            assert mean > truth - 4 * error - 1e-9
            # Mean over orders of the sum of logs: what the bound is, whatever the model.
            assert mean == pytest.approx(-np.mean(np.log(orders)), abs=4 * error + 1e-9)
            if tilt == 0:
                assert truth == pytest.approx(-math.log(probability))
                assert mean == pytest.approx(truth, abs=4 * error + 1e-9)

    def test_documents_are_padded_and_cut(self) -> None:
        method = RADD(BOS, MASK, separator=7, fixed_length=4, padded=True)
        short, long = method.lay_out(Corpus.of([[1, 2], np.arange(10, 20)], 7), 1024)
        assert short.tolist() == [1, 2, 7, 7]
        assert long.tolist() == [10, 11, 12, 13]
        assert method.finish(short) == 2
        assert method.finish(long) == 4

    def test_given_tokens_are_not_masked_and_not_scored(self) -> None:
        method = RADD(BOS, MASK, 2, 6)
        text = np.array([1, 2, 1, 1, 2, 2])
        examples = method.evaluation_examples([text], [0], 0, 5, [given_prefix(6, 4)])
        assert (examples.tokens.reshape(-1, 7)[:, 1:5] == text[:4]).all()

    def test_unknown_forms_are_refused(self) -> None:
        with pytest.raises(ValueError, match="form must be one of t, lambda, k"):
            RADD(BOS, MASK, 2, 4, form="l")


class TestILM:
    @torch.no_grad()
    def test_the_loss_is_what_the_definition_says(self) -> None:
        rng = np.random.default_rng(0)
        texts = [rng.integers(1, 9, rng.integers(1, 9)) for _ in range(40)]
        method = ILM(BOS)
        network = network_for(method, 9)
        examples = method.training_examples(texts, range(40), seed=5)
        batch = make_batch(examples)
        found = sequence_costs(batch_loss(network, batch), batch)
        hidden = network(batch.x_t, batch.deleted, batch.longest)
        logits = (hidden @ network.token_head.T)[:, :9].log_softmax(-1)
        rates = network.log_rate(hidden, batch.deleted, batch.x_t)
        stops = network.stop_logit(hidden, batch.x_t).double()
        seen_complete = 0
        for number in range(40):
            rows = slice(int(batch.x_t.offsets[number]), int(batch.x_t.offsets[number + 1]))
            joint = logits[rows] + rates[rows].log_softmax(0)[:, None]  # one softmax over all
            assert float(joint.exp().sum()) == pytest.approx(1)
            part = examples.part(number, number + 1)
            missing = len(texts[number]) + 1 - len(part.tokens)
            chance = torch.sigmoid(stops[number])
            direct = -torch.log(chance if missing == 0 else 1 - chance)
            # Which tokens were dropped where follows from the state and the targets alone.
            rebuilt = []
            for row, token in enumerate(part.tokens.tolist()):
                rebuilt += [token, *part.token[part.row == row].tolist()]
            assert rebuilt[1:] == texts[number].tolist()
            for row, token in zip(part.row, part.token, strict=True):
                direct = direct - joint[row, token] / missing
            assert float(found[number]) == pytest.approx(float(direct.detach()), rel=1e-4)
            seen_complete += missing == 0
        assert seen_complete > 0

    def test_every_number_of_missing_tokens_is_equally_likely(self) -> None:
        texts = [np.arange(1, 5)] * 5000
        examples = ILM(BOS).training_examples(texts, range(5000), seed=0)
        left = np.bincount(np.diff(examples.offsets) - 1, minlength=5)
        assert (abs(left - 1000) < 30).all()
        assert examples.complete.sum() == left[4]

    def test_it_has_no_bound(self, tokenizer) -> None:
        with pytest.raises(ValueError, match="'ilm' has no bound on the likelihood"):
            model_for("ilm", tokenizer).score(TEXT)


class TestAR:
    def probability(self, network: Network, method: AR, texts: list[tuple[int, ...]]) -> Tensor:
        corpus = Corpus.of([np.array(text, dtype=np.int64) for text in texts])
        bound = likelihood_bound(network, method, corpus, budget_for(corpus, 64), draws=1)
        return torch.from_numpy(np.exp(-bound.nats))

    def test_all_texts_together_have_probability_one(self) -> None:
        method = AR(bos=0, end=3)
        network = network_for(method, 4)
        network.token_head.data[0] -= 100 * torch.sign(network.token_head.data[0])
        texts = [t for n in range(4) for t in itertools.product((0, 1, 2), repeat=n)]
        ended = float(self.probability(network, method, texts).sum())
        # What has not ended after three tokens: leave out the cost of ending.
        going_on = 0.0
        for text in itertools.product((0, 1, 2), repeat=3):
            for token in (0, 1, 2):
                batch = make_batch(
                    method.training_examples([np.array([*text, token])], [0], seed=0)
                )
                loss = batch_loss(network, batch)
                going_on += math.exp(float(loss.log_prob[:4].sum()))
        assert ended + going_on == pytest.approx(1, abs=1e-5)

    def test_a_prompt_is_not_scored_and_the_rest_adds_up(self, tokenizer) -> None:
        model = model_for("ar", tokenizer)
        whole = model.score(TEXT).log_likelihood
        rest = model.score(TEXT, given="a cat[...]").log_likelihood
        first = model.score("a cat").log_likelihood
        assert whole < rest < 0
        tokens = tokenizer.encode("a cat")
        batch = make_batch(model.method.training_examples([tokens], [0], 0))
        end = float(batch_loss(model.network, batch).log_prob[-1])
        assert whole == pytest.approx(first - end + rest, rel=1e-5)

    def test_ending_is_paid_for_even_if_all_else_is_given(self, tokenizer) -> None:
        model = model_for("ar", tokenizer)
        assert model.score("").log_likelihood < 0
        assert model.score("a cat", given="a cat[...]").log_likelihood < 0

    def test_only_a_beginning_can_be_given(self) -> None:
        with pytest.raises(ValueError, match="a beginning, and nothing else"):
            AR(0, 1).evaluation_examples([np.array([2, 3])], [0], 0, 1, [given_suffix(2, 1)])

    def test_cached_samples_equal_uncached_ones(self, tokenizer, monkeypatch) -> None:
        model = model_for("ar", tokenizer)

        def write() -> list[str]:
            texts = model.generate("a cat", num_samples=40, seed=0, batch_size=16)
            texts += model.generate(num_samples=40, seed=0, batch_size=7, top_p=0.9)
            return [sample.text for sample in texts]

        cached = write()
        monkeypatch.setattr(scorers.CausalScorer, "read", scorers.NetworkScorer.read)
        uncached = write()
        assert sum(a == b for a, b in zip(cached, uncached, strict=True)) >= 79
        assert len(set(cached)) > 70

    def test_each_row_is_read_once(self, tokenizer, monkeypatch) -> None:
        model, read = model_for("ar", tokenizer), []
        extend = Network.extend

        def counting(network, x_t, memory):
            read.append(len(memory.new))
            return extend(network, x_t, memory)

        monkeypatch.setattr(Network, "extend", counting)
        sample = model.generate("a cat", seed=0)[0]
        given = len(tokenizer.encode("a cat"))
        assert read[0] == given + 1  # with BOS
        assert set(read[1:]) == {1}
        assert sample.nfe == len(read)

    def test_its_memory_lies_in_room_of_few_sizes(self, tokenizer, monkeypatch) -> None:
        """A GPU would look for new memory at every token, and keep the old."""
        model, rows, sizes = model_for("ar", tokenizer), set(), set()
        read = scorers.CausalScorer.read

        def watching(scorer, x_t, deleted, recall):
            if recall.memory.numel():
                rows.add(len(recall.memory))
                sizes.add(recall.memory.untyped_storage().nbytes())
            return read(scorer, x_t, deleted, recall)

        monkeypatch.setattr(scorers.CausalScorer, "read", watching)
        model.generate(num_samples=32, seed=0, min_length=40)
        assert len(rows) == 39  # each time but the first
        assert len(sizes) < len(rows) / 3


class TestEveryMethod:
    @pytest.mark.parametrize("name", OURS)
    def test_without_repeats_hardly_any_token_comes_beside_its_equal(self, name, tokenizer) -> None:
        """None at all, but separators, and where the tokens of a pass may be neighbours: marks."""
        model, separator = model_for(name, tokenizer), tokenizer.separator
        few = {*range(40, 44), separator}
        rest = [n for n in range(tokenizer.vocabulary) if n not in few]
        options = {"num_samples": 60, "steps": 64, "seed": 1, "banned": rest}
        found = []
        for repeats in (True, False):
            samples = model.generate(**options, repeats=repeats)
            pairs = [pair for sample in samples for pair in pairwise(sample.tokens)]
            found.append(sum(a == b != separator for a, b in pairs))
            assert name in ("ilm", "did", "ar") or (separator, separator) in pairs
        assert found[0] > 10
        assert found[1] <= (found[0] / 4 if name == "radd" else 0)

    @pytest.mark.parametrize("name", PRESETS)
    def test_networks_of_one_size_have_as_many_parameters(self, name, tokenizer) -> None:
        counts = {}
        for method in OURS.values():
            with torch.device("meta"):
                network = Network(preset(name, 32_000, method.build(tokenizer).heads))
            counts[method.name] = sum(p.numel() for p in network.parameters())
        assert max(counts.values()) < 1.02 * min(counts.values()), counts

    @pytest.mark.parametrize("name", OURS)
    def test_models_come_back_from_their_folder(self, name, tokenizer, tmp_path) -> None:
        model = model_for(name, tokenizer)
        model.save_pretrained(tmp_path)
        again = load(tmp_path)
        assert again.method == model.method
        assert str(again.generate(seed=3)[0]) == str(model.generate(seed=3)[0])

    @pytest.mark.parametrize("name", OURS)
    def test_lengths_are_obeyed(self, name, tokenizer) -> None:
        model = model_for(name, tokenizer)
        if model.method.length is None:
            # An untrained network that writes one token a call ends one text in some seventy.
            texts = model.generate(num_samples=400, seed=0, min_length=5, max_length=9)
            assert all(5 <= len(text) <= 9 for text in texts)
            assert {len(text) for text in texts} != {9}
        else:
            assert all(len(text) == 12 for text in model.generate(num_samples=20, seed=0))

    @pytest.mark.parametrize("name", OURS)
    def test_prompts_stand_at_the_beginning(self, name, tokenizer) -> None:
        for sample in model_for(name, tokenizer).generate("a cat saw", num_samples=10, seed=0):
            assert sample.text.startswith("a cat saw")

    @pytest.mark.parametrize("name", ["did", "did-fixed", "radd", "ilm"])
    def test_blanks_are_filled(self, name, tokenizer) -> None:
        for sample in model_for(name, tokenizer).infill("a [...] dog", num_samples=10, seed=0):
            assert sample.text.startswith("a ")
            assert sample.text.endswith(" dog")

    def test_an_autoregressive_model_cannot_fill_blanks(self, tokenizer) -> None:
        with pytest.raises(ValueError, match="writes from left to right"):
            model_for("ar", tokenizer).infill("a [...] dog")

    def test_a_masked_model_must_know_the_sizes_of_blanks(self, tokenizer) -> None:
        model = model_for("radd", tokenizer)
        with pytest.raises(ValueError, match="how many tokens come into each blank"):
            model.infill("a [...] dog [...]")
        sample = model.infill("a[...2-2] dog[...]", seed=0)[0]
        assert len(sample) == 12

    def test_padded_models_write_documents(self, tokenizer) -> None:
        model = model_for("radd", tokenizer, padding=15)
        assert model.method.length == 15
        texts = model.generate(num_samples=60, seed=0)
        assert all(tokenizer.separator not in text.tokens for text in texts)
        filled = model.infill("a cat[...3-3] dog", num_samples=5, seed=0)
        given = len(tokenizer.encode("a cat")) + len(tokenizer.encode(" dog"))
        assert all(
            s.text.endswith(" dog") and len(s) == given + 3 for s in filled if len(s) > given
        )
        with pytest.raises(ValueError, match="blanks with text after them"):
            model.infill("a cat [...] dog")

    @pytest.mark.parametrize("name", ["radd", "ilm", "ar"])
    def test_what_a_method_cannot_do_is_refused(self, name, tokenizer) -> None:
        model = model_for(name, tokenizer)
        with pytest.raises(ValueError, match="cannot take tokens back"):
            model.generate(correct=0.5)
        with pytest.raises(ValueError, match=f"no sampler 'adaptive' for the method '{name}'"):
            model.generate(sampler="adaptive")
        if name != "ilm":
            with pytest.raises(ValueError, match="does not say where tokens are missing"):
                model.gaps("a cat")

    def test_unknown_methods_have_a_near_one(self) -> None:
        with pytest.raises(ValueError, match="no method 'rad': did you mean 'radd'"):
            find_method("rad")


def test_the_page_on_adding_a_method_holds(tmp_path, monkeypatch) -> None:
    page = (Path(__file__).parents[1] / "docs/adding-a-method.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    (tmp_path / "mask_predict.py").write_text(code[1])
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("mask-predict", "mask_predict:MaskPredict", registry.GROUP)]
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == registry.GROUP else []
    )
    data = tmp_path / "texts.txt"
    data.write_text("<|endoftext|>".join(TEXT * size for size in range(1, 30)))
    options = {"data": str(data), "steps": 4, "batch": 4, "validate_every": 4, "fixed_length": 16}
    options |= {
        "valid": "0.2",
        "valid_documents": 4,
        "vocabulary": 280,
        "samples": 1,
        "sample_steps": 4,
    }
    settings = Settings().changed(options | {"method": "mask-predict"})
    model = train(settings, tmp_path / "run")
    assert model.method.name == "mask-predict"
    assert len(model.generate(seed=0)[0]) == 16
    filled = model.infill("a cat [...] the dog", seed=0)[0]
    assert filled.text.startswith("a cat ")
    assert filled.text.endswith("the dog")
    with pytest.raises(ValueError, match="no bound"):
        model.score(TEXT)
