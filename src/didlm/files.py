"""Writing files whole or not at all."""

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there; what fails leaves nothing behind."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuse a place where no file can be written.

    Raises:
        ValueError: if its folder is not there, or it is a folder itself.
    """
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder")
