"""Making a folder whole or not at all."""

import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `out` if all goes well, else nothing.

    What processes of this machine that were killed left behind for the same `out` is removed.

    Raises:
        ValueError: if `out` is there already, cannot be made, or the disk is full.
    """
    _check_free(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(out)
        hidden = out.with_name(f"{_prefix(out)}{os.getpid()}")
        try:
            hidden.mkdir()  # in here, for a signal may come at any moment
            yield hidden
            _sync_folder(hidden)
            _check_free(out)
            _rename(hidden, out)
            _sync_folder(out.parent)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"the disk is full: there is no room for {out}; make some, or choose another place"
            ) from None
        raise ValueError(f"cannot write {out}: {problem.strerror or problem}") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON and have it on the disk before going on."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def _check_free(out: Path) -> None:
    if os.path.lexists(out):
        raise ValueError(f"{out} is there already: remove it, or choose another place")


def _rename(hidden: Path, out: Path) -> None:
    try:
        hidden.rename(out)
    except OSError as problem:
        if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise ValueError(f"{out} was made by another process meanwhile") from None
        raise


def _prefix(out: Path) -> str:
    return f".{out.name}.preparing-{socket.gethostname()}-"


def _remove_leftovers(out: Path) -> None:
    for folder in out.parent.glob(f"{_prefix(out)}*"):
        number = folder.name.removeprefix(_prefix(out))
        if number.isdigit() and (int(number) == os.getpid() or not _alive(int(number))):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, and its tokenizer, which others wrote."""
    for path in (folder / "tokenizer.json", folder):
        if path.exists():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
