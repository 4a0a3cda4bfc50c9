"""Commands that let a model write."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from didlm.cli.options import SUGGESTED, Device, ModelName, Precision

_STORIES = "stories"  # the model that writes where none is named


def _writing(
    model: ModelName = _STORIES,
    num: Annotated[int, typer.Option(help="How many texts.")] = 1,
    steps: Annotated[int, typer.Option(help="Of the time grid: more are better and slower.")] = 64,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed writes the same texts; random if none is given."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Draw from the likeliest tokens that together have this probability.",
            show_default=SUGGESTED,
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from so many of the likeliest tokens.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Below 1: likelier tokens, 0: the likeliest; above 1: more varied.",
            show_default=SUGGESTED,
        ),
    ] = None,
    position_temperature: Annotated[
        float | None,
        typer.Option(
            help="Below 1: tokens come first where the model is surest.", show_default=SUGGESTED
        ),
    ] = None,
    rate_scale: Annotated[
        float | None,
        typer.Option(help="Below 1: shorter texts; above 1: longer ones.", show_default=SUGGESTED),
    ] = None,
    repeats: Annotated[
        bool | None,
        typer.Option(
            "--repeats/--no-repeats",
            help="Whether a token may come right beside its equal.",
            show_default="as the model suggests, else it may",
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="adaptive, tau-leaping, counted, jump-chain.")
    ] = None,
    grid: Annotated[str, typer.Option(help="Of times: uniform or cosine.")] = "uniform",
    caution: Annotated[
        float, typer.Option(help="Tokens a gap may expect per step: less is better and slower.")
    ] = 0.25,
    length: Annotated[int | None, typer.Option(help="Tokens each text is to have.")] = None,
    min_length: Annotated[int, typer.Option(help="The fewest tokens of a text.")] = 0,
    max_length: Annotated[int | None, typer.Option(help="The most tokens of a text.")] = None,
    ban: Annotated[
        list[str] | None, typer.Option(help="A token never to insert, as ' dog'; repeatable.")
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option(help="A text that must occur, as ' dog'; repeatable.")
    ] = None,
    correct: Annotated[float, typer.Option(help="Share of the tokens to take back and redo.")] = 0,
    corrections: Annotated[int, typer.Option(help="How often to do so.")] = 1,
    correction_steps: Annotated[int, typer.Option(help="Steps in which they come back.")] = 8,
    batch_size: Annotated[int | None, typer.Option(help="Texts written together.")] = None,
    device: Device = "cpu",
    dtype: Precision = "fp32",
    json: Annotated[
        Path | None, typer.Option(help="Write one JSON object a line to this file.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the texts growing.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write how they grew to FILE.html or FILE.gif.")
    ] = None,
) -> None:
    """The options that `generate` and `infill` share."""


def _with_writing_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `_writing` in the place of its `**options`."""
    own = list(inspect.signature(command).parameters.values())[:-1]
    shared = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(_writing).parameters.values()
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        command(**arguments)

    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return run


@_with_writing_options
def generate(
    prompt: Annotated[str, typer.Option(help="How every text begins.")] = "",
    suffix: Annotated[str, typer.Option(help="How every text ends.")] = "",
    **options: Any,
) -> None:
    """Let a model write, from nothing or around a prompt and a suffix."""
    from didlm.generate.command import write_for_user
    from didlm.generate.template import Blank

    write_for_user([prompt, Blank(), suffix], **options)


@_with_writing_options
def infill(
    template: Annotated[
        str, typer.Argument(help="Text with blanks: [...], [...5], [...2-5] or [_].")
    ],
    **options: Any,
) -> None:
    """Fill the blanks of a text; what stands around them is kept."""
    from didlm.generate.command import write_for_user
    from didlm.generate.template import parse

    write_for_user(parse(template), **options)


def serve(
    model: ModelName = _STORIES,
    host: Annotated[
        str, typer.Option(help="Any but this machine's own needs DIDLM_TOKEN in the environment.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any.")] = 8000,
    device: Device = "cpu",
    dtype: Precision = "fp32",
    batch: Annotated[
        int | None, typer.Option(help="Texts written at once; 16, or 64 on a GPU.")
    ] = None,
    waiting: Annotated[
        int | None, typer.Option(help="Texts that may wait for that; twice as many.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Until a request is given up.")] = 300,
) -> None:
    """Serve a model over HTTP, with a page to watch it write."""
    from didlm.serve.command import serve_for_user
    from didlm.serve.limits import Limits

    # More at once than keep a processor busy would only make everybody wait longer.
    batch = batch if batch is not None else 16 if device == "cpu" else 64
    waiting = 2 * batch if waiting is None else waiting
    limits = Limits(batch=batch, waiting=waiting, seconds=seconds)
    serve_for_user(model, host, port, device, dtype, limits)
