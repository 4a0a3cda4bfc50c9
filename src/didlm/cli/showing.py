"""Commands that show what the method is."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for what it makes.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Training steps; fewer are quicker.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Watch a model write and fill in a story, then train a tiny one from nothing."""
    from rich.console import Console

    from didlm.cli.endings import training_may_stop
    from didlm.demo import free_folder, show_demo
    from didlm.train.settings import Settings, recipe

    settings = Settings().changed(recipe("demo") | {"seed": seed})
    if steps is not None:
        settings = settings.changed({"steps": steps, "validate_every": steps})
    with training_may_stop():
        show_demo(Console(highlight=False), settings, free_folder(out))


def explain(seed: Annotated[int, typer.Option(min=0, help="Seed of the deletions.")] = 0) -> None:
    """See the exact core at work on a sentence."""
    from rich.console import Console

    from didlm.explain import show_core

    show_core(Console(highlight=False), seed)


def align(
    text: Annotated[str, typer.Argument(help="The complete text x_0, words apart by spaces.")],
    left: Annotated[str, typer.Argument(help="What is left of it, x_t; may be empty.")],
) -> None:
    """Show which words are missing from a text, and where, with their exact targets."""
    from rich.console import Console

    from didlm.explain import show_targets

    show_targets(Console(highlight=False), text.split(), left.split())
