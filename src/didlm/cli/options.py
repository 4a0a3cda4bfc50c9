"""Options that commands share."""

from typing import Annotated

import typer

ModelName = Annotated[str, typer.Option(help="A folder, a shipped name, or a hub id.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Precision = Annotated[str, typer.Option(help="fp32, bf16 or fp16.")]
SUGGESTED = "as the model suggests, else 1"  # of what it may bring along
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]
