"""Samples to be measured, with a bar that shows how far they are."""

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from didlm.generate.results import Frame, Sample
from didlm.pretrained import Model


def write_samples(
    model: Model, num: int, seed: int, batch_size: int | None, **controls: Any
) -> list[Sample]:
    """Let a model write from nothing; on a terminal, show how far it is.

    Args:
        model: the model.
        num: how many texts.
        seed: of all draws.
        batch_size: how many texts are written together.
        **controls: see `Model.generate`.
    """
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        return model.generate(num_samples=num, seed=seed, batch_size=batch_size, **controls)
    columns = (TextColumn("texts"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("writing", total=num)

        def show(frames: list[Frame]) -> None:
            done = frames[0].number + sum(1 - frame.time for frame in frames)
            bar.update(task, completed=done)

        return model.generate(
            num_samples=num, seed=seed, batch_size=batch_size, callback=show, **controls
        )
