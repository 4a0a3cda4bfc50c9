"""The demo: a tiny model trained from nothing on stories whose entropy is known."""

import json
import sys
import time
from pathlib import Path

from rich.console import Console

from didlm.data import stories
from didlm.explain import heading
from didlm.train.curve import draw_curve
from didlm.train.loop import train
from didlm.train.settings import Settings


def show_training(console: Console, settings: Settings, folder: Path) -> None:
    """Train on the embedded stories; set the bound beside the truth; let the model write."""
    entropy = stories.entropy()
    heading(console, "Training a tiny model on stories whose entropy is known")
    console.print(
        f"The stories come from a grammar: {entropy:.1f} nats each, and no model can do better.\n"
        f"For example: {stories.training_stories(1, settings.seed)[0]}\n",
        soft_wrap=True,
    )
    started = time.perf_counter()
    model = train(settings, folder)
    seconds = time.perf_counter() - started
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    bounds = [m["nats_per_document"] for m in map(json.loads, lines) if m["kind"] == "valid"]
    heading(console, "\nWhat it writes now")
    for text in model.generate(num_samples=3, steps=settings.sample_steps, seed=settings.seed):
        console.print(text.text + "\n", soft_wrap=True, markup=False)
    heading(console, "How far from the truth")
    console.print(
        f"bound on unseen stories   {min(bounds):6.1f} nats a story, after {seconds:.0f} s\n"
        f"exact entropy             {entropy:6.1f} nats a story\n"
        f"ratio                     {min(bounds) / entropy:6.2f}\n"
    )
    picture = draw_curve(folder, entropy)
    if picture:
        console.print(f"The loss curve is in {picture}, the model in {folder}.")
    console.print(
        f"Let it write more:  {sys.argv[0]} generate --model {folder} --num 4", soft_wrap=True
    )


def free_folder(wanted: Path) -> Path:
    """The folder itself if it is new, else the first of wanted-2, wanted-3, ... that is."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
