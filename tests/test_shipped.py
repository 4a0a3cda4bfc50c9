"""The model that comes with the package keeps the promises of its card that need no data."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import didlm
from didlm.cli import app
from didlm.locate import MODELS, shipped

HOME = MODELS / "stories"
RESULTS = Path(__file__).parents[1] / "benchmarks/results"
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play in the park. One day, "
    "she saw a big dog. The dog was very sad. Lily gave the dog a hug and they became friends."
)


@pytest.fixture(scope="module")
def model():
    return didlm.load("stories")


def test_it_is_small_and_in_16_bits() -> None:
    assert shipped()["stories"] == HOME
    assert (HOME / "model.safetensors").stat().st_size < 16 * 2**20
    weights = load_file(HOME / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}


def test_it_prefers_stories_to_their_words_in_disorder(model) -> None:
    words = STORY.split()
    mixed = " ".join(np.random.default_rng(0).permutation(words))
    assert model.score(STORY).log_likelihood > model.score(mixed).log_likelihood + 100


def test_it_writes_around_what_is_given(model) -> None:
    sample = model.infill("Tim had a red ball. [...] Tim was happy again.", steps=16, seed=0)[0]
    assert sample.text.startswith("Tim had a red ball. ")
    assert sample.text.endswith(" Tim was happy again.")
    middle = sample.text.removeprefix("Tim had a red ball. ").removesuffix(" Tim was happy again.")
    assert len(middle.split()) >= 3


def test_a_word_that_is_missing_is_found(model) -> None:
    """It waits until the model knows that it is one word: before, half of them were "the"."""
    plausible, different = 0, set()
    for left, right in (
        ("Tom had a", " dog. They were best friends again."),
        ("Lily was very", " because she lost her toy."),
    ):
        gap = model.gaps(left + right, t=0.05, top=4096)[len(model.tokenizer.encode(left))]
        likely = {text for text, chance in gap.likely if chance > 0.01}
        samples = model.infill(f"{left} [_]{right}", num_samples=40, seed=5)
        words = [sample.text.removeprefix(left).removesuffix(right) for sample in samples]
        plausible += sum(word in likely for word in words)
        different.update(words)
    assert plausible >= 60
    assert len(different) >= 10


def test_its_card_names_data_licences_figures_and_limits() -> None:
    card = (HOME / "README.md").read_text()
    for part in ("TinyStories", "CDLA-Sharing-1.0", "TinyFabulist", "MIT", "CC BY", "## Limits"):
        assert part in card
    with (RESULTS / "shipped.csv").open(newline="") as file:
        *_, row = csv.DictReader(file)
    error = f"{float(row['tinystories_bits']):.3f} ± {float(row['tinystories_error']):.3f}"
    length = f"{float(row['mean_length_suited']):.0f}; {float(row['mean_length']):.0f} tokens"
    assert f"| unseen TinyStories, bits per byte, at most | {error} |" in card
    assert f"| {length} (the data: {float(row['data_mean_length']):.0f}) |" in card
    assert float(row["tinystories_bits"]) <= 0.80
    assert abs(float(row["mean_length_suited"]) / float(row["data_mean_length"]) - 1) < 0.05
    assert float(row["copied_suited"]) <= 1.5 * float(row["copied_unseen"])


def test_it_suggests_what_its_card_says(model) -> None:
    assert model.defaults == {"top_p": 0.8, "rate_scale": 1.08, "repeats": False}
    for name, value in model.defaults.items():
        assert f"`{name}={value}`" in model.card


def test_where_no_model_is_named_it_writes(model, tmp_path) -> None:
    out = tmp_path / "texts.jsonl"
    done = CliRunner().invoke(app, ["generate", "--steps", "4", "--seed", "3", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["text"] == model.generate(steps=4, seed=3)[0].text
