"""Judges: ours against their exact likelihood, others against a direct computation."""

import json
import math
import sys

import numpy as np
import pytest
import torch

from didlm.data.tokenizer import Tokenizer
from didlm.evaluate import hub
from didlm.evaluate.judge import find_judge
from didlm.evaluate.likelihood import evaluate
from test_methods import TEXT, model_for

TEXTS = ["the dog saw a cat.", "a", "", TEXT * 3]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


class TestOurs:
    def folder(self, tokenizer, tmp_path, method: str = "ar") -> str:
        model_for(method, tokenizer).save_pretrained(tmp_path / method)
        return str(tmp_path / method)

    def test_its_verdict_is_its_exact_likelihood(self, tokenizer, tmp_path) -> None:
        judge = find_judge(self.folder(tokenizer, tmp_path), tokenizer)
        nats, tokens = judge.nats(TEXTS)
        model = model_for("ar", tokenizer)
        for text, found, count in zip(TEXTS, nats, tokens, strict=True):
            assert count == min(len(tokenizer.encode(text)), model.longest)
            if text:
                assert found == pytest.approx(evaluate(model, [text]).nats.item(), rel=1e-5)
        assert (nats[2], tokens[2]) == (0, 0)

    def test_nothing_but_empty_texts_can_be_judged(self, tokenizer, tmp_path) -> None:
        nats, tokens = find_judge(self.folder(tokenizer, tmp_path), tokenizer).nats(["", ""])
        assert nats.tolist() == tokens.tolist() == [0, 0]

    def test_another_tokenizer_is_refused(self, tokenizer, tmp_path) -> None:
        other = Tokenizer.train_bpe([TEXT] * 3, 270)
        with pytest.raises(ValueError, match="has another tokenizer than the model"):
            find_judge(self.folder(tokenizer, tmp_path), other)

    def test_another_method_is_refused(self, tokenizer, tmp_path) -> None:
        with pytest.raises(ValueError, match="cannot judge: its method is 'did'"):
            find_judge(self.folder(tokenizer, tmp_path, "did"), tokenizer)

    def test_a_damaged_one_is_refused(self, tokenizer, tmp_path) -> None:
        folder = self.folder(tokenizer, tmp_path)
        (tmp_path / "ar/model.safetensors").write_bytes(b"no weights")
        with pytest.raises(ValueError, match="there is no judge '.*': .* is damaged"):
            find_judge(folder, tokenizer)

    def test_a_folder_without_a_model_is_refused(self, tokenizer, tmp_path) -> None:
        with pytest.raises(ValueError, match="there is no judge '.*': the folder has no config"):
            find_judge(str(tmp_path), tokenizer)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ValueError, match="there is no judge '.*': its config.json is damaged"):
            find_judge(str(tmp_path), tokenizer)


CONTEXT = 16


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="judges of the hub need transformers")


def save(transformers, tokenizer: Tokenizer, folder, **special: str) -> str:
    """A GPT-2 of random weights, and a tokenizer of its own."""
    torch.manual_seed(0)
    own = Tokenizer.train_bpe(["a dog sleeps in the sun. "] * 3, 300)
    config = transformers.GPT2Config(
        vocab_size=own.vocabulary, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=None, eos_token_id=None, initializer_range=0.5,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    own.library.encode_special_tokens = False
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=own.library, **special)
    fast.save_pretrained(folder)
    return str(folder)


@torch.no_grad()
def directly(transformers, folder: str, text: str, start: list[int]) -> tuple[float, int]:
    """One text at a time, token by token, each from the tokens before it alone."""
    network = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    read = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    ids = start + read(text, add_special_tokens=False)["input_ids"]
    nats, count = 0.0, 0
    for place in range(1, min(len(ids), CONTEXT + 1)):
        logits = network(torch.tensor([ids[:place]])).logits[0, -1].double()
        nats -= float(logits.log_softmax(-1)[ids[place]])
        count += 1
    return nats, count


class TestHub:
    @pytest.mark.parametrize(
        "special", [{"bos_token": "<|bos|>"}, {"eos_token": "<|bos|>"}, {}], ids=["bos", "eos", "-"]
    )
    def test_its_verdict_is_that_of_a_direct_computation(
        self, transformers, tokenizer, tmp_path, monkeypatch, special
    ) -> None:
        folder = save(transformers, tokenizer, tmp_path, **special)
        monkeypatch.setattr(hub, "LOGITS_AT_A_TIME", 300 * 20)  # so that there are several batches
        judge = find_judge(folder, tokenizer)
        texts = [*TEXTS, "the cat", "dog"]
        nats, tokens = judge.nats(texts)
        start = [0] if special else []
        for text, found, count in zip(texts, nats, tokens, strict=True):
            wanted = directly(transformers, folder, text, start)
            assert (found, count) == pytest.approx(wanted, rel=1e-4)
        assert tokens.max() == CONTEXT
        assert judge.name == folder

    def test_figures_do_not_depend_on_the_company(self, transformers, tokenizer, tmp_path) -> None:
        judge = find_judge(save(transformers, tokenizer, tmp_path, bos_token="<|bos|>"), tokenizer)
        together, _ = judge.nats(TEXTS)
        alone = [judge.nats([text])[0][0] for text in TEXTS]
        np.testing.assert_allclose(together, alone, rtol=1e-5)

    def test_loading_says_nothing(self, transformers, tokenizer, tmp_path, capfd) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        capfd.readouterr()
        find_judge(folder, tokenizer).nats([TEXT * 9])
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
    def test_a_damaged_folder_is_refused(self, transformers, tokenizer, tmp_path, file) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        whole = (tmp_path / file).read_bytes()
        for damage in (whole[: len(whole) // 2], b"", b"{}"):
            (tmp_path / file).write_bytes(damage)
            with pytest.raises(ValueError, match=f"there is no judge '{folder}': ."):
                find_judge(folder, tokenizer)
        (tmp_path / file).unlink()
        with pytest.raises(ValueError, match=f"there is no judge '{folder}': ."):
            find_judge(folder, tokenizer)

    def test_lacking_weights_are_not_made_up(self, transformers, tokenizer, tmp_path) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"n_layer": 3}))
        with pytest.raises(ValueError, match="there is no judge '.*': its weights lack "):
            find_judge(folder, tokenizer)

    def test_pickled_weights_are_not_read(self, transformers, tokenizer, tmp_path) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        weights = transformers.GPT2LMHeadModel.from_pretrained(folder).state_dict()
        torch.save(weights, tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
        with pytest.raises(
            ValueError, match="there is no judge '.*': its network cannot be loaded"
        ):
            find_judge(folder, tokenizer)

    def test_a_model_that_sees_what_follows_is_refused(
        self, transformers, tokenizer, tmp_path
    ) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        config = transformers.BertConfig(
            vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, initializer_range=0.5,
        )  # fmt: skip
        transformers.BertLMHeadModel(config).save_pretrained(folder)
        with pytest.raises(ValueError, match="depends on the tokens after it"):
            find_judge(folder, tokenizer)

    def test_a_tokenizer_of_another_model_is_refused(
        self, transformers, tokenizer, tmp_path
    ) -> None:
        folder = save(transformers, tokenizer, tmp_path, bos_token="<|bos|>")
        config = transformers.GPT2Config(vocab_size=9, n_embd=16, n_layer=1, n_head=2)
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        with pytest.raises(ValueError, match="its network knows 9 tokens"):
            find_judge(folder, tokenizer)

    @pytest.mark.parametrize("name", ["no-such-judge", "no/such", "no/such/folder", "../x y"])
    def test_an_unknown_name_is_refused(self, transformers, tokenizer, name, monkeypatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(ValueError, match=f"there is no judge '{name}': there is no such"):
            find_judge(name, tokenizer)

    def test_a_hub_that_does_not_answer_is_asked_once(
        self, transformers, tokenizer, monkeypatch, capfd
    ) -> None:
        asked = []

        def silent(*arguments, **options):
            asked.append(arguments)
            raise ConnectionError("Name or service not known")

        monkeypatch.setattr("huggingface_hub.HfApi.model_info", silent)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        with pytest.raises(ValueError, match="there is no judge 'no-such': .* cannot be reached"):
            find_judge("no-such", tokenizer)
        assert len(asked) == 1
        assert capfd.readouterr() == ("", "")

    def test_without_transformers_one_is_told_what_to_install(self, tokenizer, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(ValueError, match=r"pip install 'didlm\[hub\]'"):
            find_judge("gpt2", tokenizer)


def test_a_uniform_judge_has_the_perplexity_of_its_vocabulary(
    transformers, tokenizer, tmp_path
) -> None:
    judge = find_judge(save(transformers, tokenizer, tmp_path, bos_token="<|bos|>"), tokenizer)
    for parameter in judge.network.parameters():
        parameter.data.zero_()
    nats, tokens = judge.nats(["the dog"])
    vocabulary = judge.network.config.vocab_size
    assert nats[0] / tokens[0] == pytest.approx(math.log(vocabulary))
