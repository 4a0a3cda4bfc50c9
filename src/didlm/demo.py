"""The demo: the shipped model writes and fills in, then a tiny one is trained from nothing."""

import json
import re
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from didlm.data import stories
from didlm.display.trace import write_trace
from didlm.display.watch import Watch
from didlm.explain import heading
from didlm.files import check_folder
from didlm.generate.results import Sample
from didlm.generate.template import Blank, Parts
from didlm.pretrained import Model, load
from didlm.train.curve import draw_curve
from didlm.train.loop import train
from didlm.train.settings import Settings

SHIPPED = "stories"
STEPS = 64  # of writing
STORY = 23  # is added to the seed: by default the first story is the one in the README
SECONDS_PER_FRAME = 0.04  # slow enough to be followed


def show_demo(console: Console, settings: Settings, folder: Path) -> None:
    """All of it: stories, a middle, a training run; then what was made, and what to try next.

    Args:
        console: where to show it.
        settings: of the training run.
        folder: for what is made; it is new.
    """
    check_folder(folder)
    folder.mkdir(parents=True)
    model = load(SHIPPED)
    heading(console, "A model that comes with the package writes, starting from nothing")
    story = write_stories(console, model, folder / "story.html", settings.seed + STORY)
    heading(console, "It fills in: the same beginning and end, another middle")
    fill_middle(console, model, story.text, settings.seed + STORY)
    show_training(console, settings, folder / "tiny")
    made = {
        "story.html": "how the first story was written: open it in a browser",
        "tiny/curve.png": "how the tiny model learnt",
        "tiny": "the tiny model",
    }
    heading(console, "Made just now")
    for name, what in made.items():
        if (folder / name).exists():
            console.print(f"{folder / name!s:32} {what}", soft_wrap=True)
    heading(console, "\nTo try next")
    for command in (
        'generate --prompt "Once upon a time, there was a dragon" --watch',
        'infill "Tom had a [_] dog. [...] They were best friends again."',
        "train --data YOUR_TEXT.txt --out runs/mine",
    ):
        console.print(f"{sys.argv[0]} {command}", soft_wrap=True, markup=False)


def write_stories(console: Console, model: Model, page: Path, seed: int) -> Sample:
    """Two stories before one's eyes; the first is returned, and how it grew is on the page."""
    with Watch(model.tokenizer, seconds_per_frame=SECONDS_PER_FRAME) as display:
        samples = model.generate(
            num_samples=2,
            steps=STEPS,
            seed=seed,
            callback=display.show,
            trace=True,
        )
    for sample in samples:
        console.print(f"{sample.text}\n", soft_wrap=True, markup=False)
    write_trace(page, samples[:1], model.tokenizer)
    return samples[0]


def fill_middle(console: Console, model: Model, story: str, seed: int) -> None:
    """Let the model write the middle of a story again; what is given is dim."""
    parts = around(story)
    with Watch(model.tokenizer, seconds_per_frame=SECONDS_PER_FRAME) as display:
        (filled,) = model.infill(parts, steps=STEPS, seed=seed + 1, callback=display.show)
    begin, _, end = (part if isinstance(part, str) else "" for part in parts)
    middle = filled.text[len(begin) : len(filled.text) - len(end)]
    console.print(Text.assemble((begin, "dim"), (middle, "bold"), (end, "dim")), soft_wrap=True)
    console.print()


def around(story: str) -> Parts:
    """A story with a blank in the place of its middle: a third of its sentences, or of it."""
    sentences = re.findall(r'.+?(?:[.!?]["”\']?\s+|$)', story, re.DOTALL)
    third = len(sentences) // 3
    if not third:
        third = len(story) // 3
        return [story[:third], Blank(), story[-third:] if third else ""]
    begin, end = "".join(sentences[:third]), "".join(sentences[-third:])
    # The space before the end is part of what is given.
    return [begin.rstrip() + " ", Blank(), " " + end]


def show_training(console: Console, settings: Settings, folder: Path) -> None:
    """Train on the embedded stories; set the bound beside the truth; let the model write."""
    entropy = stories.entropy()
    heading(console, "Training a tiny model on stories whose entropy is known")
    console.print(
        f"They come from a grammar: {entropy:.1f} nats each, and no model can do better.\n"
        f"For example: {stories.training_stories(1, settings.seed)[0]}\n",
        soft_wrap=True,
    )
    started = time.perf_counter()
    model = train(settings, folder)
    seconds = time.perf_counter() - started
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    bounds = [m["nats_per_document"] for m in map(json.loads, lines) if m["kind"] == "valid"]
    heading(console, "\nWhat it writes now")
    for text in model.generate(num_samples=2, steps=settings.sample_steps, seed=settings.seed):
        console.print(text.text + "\n", soft_wrap=True, markup=False)
    heading(console, "How far from the truth")
    console.print(
        f"bound on unseen stories   {min(bounds):6.1f} nats a story, after {seconds:.0f} s\n"
        f"exact entropy             {entropy:6.1f} nats a story\n"
        f"ratio                     {min(bounds) / entropy:6.2f}\n"
    )
    draw_curve(folder, entropy)


def free_folder(wanted: Path) -> Path:
    """The folder itself if it is new, else the first of wanted-2, wanted-3, ... that is."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
