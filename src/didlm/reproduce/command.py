"""What `didlm reproduce` does: list experiments, or do one and leave its table."""

import json as json_format
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from didlm.files import check_folder, write_bytes, write_text
from didlm.locate import locate
from didlm.reproduce.asked import check_same, needs_of, options_of, record_asked
from didlm.reproduce.changes import check_changes, read_changes
from didlm.reproduce.experiment import Experiment, experiments, find_experiment
from didlm.reproduce.kinds import kind, needs_device
from didlm.reproduce.origins import different, now
from didlm.reproduce.scale import find_scale, scales
from didlm.reproduce.sources import Sources, assigned
from didlm.reproduce.stamp import local_data, stamp_of, told
from didlm.reproduce.table import Outcome, as_data, as_markdown, lines_of
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.record import surroundings


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
    settings = read_changes(changes, device)
    check_folder(out)
    shop = Workshop(
        folder=out,
        scale=chosen,
        sources=Sources.given(data),
        models=_located(assigned(models, "--model", all_runs())),
        changes=settings,
        judge_name=judge,
        say=Console(stderr=True, highlight=False).print,
        on_device=needs_device(experiment.kind),
    )
    check_changes(shop, needs_of(shop, experiment).runs)
    options = options_of(shop, experiment)
    check_same(out, options)
    shop.keeping = partial(record_asked, out, options)
    outcome = kind(experiment.kind)(shop, experiment)
    outcome.notes += local_data(shop, experiment)
    stamp = stamp_of(shop, experiment)
    record_asked(out, options)
    command = command_of(name, scale, data, models, judge, changes, device)
    _leave(shop, experiment, outcome, stamp, command)
    _show(console, experiment, outcome, stamp)
    console.print(f"The table is {out / (name + '.md')}, its figures are in {name}.json.")


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
    words += [word for option, each in repeated.items() for a in each for word in (option, told(a))]
    words += ["--judge", told(judge)] if judge else []
    words += ["--device", device] if device else []
    return shlex.join(words)


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


def _leave(
    shop: Workshop, experiment: Experiment, outcome: Outcome, stamp: str, command: str
) -> None:
    """Write the table, its figures with what is known of their origin, and its pictures."""
    needs = needs_of(shop, experiment)
    runs = shop.trained(needs.runs if experiment.kind != "speed" else ())  # takes steps of its own
    origins = different(shop.origins.values()) or [{"date": now()} | surroundings()]
    figures = as_data(experiment, outcome, shop.scale.name, stamp)
    figures |= {"made": {"command": command, "origins": origins}, "runs": runs}
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
