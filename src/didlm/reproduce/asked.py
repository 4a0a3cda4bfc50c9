"""What the figures of a folder were asked for with, which all others there must have in common."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from didlm.files import write_text
from didlm.reproduce.changes import lasting
from didlm.reproduce.experiment import Experiment
from didlm.reproduce.kinds import JUDGED, needs_device
from didlm.reproduce.perplexity import set_of
from didlm.reproduce.sources import known
from didlm.reproduce.workshop import Workshop, all_runs, judge_of


@dataclass(frozen=True)
class Needs:
    """The runs and the data that the figures of an experiment depend on."""

    runs: tuple[str, ...]
    data: tuple[str, ...]


def needs_of(shop: Workshop, experiment: Experiment) -> Needs:
    """Those of an experiment, with the runs that others start from and those that judge."""
    asked = [*(row.run for row in experiment.rows), experiment.options.get("run", "")]
    runs = dict.fromkeys(run for run in asked if run)
    runs |= dict.fromkeys(str(all_runs()[run]["start"]) for run in runs if _starts(run))
    if experiment.kind in JUDGED and not (shop.judge_name or shop.scale.judge):
        runs |= dict.fromkeys(judge_of(run) for run in runs if judge_of(run) in all_runs())
    data = {str(all_runs()[run][what]) for run in runs for what in ("data", "tokenizer")
            if what in all_runs()[run]}  # fmt: skip
    return Needs(tuple(runs), tuple(sorted(data | _asked_about(experiment))))


def _starts(run: str) -> bool:
    return "start" in all_runs()[run]


def _asked_about(experiment: Experiment) -> set[str]:
    """The data that models are measured on."""
    if experiment.kind == "gsm8k":
        return {"gsm8k"}
    if experiment.kind == "downstream":
        from didlm.reproduce.downstream import TASKS  # imports the evaluation harness

        return set(TASKS.values())
    return {set_of(column) for column in experiment.columns} & set(known())


def options_of(shop: Workshop, experiment: Experiment) -> dict[str, str]:
    """All options that its figures depend on, the empty ones for what was not given."""
    needs, local = needs_of(shop, experiment), shop.sources.local
    options = {"--scale": shop.scale.name, "--judge": shop.judge_name or ""}
    options["--set"] = " ".join(lasting(shop.changes))
    if needs_device(experiment.kind):
        options["--device"] = shop.device
    # In the place of what came from the hub, or was trained here, nothing may be put later on.
    for name in dict.fromkeys((*needs.data, *local)):
        options[f"--data {name}"] = str(local.get(name, ""))
    for run in dict.fromkeys((*needs.runs, *shop.models)):
        options[f"--model {run}"] = shop.models.get(run, "")
    return options


def check_same(folder: Path, options: Mapping[str, str]) -> None:
    """Figures that were found out differently never share a folder.

    Raises:
        ValueError: if those in the folder were.
    """
    before = _recorded(folder)
    for option, value in options.items():
        if before.get(option, value) != value:
            raise ValueError(
                f"{folder} holds figures with {option} '{before[option]}', not '{value}': "
                "choose another folder"
            )


def record_asked(folder: Path, options: Mapping[str, str]) -> None:
    """Write down what is asked for, as soon as there is something that depends on it."""
    before = _recorded(folder)
    both = {**before, **options}
    if both != before:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "asked.json", json.dumps(both, indent=1) + "\n")


def _recorded(folder: Path) -> dict[str, str]:
    file = folder / "asked.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
