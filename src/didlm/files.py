"""Writing files whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there; what fails leaves nothing behind.

    A link stays one, and what it leads to is written. So are devices and pipes, in their place.
    """
    if path.exists() and not path.is_file():  # /dev/stdout is a link to a pipe without a name
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(".tmp", path.name + ".", path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """Which rights new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written in, before any work is done for it.

    Raises:
        ValueError: if one of its parents is a file, or nothing can be written there.
    """
    there = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise ValueError(f"cannot make the folder {path}: {there} is not a folder")
    _try_writing(there, "", f"cannot write in the folder {path}")


def check_place(path: Path) -> None:
    """Refuse a place where no file can be written, before any work is done for it.

    Raises:
        ValueError: if its folder is not there or takes no file, or it is a folder itself.
    """
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder")
    if path.is_file() or not path.exists():
        place = Path(os.path.realpath(path))
        _try_writing(place.parent, place.name, f"cannot write {path}")


def _try_writing(folder: Path, name: str, refusal: str) -> None:
    """Do what writing begins with: rights alone do not tell, as those of a disk for reading."""
    try:
        with tempfile.NamedTemporaryFile(prefix=name + ".", suffix=".tmp", dir=folder):
            pass
    except OSError as problem:
        raise ValueError(f"{refusal}: {problem.strerror}") from None


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, a model or a token store.

    Raises:
        ValueError: naming what it holds.
    """
    held = {"run.json": "a run", "config.json": "a model", "manifest.json": "a token store"}
    for name, what in held.items():
        if (folder / name).exists():
            raise ValueError(f"{folder} holds {what} already: choose another folder for this one")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """Keep other processes out of a folder as long as this one lives; yields the lock file.

    Raises:
        ValueError: if another process is there.
    """
    lock = folder / ".lock"
    with lock.open("a+") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield lock
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another process is training in {folder}: wait until it has ended"
            ) from None
        yield lock
