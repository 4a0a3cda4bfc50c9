"""What `--set` may change of the runs of the paper, and whether a figure depends on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from didlm.reproduce.sources import assigned
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.settings import Settings

# By these the runs of a table are told apart, or found again.
OF_THE_RUNS = {
    "method": "",
    "objective": "",
    "preset": "",
    "init": "",
    "snapshots": "",
    "data": "; name files with --data",
    "tokenizer": "; name a file with --data",
}
# Checkpoints, what is told of training, and how often it is validated: no figure depends on them
# but the curves of Figure 3, which see for themselves whether there are enough validations.
QUIET = {
    "validate_every",
    "validate_seconds",
    "samples",
    "sample_steps",
    "log_every",
    "checkpoint_every",
    "checkpoint_seconds",
    "keep_checkpoints",
}
# How steps are taken, and not what is learnt in them.
OF_TIMES = {"accumulate", "compile", "checkpointing", "capture", "distribution", "workers"}


def read_changes(changes: Sequence[str], device: str | None) -> dict[str, str]:
    """The settings that all runs are to have, the device among them.

    Raises:
        ValueError: for an unknown setting, or one that the recipes say.
    """
    found = assigned(changes, "--set", asdict(Settings()))
    for name in found:
        if name in OF_THE_RUNS:
            advice = OF_THE_RUNS[name]
            raise ValueError(f"--set cannot change '{name}', which the recipes say{advice}")
    return found | ({"device": device} if device else {})


def check_changes(shop: Workshop, runs: Iterable[str]) -> None:
    """Refuse settings that runs cannot have, before anything is done for the first of them.

    Raises:
        ValueError: naming the run and what is wrong.
    """
    for run in list(runs) or all_runs():
        try:
            shop.planned(run)
        except ValueError as problem:
            raise ValueError(f"with --set as given, {run} cannot be trained: {problem}") from None


def lasting(changes: Mapping[str, object]) -> list[str]:
    """The changes that a figure may depend on, but for the device, an option of its own."""
    return sorted(f"{name}={x}" for name, x in changes.items() if name not in QUIET | {"device"})


def learnt(changes: Mapping[str, object]) -> list[str]:
    """Those of them that change what is learnt."""
    return lasting({name: x for name, x in changes.items() if name not in OF_TIMES})
