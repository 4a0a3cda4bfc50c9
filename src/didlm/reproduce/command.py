"""What `didlm reproduce` does: list experiments, or do one and leave its table."""

import json as json_format
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from didlm.files import check_folder, write_bytes, write_text
from didlm.locate import locate
from didlm.reproduce.experiment import Experiment, experiments, find_experiment
from didlm.reproduce.kinds import kind
from didlm.reproduce.scale import Scale, find_scale, scales
from didlm.reproduce.sources import Sources, assigned
from didlm.reproduce.table import STAMP, Outcome, as_data, as_markdown, lines_of
from didlm.reproduce.workshop import Workshop, all_runs, judge_of
from didlm.train.record import surroundings
from didlm.train.resume import MAY_CHANGE
from didlm.train.settings import Settings


def reproduce_for_user(
    name: str | None,
    scale: str,
    data: Sequence[str],
    models: Sequence[str],
    judge: str | None,
    changes: Sequence[str],
    device: str | None,
    out: Path,
) -> None:
    """Do an experiment of the paper; without a name, list them all.

    Raises:
        ValueError: in one sentence, if something is unknown or missing.
    """
    console = Console(highlight=False)
    if name is None:
        _list(console)
        return
    experiment, chosen = find_experiment(name), find_scale(scale)
    known = vars(Settings())
    settings = assigned(changes, "--set", known) | ({"device": device} if device else {})
    check_folder(out)
    shop = Workshop(
        folder=out,
        scale=chosen,
        sources=Sources.given(data),
        models=_located(assigned(models, "--model", all_runs())),
        changes=settings,
        judge_name=judge,
        say=Console(stderr=True, highlight=False).print,
    )
    _check_same(shop)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    outcome = kind(experiment.kind)(shop, experiment)
    command = command_of(name, scale, data, models, judge, changes, device)
    made = {"date": started, "command": command} | surroundings()
    _leave(shop, experiment, outcome, made)
    _show(console, experiment, outcome, stamp_of(chosen))
    console.print(f"The table is {out / (name + '.md')}, its figures are in {name}.json.")


def stamp_of(scale: Scale) -> str:
    """What is said of all figures of a scale."""
    if scale.comparable:
        return "At the scale of the paper."
    return f"At the scale '{scale.name}' ({scale.what}): {STAMP}."


def command_of(
    name: str,
    scale: str,
    data: Sequence[str],
    models: Sequence[str],
    judge: str | None,
    changes: Sequence[str],
    device: str | None,
) -> str:
    """The command that does the same again; files are called by their names alone."""
    words = ["didlm", "reproduce", name, "--scale", scale]
    repeated = {"--data": data, "--model": models, "--set": changes}
    words += [
        word for option, each in repeated.items() for a in each for word in (option, _told(a))
    ]
    words += ["--judge", _told(judge)] if judge else []
    words += ["--device", device] if device else []
    return shlex.join(words)


def _told(word: str) -> str:
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).exists() else word


def _located(models: dict[str, str]) -> dict[str, str]:
    """The folders of models that take the place of runs, before anything is done for the others.

    Raises:
        ValueError: if one is not there.
    """
    found = {}
    for run, model in models.items():
        try:
            found[run] = str(locate(model))
        except ValueError as problem:
            raise ValueError(f"--model {run}: {problem}") from None
    return found


def _list(console: Console) -> None:
    for experiment in experiments().values():
        console.print(f"{experiment.name:22} {experiment.where}: {experiment.what}", soft_wrap=True)
    console.print("\nScales: " + "; ".join(f"{s.name}, {s.what}" for s in scales().values()) + ".")


def _check_same(shop: Workshop) -> None:
    """Figures that were found out differently never share a folder.

    Raises:
        ValueError: if those in the folder were.
    """
    file = shop.folder / "asked.json"
    now: dict[str, str] = {"--scale": shop.scale.name, "--judge": shop.judge_name or ""}
    now |= {f"--data {name}": str(path) for name, path in shop.sources.local.items()}
    now |= {f"--model {name}": model for name, model in shop.models.items()}
    changed = (f"{name}={x}" for name, x in shop.changes.items() if name not in MAY_CHANGE)
    now["--set"] = " ".join(sorted(changed))
    before = json_format.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for option, value in now.items():
        if before.get(option, value) != value:
            raise ValueError(
                f"{shop.folder} holds figures with {option} '{before[option]}', not '{value}': "
                "choose another folder"
            )
    shop.folder.mkdir(parents=True, exist_ok=True)
    write_text(file, json_format.dumps(before | now, indent=1) + "\n")


def _leave(shop: Workshop, experiment: Experiment, outcome: Outcome, made: dict[str, Any]) -> None:
    stamp = stamp_of(shop.scale)
    asked = [*(row.run for row in experiment.rows if row.run), experiment.options.get("run", "")]
    runs = dict.fromkeys(run for run in asked if run)
    runs |= dict.fromkeys(judge_of(run) for run in runs if judge_of(run) in all_runs())
    figures = as_data(experiment, outcome, shop.scale.name, stamp)
    figures |= {"made": made, "runs": shop.trained(runs)}
    for name, picture in outcome.pictures.items():
        write_bytes(shop.folder / f"{name}.png", picture)
    write_text(shop.folder / f"{experiment.name}.md", as_markdown(experiment, outcome, stamp))
    text = json_format.dumps(figures, indent=1)
    write_text(shop.folder / f"{experiment.name}.json", text + "\n")


def _show(console: Console, experiment: Experiment, outcome: Outcome, stamp: str) -> None:
    if outcome.values:
        head, *lines = lines_of(experiment, outcome)
        table = Table(title=f"{experiment.where}: {experiment.what}")
        for number, heading in enumerate(head):
            label = number <= len(experiment.labels)
            table.add_column(heading, justify="left" if label else "right", no_wrap=label)
        for number, line in enumerate(lines):
            table.add_row(*line, end_section=number % 2 == 1)
        # Figures that are cut are worse than lines that are.
        needed = sum(max(map(len, cells)) + 3 for cells in zip(head, *lines, strict=True)) + 1
        Console(highlight=False, width=max(console.width, needed)).print(table)
    for title, text in outcome.texts.items():
        console.print(f"=== {title} ===\n{text}\n", markup=False)
    for note in (*experiment.notes, *outcome.notes):
        console.print(note, markup=False)
    console.print(stamp, markup=False)
