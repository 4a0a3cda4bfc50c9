"""Weights of public code, against plain forwards of their own networks, written from the facts.

State dicts are synthetic: the names and shapes of the public ones at tiny sizes.
"""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from didlm.cli import app
from didlm.convert.command import convert_weights
from didlm.convert.reading import read_source
from didlm.data.batch import make_batch
from didlm.data.tokenizer import Tokenizer, byte_of_character
from didlm.loss import batch_loss
from didlm.model.config import ModelConfig
from didlm.objectives.sparse import normalise
from didlm.packed import pack
from didlm.pretrained import Model, load

WIDTH, HEADS, INNER, LAYERS, CONDITION = 16, 2, 24, 2, 6
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d", "e", "f"]
State = dict[str, Tensor]
GENERATOR = torch.Generator()  # every state dict begins anew


# Synthetic state dicts.


def normal(*shape: int, around: float = 0.0) -> Tensor:
    return around + 0.4 * torch.randn(*shape, generator=GENERATOR)


def radd_block(name: str, norm_biases: bool = True) -> State:
    state = {f"{name}.norm1.weight": normal(WIDTH, around=1)}
    if norm_biases:
        state[f"{name}.norm1.bias"] = normal(WIDTH)
    state[f"{name}.attn_qkv.weight"] = normal(3 * WIDTH, WIDTH)
    state[f"{name}.attn_out.weight"] = normal(WIDTH, WIDTH)
    state[f"{name}.norm2.weight"] = normal(WIDTH, around=1)
    if norm_biases:
        state[f"{name}.norm2.bias"] = normal(WIDTH)
    state[f"{name}.mlp.0.weight"] = normal(INNER, WIDTH)
    state[f"{name}.mlp.0.bias"] = normal(INNER)
    state[f"{name}.mlp.2.weight"] = normal(WIDTH, INNER)
    state[f"{name}.mlp.2.bias"] = normal(WIDTH)
    return state


def speeds(channels: int) -> Tensor:
    return 1 / 10_000 ** (torch.arange(0, channels, 2).float() / channels)


def radd_state(rows: int) -> State:
    GENERATOR.manual_seed(0)
    state = {"vocab_embed.embedding": normal(rows, WIDTH)}
    state["rotary_emb.inv_freq"] = speeds(WIDTH // HEADS)
    for layer in range(LAYERS):
        state |= radd_block(f"blocks.{layer}")
    state["output_layer.norm_final.weight"] = normal(WIDTH, around=1)
    state["output_layer.norm_final.bias"] = normal(WIDTH)
    state["output_layer.linear.weight"] = normal(rows, WIDTH)
    state["output_layer.linear.bias"] = normal(rows)
    return state


def sedd_state(rows: int) -> State:
    GENERATOR.manual_seed(0)
    state = {"vocab_embed.embedding": normal(rows, WIDTH)}
    state["sigma_map.mlp.0.weight"] = normal(CONDITION, 256)
    state["sigma_map.mlp.0.bias"] = normal(CONDITION)
    state["sigma_map.mlp.2.weight"] = normal(CONDITION, CONDITION)
    state["sigma_map.mlp.2.bias"] = normal(CONDITION)
    state["rotary_emb.inv_freq"] = speeds(WIDTH // HEADS)
    for layer in range(LAYERS):
        state |= radd_block(f"blocks.{layer}", norm_biases=False)
        state[f"blocks.{layer}.adaLN_modulation.weight"] = normal(6 * WIDTH, CONDITION)
        state[f"blocks.{layer}.adaLN_modulation.bias"] = normal(6 * WIDTH)
    state["output_layer.norm_final.weight"] = normal(WIDTH, around=1)
    state["output_layer.linear.weight"] = normal(rows, WIDTH)
    state["output_layer.linear.bias"] = normal(rows)
    state["output_layer.adaLN_modulation.weight"] = normal(2 * WIDTH, CONDITION)
    state["output_layer.adaLN_modulation.bias"] = normal(2 * WIDTH)
    return state


def ilm_state(rows: int, final_norm: bool = False) -> State:
    GENERATOR.manual_seed(0)
    state = {"embed_tokens.weight": normal(rows, WIDTH)}
    for layer in range(LAYERS):
        block = radd_block(f"encoder.{layer}")
        state |= {name.replace("attn_out", "o_proj"): weight for name, weight in block.items()}
        state[f"encoder.{layer}.rotary_emb.inv_freq"] = speeds(WIDTH // HEADS)
    if final_norm:
        state["output_layer.norm_final.weight"] = normal(WIDTH, around=1)
        state["output_layer.norm_final.bias"] = normal(WIDTH)
    state["output_layer.linear.weight"] = normal(rows, WIDTH)
    state["type_embeddings.weight"] = normal(2, WIDTH)
    state["length_output_layer.norm_final.weight"] = normal(WIDTH, around=1)
    state["length_output_layer.norm_final.bias"] = normal(WIDTH)
    state["length_output_layer.mlp.0.weight"] = normal(2 * WIDTH, WIDTH)
    state["length_output_layer.mlp.0.bias"] = normal(2 * WIDTH)
    state["length_output_layer.mlp.2.weight"] = normal(WIDTH, 2 * WIDTH)
    state["length_output_layer.mlp.2.bias"] = normal(WIDTH)
    state["length_output_layer.linear.weight"] = normal(2, WIDTH)
    return state


# Their networks, plainly, in float64, one sequence at a time.


def standardised(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return standardised(x) * state[f"{name}.weight"] + state.get(f"{name}.bias", 0)


def affine(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)


def turned(x: Tensor) -> Tensor:
    """Channels c and c + C / 2 are a complex number, which turns with the position [N, C]."""
    half = x.shape[-1] // 2
    angle = torch.arange(len(x))[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    number = torch.complex(x[:, :half], x[:, half:]) * torch.exp(1j * angle)
    return torch.cat([number.real, number.imag], -1)


def attention(state: State, name: str, x: Tensor) -> Tensor:
    queries, keys, values = (x @ state[f"{name}.attn_qkv.weight"].T).split(WIDTH, -1)
    channels, mixed = WIDTH // HEADS, []
    for head in range(HEADS):
        part = slice(head * channels, (head + 1) * channels)
        q, k = turned(queries[:, part]), turned(keys[:, part])
        mixed.append((q @ k.T / math.sqrt(channels)).softmax(-1) @ values[:, part])
    return torch.cat(mixed, -1)


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def plain_radd(state: State, ids: list[int]) -> Tensor:
    state = {name: weight.double() for name, weight in state.items()}
    x = state["vocab_embed.embedding"][ids]
    for layer in range(LAYERS):
        name = f"blocks.{layer}"
        mixed = attention(state, name, norm(state, f"{name}.norm1", x))
        x = x + affine(state, f"{name}.attn_out", mixed)
        inner = affine(state, f"{name}.mlp.0", norm(state, f"{name}.norm2", x))
        x = x + affine(state, f"{name}.mlp.2", tanh_gelu(inner))
    return affine(state, "output_layer.linear", norm(state, "output_layer.norm_final", x))


def plain_sedd(state: State, ids: list[int], sigma: float) -> Tensor:
    """Without the scaling by sigma at the end, which is of masked diffusion."""
    state = {name: weight.double() for name, weight in state.items()}

    def silu(x: Tensor) -> Tensor:
        return x * x.sigmoid()

    phase = sigma * 10_000.0 ** (-torch.arange(128, dtype=torch.float64) / 128)
    features = torch.cat([phase.cos(), phase.sin()])
    hidden = silu(affine(state, "sigma_map.mlp.0", features))
    condition = silu(affine(state, "sigma_map.mlp.2", hidden))
    x = state["vocab_embed.embedding"][ids]
    for layer in range(LAYERS):
        name = f"blocks.{layer}"
        changes = affine(state, f"{name}.adaLN_modulation", condition)
        shift, scale, gate, shift_2, scale_2, gate_2 = changes.split(WIDTH)
        normed = norm(state, f"{name}.norm1", x) * (1 + scale) + shift
        x = x + gate * affine(state, f"{name}.attn_out", attention(state, name, normed))
        normed = norm(state, f"{name}.norm2", x) * (1 + scale_2) + shift_2
        inner = tanh_gelu(affine(state, f"{name}.mlp.0", normed))
        x = x + gate_2 * affine(state, f"{name}.mlp.2", inner)
    shift, scale = affine(state, "output_layer.adaLN_modulation", condition).split(WIDTH)
    normed = norm(state, "output_layer.norm_final", x) * (1 + scale) + shift
    return affine(state, "output_layer.linear", normed)


def plain_ilm(state: State, ids: list[int], gelu: bool = False) -> tuple[Tensor, Tensor]:
    """Logits of all rows, and of the two classes: to stop, and not to."""
    state = {name: weight.double() for name, weight in state.items()}
    x = state["embed_tokens.weight"][ids]
    for layer in range(LAYERS):
        name = f"encoder.{layer}"
        mixed = attention(state, name, norm(state, f"{name}.norm1", x))
        x = x + affine(state, f"{name}.o_proj", mixed)
        inner = affine(state, f"{name}.mlp.0", norm(state, f"{name}.norm2", x))
        inner = tanh_gelu(inner) if gelu else inner.clamp(min=0)
        x = x + affine(state, f"{name}.mlp.2", inner)
    name, first = "length_output_layer", x[0]
    inner = affine(state, f"{name}.mlp.0", norm(state, f"{name}.norm_final", first)).tanh()
    classes = affine(state, f"{name}.linear", first + affine(state, f"{name}.mlp.2", inner))
    if "output_layer.norm_final.weight" in state:
        x = norm(state, "output_layer.norm_final", x)
    return affine(state, "output_layer.linear", x), classes


# Helpers.


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe(["a cat saw a dog. "] * 3, 265)


@pytest.fixture
def tokens(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    return tokenizer.save(tmp_path / "tokenizer")


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    return tmp_path / "vocab.txt"


def converted(state: State, tokenizer: Path, place: Path, kind: str, **options) -> Model:
    torch.save(state, place / "weights.pt")
    options = {"heads": HEADS, "length": 12} | options
    model, found = convert_weights(place / "weights.pt", tokenizer, kind, **options)
    assert found == kind
    return model


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-5)


def outputs(model: Model, texts: list[list[int]], u: list[float]) -> tuple[Tensor, Tensor, object]:
    """Hidden states, logits over the vocabulary, and the batch, in float64."""
    network, batch = model.network.double(), pack(texts, model.method.bos)
    hidden = network(batch, torch.tensor(u, dtype=torch.float64), int(batch.lengths.max()) + 1)
    return hidden, network.logits(hidden)[:, : network.config.vocabulary], batch


TEXTS = [[5, 9, 5, 200], [7], []]


# What holds of the converted models.


@torch.no_grad()
def test_radd_is_its_own_network_on_the_same_rows(tokens, tokenizer, tmp_path) -> None:
    vocabulary = tokenizer.vocabulary
    state = radd_state(vocabulary + 1)
    model = converted(state, tokens, tmp_path, "radd")
    texts = [[5, vocabulary, 9, vocabulary], [vocabulary], [3, 4]]
    _, logits, batch = outputs(model, texts, [0.5, 1.0, 0.0])
    assert model.method.mask == vocabulary
    for s, text in enumerate(texts):
        rows = logits[batch.offsets[s] + 1 : batch.offsets[s + 1]]  # BOS is ours alone
        close(rows, plain_radd(state, text)[:, :vocabulary])


@torch.no_grad()
def test_the_loss_of_radd_is_that_of_its_distribution(tokens, tokenizer, tmp_path) -> None:
    """The softmax leaves MASK out, and the bias of the head counts."""
    vocabulary = tokenizer.vocabulary
    state = radd_state(vocabulary + 1)
    model = converted(state, tokens, tmp_path, "radd")
    text = np.array([5, 9, 5, 200, 31, 9])
    some = model.method.training_examples([text], [3], seed=0)
    loss = batch_loss(model.network, make_batch(some))
    log_p = plain_radd(state, some.tokens[1:].tolist())[:, :vocabulary].log_softmax(-1)
    assert len(some.row) > 1
    close(loss.log_prob, log_p[some.row - 1, some.token])


def test_biases_have_gradients(tokens, tokenizer, tmp_path) -> None:
    model = converted(radd_state(tokenizer.vocabulary + 1), tokens, tmp_path, "radd")
    some = model.method.training_examples([np.arange(9)], [3], seed=0)
    batch_loss(model.network, make_batch(some)).total.backward()
    for name, parameter in model.network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@torch.no_grad()
@pytest.mark.parametrize("left_over", [0, 1], ids=["no-mask", "mask-left"])
def test_fixed_did_has_joint_scores(tokens, tokenizer, tmp_path, left_over) -> None:
    vocabulary = tokenizer.vocabulary
    state = radd_state(vocabulary + left_over)
    model = converted(state, tokens, tmp_path, "did-fixed")
    hidden, logits, batch = outputs(model, TEXTS, [0.5, 0.2, 1.0])
    rates = model.network.log_rate(hidden, torch.zeros(3), batch)
    rates = normalise(rates, torch.ones(3, dtype=torch.float64), batch)
    for s, text in enumerate(TEXTS):
        rows = slice(*batch.offsets[s : s + 2].tolist())
        plain = plain_radd(state, [model.method.bos, *text])[:, :vocabulary]
        close(logits[rows], plain)
        joint = rates[rows, None] + logits[rows].log_softmax(-1)
        close(joint.flatten(), plain.flatten().log_softmax(-1))


@torch.no_grad()
def test_did_of_any_length_is_told_the_noise(tokens, tokenizer, tmp_path) -> None:
    state, times = sedd_state(tokenizer.vocabulary), [0.5, 0.02, 0.9]
    model = converted(state, tokens, tmp_path, "did")
    hidden, logits, batch = outputs(model, TEXTS, times)
    rates = model.network.log_rate(hidden, torch.tensor(times), batch)
    for s, (text, u) in enumerate(zip(TEXTS, times, strict=True)):
        rows = slice(*batch.offsets[s : s + 2].tolist())
        plain = plain_sedd(state, [model.method.bos, *text], -math.log1p(-u))
        close(logits[rows], plain)
        close(rates[rows], plain.logsumexp(-1))


@torch.no_grad()
@pytest.mark.parametrize("final_norm", [False, True])
def test_ilm_is_its_own_network_on_the_same_rows(bert, tmp_path, final_norm) -> None:
    state = ilm_state(len(BERT) + 2, final_norm)
    model = converted(state, bert, tmp_path, "ilm")
    cls, bos = BERT.index("[CLS]"), len(BERT)
    assert model.network.config.dialect.leading == (cls, bos)
    texts = [[5, 9, 5, 6], [7], []]
    hidden, logits, batch = outputs(model, texts, [0.0] * 3)
    rates = model.network.log_rate(hidden, torch.zeros(3), batch)
    rates = normalise(rates, torch.ones(3, dtype=torch.float64), batch)
    stops = model.network.stop_logit(hidden, batch)
    for s, text in enumerate(texts):
        rows = slice(*batch.offsets[s : s + 2].tolist())
        plain, classes = plain_ilm(state, [cls, bos, *text])
        close(logits[rows], plain[1:])  # nothing comes after [CLS]
        joint = rates[rows, None] + logits[rows].log_softmax(-1)
        close(joint.flatten(), plain[1:].flatten().log_softmax(-1))
        close(stops[s], classes[0] - classes[1])


def test_ilm_may_say_gelu_in_its_settings(bert, tmp_path) -> None:
    state = ilm_state(len(BERT) + 2)
    settings = {"nhead": HEADS, "activation": "gelu", "max_length": 9}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model = converted(state, bert, tmp_path, "ilm", heads=None, length=None)
    assert model.longest == 7
    plain, _ = plain_ilm(state, [2, len(BERT), 5, 6], gelu=True)
    with torch.no_grad():
        close(outputs(model, [[5, 6]], [0.0])[1][:3], plain[1:])


def test_ilm_adds_its_tokens_to_those_of_gpt2(tmp_path) -> None:
    vocabulary = {c: number for number, c in enumerate(byte_of_character())}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary | {"<|endoftext|>": 256}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    model = converted(ilm_state(263), tmp_path / "vocab.json", tmp_path, "ilm")
    assert model.network.config.dialect.leading == (257, 258)  # <|cls|> and <|bos|>
    assert model.tokenizer.special() == list(range(256, 263))
    assert max(model.generate(seed=0, min_length=5)[0].tokens) < 256


def test_ilm_stops_from_a_probability_of_nine_tenths(bert, tmp_path) -> None:
    state = ilm_state(len(BERT) + 2)
    model = converted(state, bert, tmp_path, "ilm")
    assert model.network.config.dialect.stop_log_odds == pytest.approx(math.log(9))
    for name in ("weight", "bias"):  # log odds of 2 everywhere: likely, but not likely enough
        state[f"length_output_layer.mlp.2.{name}"].zero_()
    state["length_output_layer.linear.weight"].zero_()
    model = converted(state, bert, tmp_path, "ilm")
    model.network.stop_head.bias.data.fill_(2.0)
    assert len(model.generate(seed=1)[0].tokens) == model.longest
    model.network.stop_head.bias.data.fill_(2.3)
    assert model.generate(seed=1)[0].tokens == []


@pytest.mark.parametrize("kind", ["radd", "did", "did-fixed", "ilm"])
def test_a_converted_model_is_an_ordinary_one(kind, tokens, bert, tokenizer, tmp_path) -> None:
    if kind == "ilm":
        state, place, prompt = ilm_state(len(BERT) + 2), bert, "a b"
    else:
        make = sedd_state if kind == "did" else radd_state
        state, place, prompt = make(tokenizer.vocabulary + (kind == "radd")), tokens, "a cat"
    model = converted(state, place, tmp_path, kind)
    model.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.network.config == model.network.config
    assert again.method == model.method
    for name, weight in model.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], weight, rtol=0, atol=0)
    samples = again.generate(prompt=prompt, num_samples=2, steps=4, seed=3)
    assert [s.text for s in samples] == [
        s.text for s in model.generate(prompt=prompt, num_samples=2, steps=4, seed=3)
    ]
    assert all(sample.text.startswith(prompt) and sample.exact for sample in samples)
    if kind != "ilm":
        assert again.score("a cat saw a " + "g" * (12 - len(tokenizer.encode("a cat saw a "))))


def test_older_configurations_have_the_dialect_of_ours() -> None:
    old = {"vocabulary": 5, "layers": 1, "width": 8, "heads": 2, "feed_forward": 8}
    assert ModelConfig(**old).dialect == ModelConfig(**old, dialect={}).dialect
    with pytest.raises(ValueError, match="neither causal rows nor flags"):
        ModelConfig(**old, dialect={"leading": [1]})
    with pytest.raises(ValueError, match="only the layer norm can have a bias"):
        ModelConfig(**old, norm="rms", dialect={"biases": True})
    with pytest.raises(ValueError, match="none to tell when to stop"):
        ModelConfig(**old, stop=True, flags=False, dialect={"leading": []})
    with pytest.raises(ValueError, match="above 0 and below 1: got 1.0"):
        ModelConfig(**old, dialect={"stop_probability": 1.0})


# Files of all sorts.


def test_kinds_are_told_by_names(tokens, bert, tokenizer, tmp_path) -> None:
    torch.save(radd_state(tokenizer.vocabulary + 1), tmp_path / "r.pth")
    torch.save(ilm_state(len(BERT) + 2), tmp_path / "i.bin")
    torch.save(sedd_state(tokenizer.vocabulary), tmp_path / "d.ckpt")
    assert convert_weights(tmp_path / "r.pth", tokens)[1] == "radd"
    assert convert_weights(tmp_path / "i.bin", bert, heads=2)[1] == "ilm"
    with pytest.raises(ValueError, match="do not tell their kind: give --kind, one of radd, ilm"):
        convert_weights(tmp_path / "d.ckpt", tokens)
    with pytest.raises(ValueError, match="no kind 'rad': did you mean 'radd'"):
        convert_weights(tmp_path / "r.pth", tokens, "rad")
    with pytest.raises(ValueError, match="no kind 'x': known are radd, ilm, did, did-fixed"):
        convert_weights(tmp_path / "r.pth", tokens, "x")


@pytest.mark.parametrize("wrapping", ["lightning", "parallel", "safetensors", "run"])
def test_wrapped_weights_are_found(wrapping, tokenizer, tmp_path) -> None:
    state = radd_state(tokenizer.vocabulary + 1)
    place = tmp_path / "in"
    place.mkdir()
    if wrapping == "lightning":
        content = {f"model._orig_mod.{name}": weight for name, weight in state.items()}
        torch.save({"state_dict": content, "epoch": 3, "hyper_parameters": {}}, place / "last.ckpt")
    elif wrapping == "parallel":
        content = {f"module.{name}": weight for name, weight in state.items()}
        torch.save({"model": content, "step": 7}, place / "checkpoint_7.pth")
    elif wrapping == "safetensors":
        save_file(state, place / "model.safetensors")
        (place / "config.json").write_text(json.dumps({"model": {"n_heads": 2, "length": 9}}))
    else:
        (place / "checkpoints-meta").mkdir()
        torch.save({"model": state}, place / "checkpoints-meta" / "checkpoint.pth")
    source = read_source(place)
    assert set(source.weights) == set(state)
    assert all(torch.equal(source.weights[name], state[name]) for name in state)
    if wrapping == "safetensors":
        tokens = tokenizer.save(tmp_path / "tokens")
        model, _ = convert_weights(place, tokens)
        assert (model.length, model.network.config.heads) == (9, 2)


def test_moving_averages_are_taken_by_their_order(tokens, tokenizer, tmp_path) -> None:
    state = radd_state(tokenizer.vocabulary + 1)
    averages = [weight + 1 for name, weight in state.items() if "inv_freq" not in name]
    ema = {"decay": 0.9999, "num_updates": 5, "shadow_params": averages}
    file = tmp_path / "c.pth"
    torch.save({"model": state, "ema": ema, "optimizer": {"state": {}}, "step": 5}, file)
    plain, _ = convert_weights(file, tokens)
    averaged, _ = convert_weights(file, tokens, ema=True)
    torch.testing.assert_close(
        averaged.network.blocks[1].attention_out.weight,
        plain.network.blocks[1].attention_out.weight + 1,
    )
    averages_by_name = {n: w + 2 for n, w in state.items() if "inv_freq" not in n}
    torch.save({"model": state, "ema": averages_by_name}, file)
    named, _ = convert_weights(file, tokens, ema=True)
    torch.testing.assert_close(
        named.network.blocks[0].attention_norm.bias, plain.network.blocks[0].attention_norm.bias + 2
    )
    torch.save({"model": state, "ema": ema | {"shadow_params": averages[1:]}}, file)
    with pytest.raises(ValueError, match="moving averages in .* do not fit its .* leave out --ema"):
        convert_weights(file, tokens, ema=True)
    torch.save(state, file)
    with pytest.raises(ValueError, match="holds no moving average: leave out --ema"):
        convert_weights(file, tokens, ema=True)


class Trap:
    """Were it unpickled, it would make a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def test_nothing_in_a_checkpoint_is_run(tmp_path) -> None:
    file = tmp_path / "c.pt"
    torch.save({"model": radd_state(9), "config": Trap(tmp_path / "trap")}, file)
    with pytest.raises(ValueError, match="holds more than weights, .*: save its state_dict alone"):
        read_source(file)
    assert not (tmp_path / "trap").exists()


def test_files_that_are_no_weights_are_refused(tmp_path) -> None:
    def refused(name: str, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            read_source(tmp_path / name)

    refused("none.pt", "there is no file")
    refused("", "there are no weights in")
    (tmp_path / "weights.txt").write_text("hello")
    refused("weights.txt", "is no file of weights: their names end in .safetensors, .pt")
    for suffix in ("safetensors", "pt"):
        (tmp_path / f"x.{suffix}").write_bytes(b"\x80\x02not at all")
        refused(f"x.{suffix}", "is damaged")
    (tmp_path / "x.pt").write_bytes(b"")
    refused("x.pt", "is damaged, or no checkpoint of torch")
    torch.save(radd_state(9), tmp_path / "x.pt")
    (tmp_path / "x.pt").write_bytes((tmp_path / "x.pt").read_bytes()[:3000])
    refused("x.pt", "is damaged, or no checkpoint of torch")
    refused("", "holds 2 files of weights, as x.pt, x.safetensors: give the path of one")
    torch.save([torch.zeros(2)], tmp_path / "x.pt")
    refused("x.pt", "holds a list, not weights by name")
    torch.save({"step": 3}, tmp_path / "x.pt")
    refused("x.pt", "holds no weights by name")
    torch.save(radd_state(9), tmp_path / "x.pt")
    (tmp_path / "config.json").write_text("{")
    refused("x.pt", "config.json is damaged: it is no JSON")


def test_weights_that_do_not_fit_are_refused(tokens, bert, tokenizer, tmp_path) -> None:
    good, rows = radd_state(tokenizer.vocabulary + 1), tokenizer.vocabulary + 1

    def refused(state: State, match: str, kind: str = "radd", place: Path = tokens, **options):
        with pytest.raises(ValueError, match=match):
            converted(state, place, tmp_path, kind, **options)

    some = {name: weight for name, weight in good.items() if "blocks.1.mlp" not in name}
    refused(some, r"lacks weights \(4: blocks.1.mlp.0.bias, .*, \.\.\.\): it is damaged, or of")
    refused(good | {"blocks.0.extra": normal(2)}, r"has unknown weights \(1: blocks.0.extra\)")
    refused(good | {"blocks.1.norm2.bias": normal(3)}, r"'blocks.1.norm2.bias' .* \(3,\), not \(16")
    refused(good | {"vocab_embed.embedding": normal(3)}, r"'vocab_embed.embedding' .* shape \(3,\)")
    refused(radd_state(rows + 5), f"vocabulary of {rows + 4} tokens, but the tokenizer has")
    refused(ilm_state(rows), "has no weights 'vocab_embed.embedding': it is of another kind")
    refused(good, "has no weights 'sigma_map.mlp.0.weight': it is of another kind", "did")
    refused({"vocab_embed.embedding": normal(rows, 16)}, "has no weights 'blocks.0.mlp.0.weight'")
    refused(good, "a width of 16 cannot be split into 3 heads", heads=3)
    refused(good, "heads of 4 channels of which 8 turn with the position", heads=4)
    refused(good | {"rotary_emb.inv_freq": speeds(8) + 1}, "do not turn from base 10,000")
    refused(good, "--length must be at least 1: got -1", length=-1)
    blind = {name: weight for name, weight in good.items() if "rotary" not in name}
    refused(blind, "does not tell how many heads it has: give --heads", heads=None)

    fine = ilm_state(len(BERT) + 2)
    refused(fine, "does not tell how many heads it has: give --heads", "ilm", bert, heads=None)
    refused(ilm_state(len(BERT)), r"neither \[CLS\] and \[BOS\] nor", "ilm", bert)
    refused(ilm_state(len(BERT) + 3), "vocabulary of 14 tokens, but the tokenizer", "ilm", bert)
    wide = fine | {"length_output_layer.linear.weight": normal(9, WIDTH)}
    refused(wide, r"'length_output_layer.linear.weight' .* \(9, 16\), not \(2, 16\)", "ilm", bert)
    for settings, match in (
        ({"activation": "silu"}, "must be relu or gelu: config.json says 'silu'"),
        ({"layer_norm_eps": 1e-6}, "must be 1e-05: config.json says 1e-06"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        refused(fine, match, "ilm", bert)


def test_the_command_writes_a_model_folder(tokens, tokenizer, tmp_path) -> None:
    torch.save(radd_state(tokenizer.vocabulary + 1), tmp_path / "weights.pt")
    arguments = ["convert", str(tmp_path / "weights.pt"), "--tokenizer", str(tokens)]
    arguments += ["--length", "8", "--out"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "radd: 2 layers of width 16" in result.output
    assert "weights.pt" in (tmp_path / "out/README.md").read_text()
    assert len(load(tmp_path / "out").generate(steps=2, seed=0)[0].tokens) == 8
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "weights.pt")])
    assert "is not a folder" in str(result.exception)
