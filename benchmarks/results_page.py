"""The paper's tables at a small scale in docs/results.md, as `didlm reproduce` has left them.

    python benchmarks/results_page.py reproduction/minutes

Reads NAME.json of every table in the folders, and writes what stands between the markers of the
page; all else there is left as it is. Of a table in several folders the last counts.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from didlm.files import write_text
from didlm.reproduce.experiment import experiments, find_experiment
from didlm.reproduce.table import Outcome, markdown_table
from marks import between

PAGE = Path(__file__).parents[1] / "docs/results.md"
PLACE = "<!-- reproduce -->\n<!-- /reproduce -->\n"
HEADING = "# Results"
INTRODUCTION = """\
## The paper's tables at a small scale

Every table below was made by [`didlm reproduce`](reproduce.md), with the paper's figures beside
ours. Data, training and the judge are not the paper's, nor is the hardware: what can be read from
these tables is what grows with what, and which method is ahead of which in so short a training."""
UNKNOWN = "unknown"

Record = dict[str, Any]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="of didlm reproduce --out")
    parser.add_argument("--commit", default="", help="of records that do not know it")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    try:
        records = read(options.folders, options.commit)
        before = options.page.read_text(encoding="utf-8") if options.page.exists() else ""
        write_text(options.page, filled(before, records))
    except ValueError as problem:
        parser.error(str(problem))
    print(f"{len(records)} tables in {options.page}")


def read(folders: Iterable[Path], commit: str = "") -> list[Record]:
    """The records of all tables in folders, in the order of the paper.

    Raises:
        ValueError: if there are none, or one was made of another table or of an unknown commit.
    """
    found: dict[str, Record] = {}
    for name, experiment in experiments().items():
        for file in (folder / f"{name}.json" for folder in folders):
            if not experiment.rows or not file.is_file():
                continue
            record = found[name] = json.loads(file.read_text(encoding="utf-8"))
            labels = [row["label"] for row in record["rows"]]
            if labels != [list(row.label) for row in experiment.rows]:
                raise ValueError(f"{file} has other rows than the table has now: make it again")
            for origin in origins(record):
                if origin["versions"]["commit"] == UNKNOWN:
                    if not commit:
                        raise ValueError(f"{file} does not know its commit: name it with --commit")
                    origin["versions"]["commit"] = commit
    if not found:
        raise ValueError(f"there is no table in {', '.join(map(str, folders))}")
    return list(found.values())


def origins(record: Record) -> list[Record]:
    """When, of which version and on what its figures were found: several if they differ."""
    made = record["made"]  # itself, in records of older versions
    found: list[Record] = made.get("origins", [made])
    return found


def filled(page: str, records: Sequence[Record]) -> str:
    """The page with these tables between its marks, which it gets if it has none."""
    parts = [INTRODUCTION, training(records), *map(section, records)]
    if "reproduce -->" not in page:
        page = f"{page.rstrip() or HEADING}\n\n{PLACE}"
    return between(page, "reproduce", "\n\n".join(part for part in parts if part))


def training(records: Sequence[Record]) -> str:
    """A table of the runs behind all tables; nothing if nothing was trained."""
    runs = {name: run for record in records for name, run in record["runs"].items()}
    if not runs:
        return ""
    head = ["run", "method", "size", "steps", "texts a step", "learning rate"]
    lines = [head, ["---"] * len(head)]
    for name, run in runs.items():
        numbers = [f"{run['steps']:,}", str(run["batch"]), f"{run['learning_rate']:g}"]
        lines.append([name, run["method"], run["preset"], *numbers])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(record: Record) -> str:
    """One table with its stamp, its notes, and what is needed to make it again."""
    experiment = find_experiment(record["name"])
    outcome = Outcome([row["ours"] for row in record["rows"]])
    places = "; ".join(dict.fromkeys(map(place, origins(record))))
    return "\n\n".join(
        [
            f"### {experiment.where}: {experiment.what}",
            record["stamp"],
            markdown_table(experiment, outcome),
            *(f"- {note}" for note in record["notes"]),
            f"`{record['made']['command']}`, {places}.",
        ]
    )


def place(origin: Record) -> str:
    """Days, commit, hardware and the version of torch, as far as they are known."""
    days = dict.fromkeys(origin[key][:10] for key in ("date", "until") if key in origin)
    date = "on an unknown day" if origin["date"] == UNKNOWN else " to ".join(days)
    versions = origin["versions"]
    torch = f"torch {versions.get('torch', UNKNOWN)}"
    return f"{date}, commit {versions['commit']}, {hardware(origin['hardware'])}, {torch}"


def hardware(found: Record) -> str:
    """What it ran on."""
    if "gpus" not in found:
        return "unknown hardware"
    gpus = found["gpus"]
    return f"one {gpus[0]}" if len(gpus) == 1 else f"{len(gpus)} GPUs" if gpus else "a processor"


if __name__ == "__main__":
    main()
