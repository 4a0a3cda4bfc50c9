"""docs/results.md: words from real_text_page.md, tables and plots from records.

What `results_page.py` has written there stays.
"""

from collections.abc import Callable
from pathlib import Path

import real_text_claims
import real_text_tables as tables
from marks import between, inside
from real_text_book import Book, Group
from real_text_plots import CAPTIONS, draw

SKELETON = Path(__file__).with_suffix(".md")
OTHER = "reproduce"  # what `results_page.py` writes


def write_page(records: Path, docs: Path) -> list[Path]:
    """Write the page and its plots; the files.

    Raises:
        ValueError: if nothing was recorded.
    """
    book = Book.read(records)
    if not book.runs:
        raise ValueError(f"there is no record of a run in {records}")
    page = docs / "results.md"
    docs.mkdir(parents=True, exist_ok=True)
    drawn = draw(book, docs / "results")
    text = filled(SKELETON.read_text(encoding="utf-8"), book, drawn)
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(between(text, OTHER, inside(before, OTHER)), encoding="utf-8")
    return [page, *(path for paths in drawn.values() for path in paths)]


def filled(page: str, book: Book, drawn: dict[Group, list[Path]]) -> str:
    """The page with what follows from the records.

    Raises:
        ValueError: if it has no place for something.
    """

    def grouped(table: Callable[[Book, Group], str], plots: str = "") -> str:
        found = [
            (group, _with_plots(table(book, group), drawn, group, plots)) for group in book.groups
        ]
        return tables.by_group(book, found)

    texts = {
        "measured": tables.measured(book),
        "counts": real_text_claims.summary(book),
        "claims": grouped(real_text_claims.table),
        "data": tables.data(book),
        "runs": tables.runs(book),
        "equal": grouped(tables.equal, "curves"),
        "overfitting": tables.overfitting(book),
        "likelihood": grouped(tables.likelihoods),
        "samples": grouped(tables.samples, "samples"),
        "lengths": grouped(tables.lengths, "lengths"),
        "middles": grouped(tables.middles),
    }
    for place, text in texts.items():
        page = between(page, place, text)
    return page


def _with_plots(text: str, drawn: dict[Group, list[Path]], group: Group, kinds: str) -> str:
    """A table and the plots that go with it."""
    images = [
        f"![{CAPTIONS[path.stem.split('-')[0]]}](results/{path.name})"
        for path in drawn.get(group, [])
        if text and path.stem.split("-")[0] in kinds.split()
    ]
    return "\n\n".join([text, *images])
