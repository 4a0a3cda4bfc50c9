"""The command `didlm`: thin, everything it does is in the package."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import didlm

app = typer.Typer(
    help="Deletion-insertion diffusion language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"didlm {didlm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Training steps; fewer are quicker.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """See the exact core at work, then train a tiny model from nothing and let it write."""
    from rich.console import Console

    from didlm.demo import free_folder, show_training
    from didlm.explain import show_core
    from didlm.train.settings import Settings, recipe

    settings = Settings().changed(recipe("demo") | {"seed": seed})
    if steps is not None:
        settings = settings.changed({"steps": steps, "validate_every": steps})
    console = Console(highlight=False)
    show_core(console, seed)
    show_training(console, settings, free_folder(out))


@app.command()
def explain(seed: Annotated[int, typer.Option(min=0, help="Seed of the deletions.")] = 0) -> None:
    """See the exact core at work on a sentence."""
    from rich.console import Console

    from didlm.explain import show_core

    show_core(Console(highlight=False), seed)


@app.command()
def align(
    text: Annotated[str, typer.Argument(help="The complete text x_0, words apart by spaces.")],
    left: Annotated[str, typer.Argument(help="What is left of it, x_t; may be empty.")],
) -> None:
    """Show which words are missing from a text, and where, with their exact targets."""
    from rich.console import Console

    from didlm.explain import show_targets

    show_targets(Console(highlight=False), text.split(), left.split())


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for the model and the records of the run.")],
    data: Annotated[
        str | None, typer.Option(help="A .txt or .jsonl file; the embedded stories without.")
    ] = None,
    valid: Annotated[
        str | None, typer.Option(help="A file, or the fraction of the documents to split off.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="tiny, mini, small, medium, large or xl.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="did or did-fixed.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A named recipe (stories, openwebtext) or a .toml file.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting: NAME=VALUE, repeatable.")
    ] = None,
) -> None:
    """Train a model on your text, or on the embedded stories."""
    from didlm.train.loop import TrainingStopped
    from didlm.train.loop import train as run
    from didlm.train.settings import Settings
    from didlm.train.settings import recipe as read_recipe

    settings = Settings().changed(read_recipe(recipe) if recipe else {})
    named: dict[str, str | int | None] = {"data": data, "valid": valid, "preset": preset}
    named |= {"method": method, "steps": steps, "seed": seed, "device": device}
    settings = settings.changed({name: v for name, v in named.items() if v is not None})
    for assignment in set_ or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE: got '{assignment}'")
        settings = settings.changed({name.strip(): value.strip()})
    try:
        run(settings, out)
    except TrainingStopped as error:
        print(f"didlm: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


@app.command()
def generate(
    model: Annotated[Path, typer.Option(help="Folder of a trained model.")],
    num: Annotated[int, typer.Option(help="How many texts.")] = 1,
    steps: Annotated[int, typer.Option(help="Network calls per text.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    temperature: Annotated[float, typer.Option(help="Of the token distribution.")] = 1.0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
) -> None:
    """Let a model write."""
    from didlm.pretrained import load

    texts = load(model, device).generate(num, steps, seed, temperature)
    print("\n\n".join(texts))


def main() -> None:
    """Run the command; bad input ends in one sentence and exit code 2.

    DIDLM_DEBUG=1 in the environment shows where the sentence comes from.
    """
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("DIDLM_DEBUG"):
            raise
        said = isinstance(error, OSError) and error.filename
        sentence = f"{error.filename}: {error.strerror}" if said else error  # type: ignore[union-attr]
        print(f"didlm: {sentence}", file=sys.stderr)
        sys.exit(2)
