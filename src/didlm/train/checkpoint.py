"""Checkpoints: written whole or not at all, checked before they are used, old ones removed.

Tensors go through torch's distributed checkpoints, one file per process, so that a run goes on
with any number of processes; everything else is in checkpoint.json, with the hashes of the files.
"""

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from didlm.train.world import World

FORMAT = 1
CARD = "checkpoint.json"


class NotWritten(Exception):
    """A checkpoint could not be written; those before it are untouched."""


@dataclass(frozen=True)
class Checkpoint:
    """One that has been found whole."""

    folder: Path
    step: int
    progress: dict[str, Any]  # all that is no tensor


def save_checkpoint(
    run: Path, step: int, tensors: dict[str, Any], progress: dict[str, Any], world: World
) -> Path:
    """Write a checkpoint, all processes together.

    Args:
        run: the folder of the run.
        step: how many steps have been taken.
        tensors: nested dictionaries of tensors.
        progress: everything else, as JSON can hold it.
        world: the processes.

    Raises:
        NotWritten: in one sentence.
    """
    folder = _place(run, step)
    unfinished = folder.with_name("." + folder.name)
    try:
        if world.first:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        world.wait()
        with _quietly():
            save(tensors, checkpoint_id=unfinished, no_dist=world.size == 1)
        own = {file.name: _described(file) for file in _written_by(unfinished, world.rank)}
        described = {name: what for part in world.gather(own) for name, what in part.items()}
        if world.first:
            card = {"format": FORMAT, "step": step, "progress": progress, "files": described}
            _write_synced(unfinished / CARD, json.dumps(card | {"sha256": _own_hash(card)}))
            _sync(unfinished)
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
            _sync(folder.parent)
        world.wait()
    except (OSError, CheckpointException) as error:
        full = shutil.disk_usage(run).free < 2**20  # torch does not always say why it failed
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = "the disk is full" if full else _reason(error)
        raise NotWritten(
            f"the checkpoint of step {step} could not be written in {folder.parent}: {reason}; "
            f"{_last_good(run)}"
        ) from None
    return folder


def find_checkpoint(run: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint of a run that is whole; every damaged one after it is named.

    Raises:
        ValueError: if it is of a newer format, or there are some and none is whole.
    """
    there = _all(run)
    for folder in reversed(there):
        try:
            return read_checkpoint(folder)
        except Damaged as error:
            say(f"the checkpoint {folder.name} is damaged ({error}): trying the one before it")
    if there:
        raise ValueError(
            f"no checkpoint in {run / 'checkpoints'} is whole: remove that folder to start afresh"
        )
    return None


class Damaged(Exception):
    """A checkpoint that cannot be used."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Check every file of a checkpoint.

    Raises:
        Damaged: if anything is missing or altered.
        ValueError: if it is of a newer format.
    """
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        version, own_hash = card["format"], card.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise Damaged(f"{CARD}: {error}") from None
    if isinstance(version, int) and version > FORMAT:
        raise ValueError(
            f"{folder} has format {version}, newer than {FORMAT}, which this didlm reads: "
            "upgrade it"
        )
    if own_hash != _own_hash(card):
        raise Damaged(f"{CARD} has been altered")
    for name, what in card["files"].items():
        file = folder / name
        if not file.is_file():
            raise Damaged(f"{name} is missing")
        if file.stat().st_size != what["bytes"]:
            raise Damaged(f"{name} has {file.stat().st_size} bytes and not {what['bytes']}")
        if _hash(file) != what["sha256"]:
            raise Damaged(f"{name} has been altered")
    return Checkpoint(folder, card["step"], card["progress"])


def load_tensors(checkpoint: Checkpoint, tensors: dict[str, Any], world: World) -> None:
    """Read the tensors of a checkpoint into tensors of the same names and shapes.

    Raises:
        ValueError: if it has others.
    """
    try:
        with _quietly():
            load(tensors, checkpoint_id=checkpoint.folder, no_dist=world.size == 1)
    except CheckpointException as error:
        raise ValueError(f"{checkpoint.folder} does not fit the run: {_reason(error)}") from None


def prune(run: Path, keep: int) -> None:
    """Remove all but the last checkpoints, and what was left unfinished."""
    for folder in _all(run)[:-keep]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns a single process that it is alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*assuming the intent is to (save|load).*")
        yield


def forget_after(run: Path, step: int) -> None:
    """Remove the checkpoints after a step: damaged ones, of a future that comes again."""
    for folder in _all(run):
        if folder > _place(run, step):
            shutil.rmtree(folder, ignore_errors=True)


def _place(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def _all(run: Path) -> list[Path]:
    """The checkpoints there are, in order of their steps."""
    return sorted((run / "checkpoints").glob("step-*"))


def _last_good(run: Path) -> str:
    there = _all(run)
    return f"the last good one is {there[-1].name}" if there else "there is none before it"


def _written_by(folder: Path, rank: int) -> list[Path]:
    """The files that a process has written: each looks after its own."""
    own = list(folder.glob(f"__{rank}_*"))
    return [*own, folder / ".metadata"] if rank == 0 else own


def _described(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": _hash(file)}


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _own_hash(card: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make sure that the names in a folder survive a power cut."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(error: OSError | CheckpointException) -> str:
    """What went wrong, in the first of the processes where something did."""
    cause: BaseException = error
    if isinstance(error, CheckpointException):
        cause = next(iter(error.failures.values()))[0]
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__
