"""Slow, obviously right: insertion targets by exhaustion and by big integers."""

from fractions import Fraction
from itertools import combinations

import numpy as np

Targets = dict[tuple[int, int], Fraction]


def exhaustive_targets(x0: list[int], keep: list[bool], given: list[int] | None = None) -> Targets:
    """Lay x_t into x_0 in every way; count the left-over tokens of each gap."""
    given = given or [0] * len(x0)
    actual = [j for j, kept in enumerate(keep) if kept]
    x_t = [x0[j] for j in actual]
    total, found = 0, {}
    for places in combinations(range(len(x0)), len(x_t)):
        if [x0[j] for j in places] != x_t:
            continue
        if any(a != b and (given[a] or given[b]) for a, b in zip(actual, places, strict=True)):
            continue
        total += 1
        gap = 0
        for j, token in enumerate(x0):
            if gap < len(places) and places[gap] == j:
                gap += 1
            else:
                found[gap, token] = found.get((gap, token), 0) + 1
    return {place: Fraction(found[place], total) for place in sorted(found)}


def big_integer_targets(x0: list[int], keep: list[bool]) -> Targets:
    """The prefix and suffix tables of the paper in Python integers."""
    x_t = [token for token, kept in zip(x0, keep, strict=True) if kept]
    m, n = len(x0), len(x_t)

    def table(text: list[int], kept: list[int]) -> list[list[int]]:
        rows = [[1] + [0] * n]
        for token in text:
            last = rows[-1]
            match = [last[i] if kept[i] == token else 0 for i in range(n)]
            rows.append([1, *(last[i + 1] + match[i] for i in range(n))])
        return rows

    prefix, suffix = table(x0, x_t), table(x0[::-1], x_t[::-1])
    found: dict[tuple[int, int], int] = {}
    for j, token in enumerate(x0):
        for i in range(n + 1):
            ways = prefix[j][i] * suffix[m - j - 1][n - i]
            if ways:
                found[i, token] = found.get((i, token), 0) + ways
    return {place: Fraction(found[place], prefix[m][n]) for place in sorted(found)}


def assert_targets(result, expected: Targets, absolute: float = 0.0, relative: float = 0.0) -> None:
    """The result lists exactly the expected places, in order, with the expected ratios."""
    assert list(zip(result.gap.tolist(), result.token.tolist(), strict=True)) == list(expected)
    exact = np.array([float(ratio) for ratio in expected.values()])
    np.testing.assert_allclose(result.ratio, exact, atol=absolute, rtol=relative)
