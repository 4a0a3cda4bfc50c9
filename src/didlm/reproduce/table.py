"""Tables with the paper's rows and columns, and its figures beside ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from didlm.reproduce.experiment import Experiment, Row, Value

STAMP = "not comparable with the paper"
AVERAGE = "Average"
Cell = Callable[[Row, str | int], Value]


@dataclass
class Outcome:
    """What came out of an experiment.

    Args:
        values: of each row, by column.
        notes: how to read it.
        pictures: PNGs by name.
        texts: listings by title.
    """

    values: list[list[Value]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def filled(experiment: Experiment, cell: Cell) -> list[list[Value]]:
    """The values of all rows; ratios of rows and averages over columns follow from the others."""
    found: dict[str, list[Value]] = {}
    for row in experiment.rows:
        if row.ratio:
            continue
        plain = [column for column in experiment.columns if column != AVERAGE]
        values = [cell(row, column) for column in plain]
        if AVERAGE in experiment.columns:
            known = [value for value in values if value is not None]
            values.append(float(np.mean(known)) if len(known) == len(values) else None)
        found[row.name] = values
    for row in experiment.rows:
        if row.ratio:
            above, below = (found[name] for name in row.ratio)
            pairs = zip(above, below, strict=True)
            found[row.name] = [row.times * a / b if a and b else None for a, b in pairs]
    return [found[row.name] for row in experiment.rows]


def lines_of(experiment: Experiment, outcome: Outcome) -> list[list[str]]:
    """Headings, then of every row the paper's figures and below them ours."""
    heading = f"{experiment.heading}: " if experiment.heading else ""
    columns = [str(column) for column in experiment.columns]
    lines = [[*experiment.labels, heading.strip(), *columns]]
    for row, values in zip(experiment.rows, outcome.values, strict=True):
        paper: Sequence[Value] = [*row.paper, *[None] * (len(columns) - len(row.paper))]
        empty = [""] * len(row.label)
        lines.append([*row.label, "paper", *printed(paper)])
        lines.append([*empty, "ours", *map(shown, values)])
    return lines


def printed(values: Sequence[Value]) -> list[str]:
    """The paper's figures of a row, all with as many digits as the one that has most."""
    texts = ["" if value is None else str(value) for value in values]
    digits = max((len(text.partition(".")[2]) for text in texts), default=0)
    return ["-" if value is None else f"{value:.{digits}f}" for value in values]


def shown(value: Value) -> str:
    """A figure with as many digits as the paper would give it."""
    if value is None or not np.isfinite(value):
        return "-"
    if isinstance(value, int):
        return str(value)
    if abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:.2f}" if abs(value) >= 2 else f"{value:.3f}"


def as_markdown(experiment: Experiment, outcome: Outcome, stamp: str) -> str:
    """The table as a page, with its notes and texts."""
    parts = [f"# {experiment.name}: {experiment.where}", f"{experiment.what}.", stamp]
    if outcome.values:
        parts.append(markdown_table(experiment, outcome))
    parts += [f"![{name}]({name}.png)" for name in outcome.pictures]
    parts += [f"- {note}" for note in (*experiment.notes, *outcome.notes)]
    for title, text in outcome.texts.items():
        parts.append(f"## {title}\n\n```\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def markdown_table(experiment: Experiment, outcome: Outcome) -> str:
    """The table alone."""
    head, *body = lines_of(experiment, outcome)
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def as_data(experiment: Experiment, outcome: Outcome, scale: str, stamp: str) -> dict[str, object]:
    """The same for machines."""
    return {
        "name": experiment.name,
        "where": experiment.where,
        "what": experiment.what,
        "scale": scale,
        "stamp": stamp,
        "columns": list(experiment.columns),
        "rows": [
            {"label": list(row.label), "paper": list(row.paper), "ours": values}
            for row, values in zip(experiment.rows, outcome.values, strict=True)
        ],
        "notes": [*experiment.notes, *outcome.notes],
        "texts": outcome.texts,
    }
