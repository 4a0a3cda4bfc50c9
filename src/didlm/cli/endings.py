"""How training ends that cannot go on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

EXIT_INTERRUPTED = 75  # of a run that was asked to stop: try again later, with --resume


@contextmanager
def training_may_stop() -> Iterator[None]:
    """Training that cannot go on ends in one sentence and an exit code of its own."""
    from didlm.train.loop import Interrupted, TrainingStopped

    try:
        yield
    except (Interrupted, TrainingStopped) as error:
        print(f"didlm: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED if isinstance(error, Interrupted) else 1) from None
