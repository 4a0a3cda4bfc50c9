"""Whether the figures of a table may be compared with the paper's, and if not, why."""

from pathlib import Path

from didlm.reproduce.asked import needs_of
from didlm.reproduce.changes import lasting, learnt
from didlm.reproduce.experiment import Experiment
from didlm.reproduce.kinds import JUDGED
from didlm.reproduce.table import STAMP
from didlm.reproduce.workshop import Workshop


def stamp_of(shop: Workshop, experiment: Experiment) -> str:
    """What is said of all figures of a table."""
    scale = shop.scale
    if not scale.comparable:
        return f"At the scale '{scale.name}' ({scale.what}): {STAMP}."
    other = _other(shop, experiment)
    if other:
        return f"At the scale of the paper, but {STAMP}, for it was done with {', '.join(other)}."
    return "At the scale of the paper."


def _other(shop: Workshop, experiment: Experiment) -> list[str]:
    """The options by which it is not what the paper did."""
    runs = needs_of(shop, experiment).runs
    if not runs:
        return []
    if experiment.kind == "speed":  # asks no model
        return [f"--set {change}" for change in lasting(shop.changes)]
    judge, options = shop.judge_name or shop.scale.judge, []
    if experiment.kind in JUDGED and judge != shop.scale.judge:
        options.append(f"--judge {told(judge)}")
    options += [f"--model {run}={told(shop.models[run])}" for run in runs if run in shop.models]
    return options + [f"--set {change}" for change in learnt(shop.changes)]


def local_data(shop: Workshop, experiment: Experiment) -> list[str]:
    """A note about files in the place of data: they may be the same data or not."""
    needed, local = needs_of(shop, experiment).data, shop.sources.local
    files = [f"{name} ({local[name].name})" for name in needed if name in local]
    return [f"From local files, which may be other data: {', '.join(files)}."] if files else []


def told(word: str) -> str:
    """A word of a command; files are called by their names alone."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).exists() else word
