"""Writing files whole or not at all."""

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
