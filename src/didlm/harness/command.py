"""What `didlm lm-eval` does: run the harness, show its figures and leave a file."""

import json as json_format
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from didlm.files import check_place, write_text
from didlm.generate.controls import suited
from didlm.harness.running import run_harness
from didlm.pretrained import load


def harness_for_user(
    name: str,
    tasks: str,
    include: Path | None,
    shots: int | None,
    limit: int | None,
    device: str,
    json: Path | None,
    **options: Any,
) -> None:
    """Run tasks of the evaluation harness on a model; print the figures, and write them if asked.

    Raises:
        ValueError: if something that is needed is missing.
    """
    if json is not None:
        check_place(json)
    names = [task.strip() for task in tasks.split(",") if task.strip()]
    if not names:
        raise ValueError("--tasks names no task: give their names with commas between them")
    model = load(name, device)
    found = run_harness(model, names, include, shots, limit, **options)
    kind = "exact" if model.method.exact else "bound" if model.method.bounded else "none"
    figures = {
        "model": name,
        "method": model.method.name,
        "likelihood": kind,
        "settings": options | suited({"top_p": options["top_p"]}, model.defaults),
        "results": found["results"],
    }
    if json is not None:
        write_text(json, json_format.dumps(figures, indent=2, default=str) + "\n")
    console = Console(highlight=False)
    table = Table(title=f"{name} ({model.method.name})")
    for heading in ("task", "metric", "value", "standard error"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for task, metrics in found["results"].items():
        for metric, value in metrics.items():
            if isinstance(value, float) and "_stderr" not in metric:
                error = metrics.get(metric.replace(",", "_stderr,"), "")
                shown = f"{error:.4f}" if isinstance(error, float) else ""
                table.add_row(task, metric.partition(",")[0], f"{value:.4f}", shown)
    console.print(table)
    if kind == "bound":
        console.print(
            "Likelihoods are lower bounds on log p, estimated from "
            f"{options.get('draws')} noised states; options of one question share their noise."
        )
