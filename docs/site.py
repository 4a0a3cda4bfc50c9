"""Lay out the documentation site: docs/, the README as its front page, and whatever they link to.

    python docs/site.py build/docs

Where a document links to a file or a folder of the repository, the site gets a page with it, so
that every link leads somewhere without any host. Formulas become MathML, which browsers draw by
themselves.
"""

import ast
import posixpath
import re
import shutil
import sys
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
FILES = "files"  # where the site keeps what is not in docs/
LANGUAGES = {".py": "python", ".toml": "toml", ".csv": "text", ".md": "markdown", ".cff": "yaml"}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(?=\S)([^$\n]+?)\$", re.DOTALL)


def main() -> None:
    """Lay it out in the folder that is named."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md", "*.py", "__*"))
    waiting: set[Path] = set()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        name = "index.md" if path.name == "README.md" else path.relative_to(ROOT / "docs")
        text = path.read_text(encoding="utf-8")
        (folder / name).write_text(with_links(with_formulas(text), path, waiting), encoding="utf-8")
    done: set[Path] = set()
    while waiting - done:
        path = min(waiting - done)
        done.add(path)
        place = folder / place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            waiting.update(listed(path))
            place.write_text(listing(path), encoding="utf-8")
        elif is_page(path):
            place.write_text(source(path), encoding="utf-8")
        else:
            shutil.copy(path, place)


def with_formulas(text: str) -> str:
    """The same document with MathML in the place of LaTeX; code stays as it is."""

    def drawn(found: re.Match[str]) -> str:
        if found[1]:
            return f"\n\n{convert(' '.join(found[1].split()), display='block')}\n\n"
        return f"<span>{convert(found[2])}</span>"  # else one at the start of a line ends it

    parts = CODE.split(text)
    parts[::2] = [FORMULA.sub(drawn, part) for part in parts[::2]]
    return "".join(parts)


def with_links(text: str, path: Path, linked: set[Path]) -> str:
    """The same document with the links that it has on the site; `linked` gets what they need."""

    def moved(found: re.Match[str]) -> str:
        if "://" in found[0] or found[0].startswith("mailto:"):
            return found[0]
        target = (path.parent / found[0]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{path.relative_to(ROOT)} links to {found[0]}")
        if target.is_relative_to(ROOT / "docs"):
            place = target.relative_to(ROOT / "docs").as_posix()
        else:
            linked.add(target)
            place = place_of(target)
        here = path.parent.relative_to(ROOT / "docs") if path.parent != ROOT else "."
        return posixpath.relpath(place, str(here))

    return LINK.sub(moved, text)


def place_of(path: Path) -> str:
    """Where a file or folder of the repository stands on the site."""
    place = f"{FILES}/{path.relative_to(ROOT).as_posix()}"
    return f"{place}.md" if is_page(path) else place


def is_page(path: Path) -> bool:
    """Whether it is shown, and not only handed out."""
    return path.is_dir() or path.suffix in LANGUAGES or not path.suffix


def listed(folder: Path) -> list[Path]:
    """What the page of a folder shows."""
    return sorted(p for p in folder.iterdir() if p.suffix == ".py" and p.name != "__init__.py")


def listing(folder: Path) -> str:
    """What each file of a folder is about, by its first line."""
    lines = [f"# {folder.relative_to(ROOT)}", "", "| | |", "|---|---|"]
    for file in listed(folder):
        about = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        lines.append(f"| [{file.stem}]({folder.name}/{file.name}.md) | {about.split(chr(10))[0]} |")
    return "\n".join(lines) + "\n"


def source(path: Path) -> str:
    """A file as it is."""
    text, fence = path.read_text(encoding="utf-8"), "`" * 5
    name, language = path.relative_to(ROOT), LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n{fence}{language}\n{text}{fence}\n"


if __name__ == "__main__":
    main()
