"""What a user names as data: files, folders, globs and datasets, each with a weight."""

import glob
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from didlm.text.opening import WHAT_TO_GIVE, check_file, kind_of

HUB = "hf:"
CONVERTED = "refs/convert/parquet"  # the revision in which the hub keeps what it has converted
_STORE_FILES = ("manifest.json", "tokenizer.json")


@dataclass(frozen=True)
class Dataset:
    """A dataset of Hugging Face, to be streamed."""

    name: str
    config: str | None
    split: str
    revision: str | None = None  # a branch or commit; None for the main one


@dataclass(frozen=True)
class Source:
    """Some data, and how often each of its documents comes compared with those of others."""

    name: str  # as it was given, without the weight
    weight: float
    files: tuple[Path, ...] = ()
    dataset: Dataset | None = None


def find_sources(names: Sequence[str]) -> list[Source]:
    """The sources of names such as PATH, PATH:WEIGHT or hf:NAME@CONFIG~REVISION#SPLIT:WEIGHT.

    A path is a file, a folder, of which all files that can be read are taken, or a glob. One that
    is there as it is written is taken so, whatever it ends with.

    Raises:
        ValueError: if a name leads nowhere, to files that cannot be read, or a weight is no weight.
    """
    if isinstance(names, str):
        raise ValueError(f"expected a list of sources, got one, '{names}'; put it into a list")
    if not names:
        raise ValueError("there is nothing to prepare: give a file, a folder, a glob or hf:NAME")
    return [_source(name) for name in names]


def files_of(path: str) -> tuple[Path, ...]:
    """The files that a path leads to, in the order of their names.

    Raises:
        ValueError: if there are none, or one of them cannot be read.
    """
    if os.path.isdir(path):
        return _in_folder(Path(path))
    if not os.path.lexists(path) and glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise ValueError(f"there is no file that matches {path}")
        return tuple(file for name in found for file in files_of(name))
    file = Path(path)
    check_file(file)
    if kind_of(file) is None:
        raise ValueError(f"cannot read {path}: {WHAT_TO_GIVE}")
    return (file,)


def is_store(path: Path | str) -> bool:
    """Whether a folder is a token store, be it damaged or of a newer format."""
    return all((Path(path) / name).is_file() for name in _STORE_FILES)


def _source(name: str) -> Source:
    path, weight = (name, 1.0) if os.path.lexists(name) else _weighted(name)
    if path.startswith(HUB) and not os.path.lexists(path):
        return Source(path, weight, dataset=_dataset(path))
    try:
        return Source(path, weight, files_of(path))
    except ValueError as problem:
        if not os.path.lexists(path) and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
            raise ValueError(
                f"{problem}; if you mean a dataset of Hugging Face, write {HUB}{path}"
            ) from None
        raise


def _weighted(name: str) -> tuple[str, float]:
    path, colon, number = name.rpartition(":")
    try:
        weight = float(number)
    except ValueError:
        return name, 1.0
    if not colon:
        return name, 1.0
    if not (0 < weight < math.inf):
        raise ValueError(f"the weight of {path} must be a positive number: got {number}")
    return path, weight


def _dataset(name: str) -> Dataset:
    rest, _, split = name.removeprefix(HUB).partition("#")
    rest, tilde, revision = rest.partition("~")
    dataset, _, config = rest.partition("@")
    if not dataset:
        raise ValueError(
            f"'{name}' names no dataset; write {HUB}OWNER/NAME, "
            f"with @CONFIG, ~REVISION and #SPLIT behind it if need be"
        )
    if tilde and not revision:
        raise ValueError(
            f"'{name}' names no revision behind its ~; write one, such as {CONVERTED}, "
            "or leave the ~ out"
        )
    return Dataset(dataset, config or None, split or "train", revision or None)


def _in_folder(folder: Path) -> tuple[Path, ...]:
    if is_store(folder):
        raise ValueError(f"{folder} is a token store, not text; it needs no preparing")
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(place) / name for name in names if not name.startswith(".")]
    readable = sorted(file for file in files if kind_of(file))
    if not readable:
        raise ValueError(
            f"there is no file in {folder} that can be read: the name of a file must end "
            "with .txt, .jsonl or .parquet, the first two also with .gz, .xz or .zst behind it"
        )
    for file in readable:
        check_file(file)
    return tuple(readable)
