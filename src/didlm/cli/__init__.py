"""The command `didlm`: thin, everything it does is in the package."""

import os
import signal
import sys
from typing import Annotated

import typer

import didlm
from didlm.cli.measuring import compare, evaluate, lm_eval, reproduce
from didlm.cli.models import convert, info, push
from didlm.cli.showing import align, demo, explain
from didlm.cli.training import plan, prepare, train
from didlm.cli.writing import generate, infill, serve

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


for command in (
    demo, explain, align, train, prepare, info, generate, infill,
    evaluate, compare, plan, lm_eval, reproduce, push, convert, serve,
):  # in the order of `didlm --help`  # fmt: skip
    app.command()(command)


def _interrupt(number: int, frame: object) -> None:
    print("didlm: interrupted", file=sys.stderr)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; bad input ends in one sentence and exit code 2, Ctrl-C and SIGTERM in 130.

    DIDLM_DEBUG=1 in the environment shows where the sentence comes from.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)  # so that what is half done is cleared away
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("DIDLM_DEBUG"):
            raise
        said = isinstance(error, OSError) and error.filename
        sentence = f"{error.filename}: {error.strerror}" if said else error  # type: ignore[union-attr]
        print(f"didlm: {sentence}", file=sys.stderr)
        sys.exit(2)
