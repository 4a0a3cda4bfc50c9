"""What `didlm evaluate` does: read, measure, show, and leave a file."""

import json as json_format
from pathlib import Path

from rich.console import Console
from rich.table import Table

from didlm.data.documents import read_documents
from didlm.evaluate.likelihood import Likelihood, evaluate
from didlm.files import check_place, write_text
from didlm.pretrained import load


def evaluate_for_user(
    folder: Path,
    data: Path,
    documents: int | None,
    draws: int,
    seed: int,
    column: str,
    device: str,
    json: Path | None,
) -> None:
    """Score the documents of a file; print the figures, and write them if asked to."""
    if json is not None:
        check_place(json)
    model = load(folder, device)
    texts = read_documents(data, column=column)[:documents]
    result = evaluate(model, texts, draws, seed)
    if json is not None:
        write_text(json, json_format.dumps(result.summary(), indent=2) + "\n")
    Console(highlight=False).print(table(result))


def table(result: Likelihood) -> Table:
    """The figures for people."""
    figures = result.summary()
    what = "exact likelihood" if result.exact else "upper bound"
    lengths = "any length" if result.variable_length else "one length"
    shown = Table(title=f"{result.method}: {what}, texts of {lengths}", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    error = "" if result.exact else f" ± {result.stderr:.4f}"
    rows = {
        "nats per token": f"{result.nats_per_token:.4f}{error}",
        "bits per byte": f"{figures['bits_per_byte']:.4f}",
        "perplexity": f"{figures['perplexity']:.3f}",
        "standard error from the choice of documents": f"{result.stderr_documents:.4f}",
        "documents": f"{figures['documents']:,}",
        "tokens": f"{result.tokens:,}",
        "bytes": f"{result.bytes:,}",
    }
    if "nats_per_token_dse" in figures:
        rows["nats per token, tighter bound"] = f"{figures['nats_per_token_dse']:.4f}"
    if result.cut:
        rows["documents cut"] = f"{result.cut:,}"
    for name, value in rows.items():
        shown.add_row(name, value)
    return shown
