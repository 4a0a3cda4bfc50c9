"""Pages that benchmarks write into, between marks that a reader does not see."""


def inside(page: str, place: str) -> str:
    """What stands between the marks of a place; nothing if it is not there."""
    _, _, rest = page.partition(f"<!-- {place} -->\n")
    return rest.partition(f"<!-- /{place} -->")[0]


def between(page: str, place: str, text: str) -> str:
    """The page with a text between `<!-- place -->` and `<!-- /place -->`, in place of the old one.

    Raises:
        ValueError: if the page does not have that place, or has it twice.
    """
    begin, end = f"<!-- {place} -->\n", f"<!-- /{place} -->"
    if (page.count(begin), page.count(end)) != (1, 1) or page.index(begin) > page.index(end):
        raise ValueError(f"the page has no place for '{place}'")
    before, after = page[: page.index(begin)], page[page.index(end) :]
    return before + begin + (f"\n{text.strip()}\n\n" if text.strip() else "") + after
