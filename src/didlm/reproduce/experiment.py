"""An experiment: which rows and columns a table of the paper has, and what is to stand in it."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from typing import Any

Value = float | None  # of a cell


@dataclass(frozen=True)
class Row:
    """A row of a table: whom it is about, what is measured, and what the paper found.

    Args:
        label: what it is called, as in the paper.
        run: the training run that it is about.
        part: of the run's four quarters, after how many.
        paper: the paper's figures; nothing where it has none.
        ratio: two other rows by their labels: this one is the first over the second.
        times: by what such a ratio is multiplied.
        more: what only some kinds of experiments know.
    """

    label: Sequence[str]
    run: str = ""
    part: int = 4
    paper: Sequence[float] = ()
    ratio: Sequence[str] = ()
    times: float = 1.0
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The label in one."""
        return " ".join(self.label).strip()

    @property
    def figure(self) -> str:
        """What is measured."""
        return str(self.more.get("figure", self.label[-1]))


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, as its file describes it."""

    name: str
    where: str  # in the paper
    what: str
    kind: str  # how it is done: a name in `didlm.reproduce.kinds`
    labels: Sequence[str]  # headings of the labels
    heading: str  # over all columns
    columns: Sequence[str | int]
    rows: Sequence[Row]
    notes: Sequence[str]
    options: dict[str, Any]


def experiments() -> dict[str, Experiment]:
    """All of them by name, in the order of the paper: tables, figures, listings."""
    files = resources.files("didlm.reproduce.experiments").iterdir()
    found = [_read(file) for file in files if file.name.endswith(".toml")]
    return {each.name: each for each in sorted(found, key=_place)}


def find_experiment(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        ValueError: for an unknown name, with the nearest known one.
    """
    known = experiments()
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        raise ValueError(f"there is no experiment '{name}': {hint}")
    return known[name]


def _read(file: Any) -> Experiment:
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    rows = []
    for row in content.pop("rows"):
        own = {name: row.pop(name) for name in list(row) if name in Row.__dataclass_fields__}
        rows.append(Row(**own, more=row))
    name = file.name.removesuffix(".toml")
    content = {"notes": [], "options": {}} | content
    return Experiment(name=name, rows=rows, **content)


def _place(experiment: Experiment) -> tuple[str, int, str]:
    """Tables before figures, figures before listings, each by its number."""
    kind, _, number = experiment.where.partition(" ")
    order = {"Table": "1", "Figure": "2"}
    return order.get(kind, "3"), int(number) if kind in order else 0, experiment.name
