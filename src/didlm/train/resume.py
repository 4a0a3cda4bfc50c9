"""Going on with a run: what its folder says about it, and what may change."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from didlm.files import write_text
from didlm.train.settings import Settings

# What does not change what is learnt, or only how long; all else would make it another run.
MAY_CHANGE = {
    "steps",
    "seconds",
    "accumulate",
    "compile",
    "checkpointing",
    "distribution",
    "device",
    "workers",
    "capture",
    "samples",
    "sample_steps",
    "log_every",
    "validate_every",
    "validate_seconds",
    "bad_steps",
    "checkpoint_every",
    "checkpoint_seconds",
    "keep_checkpoints",
    "snapshots",
}


def recorded_run(folder: Path) -> dict[str, Any] | None:
    """What run.json says; None if there is none.

    Raises:
        ValueError: if it is damaged.
    """
    file = folder / "run.json"
    if not file.exists():
        return None
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(run["settings"], dict):
            raise TypeError("its settings are no table")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    assert isinstance(run, dict)
    return run


def settings_to_go_on(folder: Path, changes: Mapping[str, Any]) -> Settings:
    """The settings of a run that was begun, with some changed; of a new one if there is none.

    Raises:
        ValueError: if a change would make it another run.
    """
    run = recorded_run(folder)
    if run is None:
        return Settings().changed(changes)
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(run["settings"]) - known)
    if unknown:
        raise ValueError(
            f"{folder}/run.json has the setting '{unknown[0]}', which this didlm does not know: "
            "go on with the version that began the run"
        )
    settings = Settings().changed(run["settings"])
    if settings.flops and "steps" in changes:
        raise ValueError("the number of steps of this run follows from its flops: leave out steps")
    changed = settings.changed(changes)
    check_same_run(settings, changed)
    return changed


def check_same_run(before: Settings, now: Settings) -> None:
    """Refuse changes that would make it another run.

    Raises:
        ValueError: naming the first.
    """
    old, new = asdict(before), asdict(now)
    for name in old:
        if old[name] != new[name] and name not in MAY_CHANGE:
            raise ValueError(
                f"{name} was {old[name]!r} when the run began and cannot become {new[name]!r}: "
                "start another run in another folder"
            )


def cut_metrics(folder: Path, step: int) -> None:
    """Forget the figures of steps after a checkpoint, and a line that was never finished."""
    file = folder / "metrics.jsonl"
    if not file.exists():
        return
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_text(file, "".join(kept))
