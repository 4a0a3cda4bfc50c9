"""Small files in the place of all data of the paper."""

import json
from pathlib import Path

import numpy as np

from didlm.data import stories
from didlm.reproduce.sources import known

TASKS = [
    "arc_challenge", "arc_easy", "hellaswag", "openbookqa", "piqa", "race", "social_iqa",
    "winogrande",
]  # fmt: skip


def write_data(folder: Path) -> dict[str, Path]:
    """A file for every name of data, tokenizers apart."""
    texts = iter(stories.training_stories(1500, seed=1))
    files = {}
    for name, place in known().items():
        if "tokenizer" in place:
            continue
        files[name] = folder / f"{name}.jsonl"
        if name == "gsm8k-train":
            files[name] = folder / f"{name}.txt"
            lines = [
                f"How much is {n} and {n}?||<<{n}+{n}={2 * n}>> #### {2 * n}" for n in range(60)
            ]
        elif name == "gsm8k":
            lines = [
                json.dumps({"question": f"What is {n} and 1?", "answer": f"{n}+1\n#### {n + 1}"})
                for n in range(4)
            ]
        elif name in TASKS:
            lines = [json.dumps(question(number)) for number in range(4)]
        else:
            lines = [json.dumps({"text": next(texts)[:80]}) for _ in range(100)]
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def question(number: int) -> dict:
    """One with two or three options."""
    rng = np.random.default_rng(number)
    words = ["a cat", " the dog", " saw", " a tree", " and ran", " home."]
    options = ["".join(rng.permutation(words)[: 2 + n]) for n in range(2 + number % 2)]
    return {"question": "Once upon a time", "choices": options, "answer": number % 2}
