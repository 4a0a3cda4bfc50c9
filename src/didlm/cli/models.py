"""Commands for the folders of models, and what else is kept in folders."""

from pathlib import Path
from typing import Annotated

import typer

from didlm.cli.options import AsJson, ModelName


def info(
    path: Annotated[
        Path, typer.Argument(help="Folder of a store, a run or a model, or a shipped name.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a store with its hashes.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Say what a folder is: a token store, a run, a model."""
    from didlm.info import show_info

    show_info(path, verify, json)


def push(
    repo: Annotated[str, typer.Argument(help="Where to on the hub: owner/name.")],
    model: ModelName,
    private: Annotated[bool, typer.Option("--private", help="Others must not see it.")] = False,
) -> None:
    """Put a model on the Hugging Face hub."""
    from didlm.pretrained import load

    print(load(model).push_to_hub(repo, private))


def convert(
    source: Annotated[
        Path, typer.Argument(help="A .safetensors, .pt, .pth, .bin or .ckpt file, or its folder.")
    ],
    tokenizer: Annotated[
        Path, typer.Option(help="The tokenizer of the weights: a file, or its folder.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    kind: Annotated[
        str | None, typer.Option(help="radd, ilm, did or did-fixed; else as the names tell.")
    ] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Take the moving averages that a checkpoint holds.")
    ] = False,
    heads: Annotated[
        int | None, typer.Option(help="Of attention, if the weights do not tell.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a text, if config.json does not tell (1024).")
    ] = None,
) -> None:
    """Make a model folder of the weights of public research code."""
    from didlm.convert.command import convert_for_user

    convert_for_user(source, kind, tokenizer, out, ema, heads, length)
