"""The command `didlm`: thin, everything it does is in the package."""

import sys
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
def demo(seed: Annotated[int, typer.Option(min=0, help="Seed of the deletions.")] = 0) -> None:
    """See the exact core at work on a sentence."""
    from rich.console import Console

    from didlm.demo import show_demo

    show_demo(Console(highlight=False), seed)


@app.command()
def align(
    text: Annotated[str, typer.Argument(help="The complete text x_0, words apart by spaces.")],
    left: Annotated[str, typer.Argument(help="What is left of it, x_t; may be empty.")],
) -> None:
    """Show which words are missing from a text, and where, with their exact targets."""
    from rich.console import Console

    from didlm.demo import show_targets

    show_targets(Console(highlight=False), text.split(), left.split())


def main() -> None:
    """Run the command; bad input ends in one sentence and exit code 2."""
    try:
        app()
    except ValueError as error:
        print(f"didlm: {error}", file=sys.stderr)
        sys.exit(2)
