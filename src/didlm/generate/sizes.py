"""Few sizes for what grows: a GPU can use again what it has recorded, or the memory it has."""


def rounded_rows(count: int) -> int:
    """A size for so many rows: eight sizes between a number and its double."""
    return rounded(count, 128, 8)


def rounded(count: int, least: int, sizes: int) -> int:
    """The next size: of so many between a number and its double, and at least so far apart."""
    step = max(least, (1 << (max(count, 1) - 1).bit_length()) // 2 // sizes)
    return -(-count // step) * step
