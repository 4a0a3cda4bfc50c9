"""Exact insertion targets in time linear in the length of a text: the windowed algorithm.

Legend: x_0 has m tokens, x_t the n kept ones. A state (i, j) says that the first j tokens of x_0
hold the first i of x_t. L[k] and R[k] are where the k-th kept token sits in the leftmost and the
rightmost occurrence of x_t, so gap i can only reach the states L[i-1] < j <= R[i] (Eq. window): on
text, a few cells per gap.

Two passes over these cells. Backward: count the ways to finish, S_i(j) (Eq. suffix-count), and keep
only the odds of taking token j against skipping it. Forward: from these odds, walk the probability
of each state of a uniformly random occurrence (Eq. alignment-walk); where it skips token j in row
i, token j lies in gap i. Counts reach 10^614 at m = 2048, so they carry an exponent of their own;
probabilities need none. No logarithm is ever taken, which is faster than the log domain and keeps
every digit of a float64: see docs/theory.md, 'Why not logarithms'.
"""

import math
from itertools import pairwise

import numpy as np
from numba import njit

from didlm._inputs import Booleans, Integers
from didlm.alignment.targets import InsertionTargets, read_batch, read_inputs
from didlm.packed import Packed

# A count is mantissa * 2^(512 exponent): mantissas stay below 2^256, so that products of two fit.
_EXPONENT = 512
_LARGE = 2.0**256
_SHRINK = 2.0**-512

# Ratios are summed in a table indexed by token; ids beyond this are first renumbered.
_LARGEST_DIRECT_ID = 1 << 20


def insertion_targets(
    x0: Integers, keep: Booleans, given: Integers | None = None
) -> InsertionTargets:
    """The exact insertion targets of a text and the mask of its kept tokens (Eq. insertion-target).

    Args:
        x0: token ids, without BOS.
        keep: which of them are left in x_t.
        given: 0 for a free token, else the number of its span (see `didlm.given`).

    Returns:
        r[gap, token] wherever it is not zero. A ratio below 1e-308 may be rounded to zero.

    Raises:
        ValueError: if the inputs do not fit together, saying where.
    """
    labels, mask = read_inputs(x0, keep, given)
    offsets = np.array([0, labels.size + 1], dtype=np.int64)
    return _run(np.r_[0, labels], np.r_[True, mask], offsets)


def insertion_targets_batch(x0: Packed, keep: Booleans) -> InsertionTargets:
    """The targets of a whole packed batch in one call that holds no lock: for loader workers.

    Args:
        x0: the complete texts, on the CPU.
        keep: one boolean per row, true for every BOS.

    Returns:
        Targets whose gaps are the rows of `x0.delete(keep)`, ready for the loss.
    """
    labels, mask = read_batch(x0, keep)
    return _run(labels, mask, x0.offsets.cpu().numpy())


def window_cells(x0: Packed, keep: Booleans) -> int:
    """How many cells the algorithm visits on a batch: its time and memory, up to constants."""
    labels, mask = read_batch(x0, keep)
    cells = 0
    for first, last in pairwise(x0.offsets.tolist()):
        text = labels[first + 1 : last]
        low, high = _windows(text, text[mask[first + 1 : last]])
        cells += int((high - low + 1).sum())
    return cells


def _run(labels: np.ndarray, keep: np.ndarray, offsets: np.ndarray) -> InsertionTargets:
    original = None
    if labels.size and labels.max() > _LARGEST_DIRECT_ID:
        original, labels = np.unique(labels, return_inverse=True)
        first_token = np.searchsorted(original, 0)
        labels = labels - first_token  # the negative labels of given tokens stay negative
        original = original[first_token:]
    gap, token, ratio = _align_batch(labels, keep, offsets)
    return InsertionTargets(gap, token if original is None else original[token], ratio)


@njit(nogil=True, cache=True)
def _align_batch(labels, keep, offsets):  # type: ignore[no-untyped-def]
    largest = 0
    for label in labels:
        largest = max(largest, label)
    by_token = np.full(largest + 1, -1.0)  # negative: not seen in this gap
    room = 2 * labels.size + 64
    gap, token, ratio = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    odds = np.empty(4 * labels.size + 64)
    count, row = 0, 0
    for s in range(offsets.size - 1):
        # The first row of a sequence is BOS: always kept, never part of the alignment.
        x0 = labels[offsets[s] + 1 : offsets[s + 1]]
        kept = x0[keep[offsets[s] + 1 : offsets[s + 1]]]
        first, last = _windows(x0, kept)
        cells = int((last - first).sum()) + first.size
        if cells > odds.size:
            odds = np.empty(2 * cells)
        _count_backward(x0, kept, first, last, odds)
        count, gap, token, ratio = _walk_forward(
            x0, first, last, odds, by_token, row, count, gap, token, ratio
        )
        row += first.size
    return gap[:count].copy(), token[:count].copy(), ratio[:count].copy()


@njit(nogil=True, cache=True)
def _windows(x0, kept):  # type: ignore[no-untyped-def]
    """First and last j of each gap's states (Eq. window), by two greedy scans."""
    m, n = x0.size, kept.size
    first, last = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    first[0], j = 0, 0
    for k in range(n):
        while x0[j] != kept[k]:
            j += 1
        j += 1
        first[k + 1] = j
    last[n], j = m, m - 1
    for k in range(n - 1, -1, -1):
        while x0[j] != kept[k]:
            j -= 1
        last[k] = j
        j -= 1
    return first, last


@njit(nogil=True, cache=True)
def _count_backward(x0, kept, first, last, odds):  # type: ignore[no-untyped-def]
    """Fill `odds`, row after row from the end: take over skip, zero where token j cannot be taken.

    S_i(j) = S_i(j + 1) + [x_0[j] = x_t[i]] S_{i+1}(j + 1)  (Eq. suffix-count).
    """
    n = kept.size
    widest = int((last - first).max()) + 1
    mantissa, exponent = np.ones(widest), np.zeros(widest, np.int64)
    next_mantissa, next_exponent = np.ones(widest), np.zeros(widest, np.int64)
    end = int((last - first).sum()) + n + 1
    odds[end - (last[n] - first[n]) - 1 : end] = 0.0  # the last gap takes nothing: S_n = 1
    end -= last[n] - first[n] + 1
    for i in range(n - 1, -1, -1):
        mantissa, next_mantissa = next_mantissa, mantissa
        exponent, next_exponent = next_exponent, exponent
        low, next_low = first[i], first[i + 1]
        start = end - (last[i] - low) - 1
        # At the rightmost place the token must be taken.
        value, scale = next_mantissa[last[i] + 1 - next_low], next_exponent[last[i] + 1 - next_low]
        mantissa[last[i] - low], exponent[last[i] - low] = value, scale
        odds[end - 1] = np.inf
        for j in range(last[i] - 1, low - 1, -1):
            odd = 0.0
            if x0[j] == kept[i]:
                taken = next_mantissa[j + 1 - next_low]
                steps = next_exponent[j + 1 - next_low] - scale
                odd = taken / value
                if steps == 0:
                    value += taken
                else:
                    odd = math.ldexp(odd, int(_EXPONENT * steps))
                    if steps == -1:
                        value += taken * _SHRINK
                    elif steps == 1:
                        value = taken + value * _SHRINK
                        scale += 1
                    elif steps > 1:  # what was there is below the last digit
                        value = taken
                        scale += steps
                if value > _LARGE:
                    value *= _SHRINK
                    scale += 1
            odds[start + j - low] = odd
            mantissa[j - low], exponent[j - low] = value, scale
        end = start


@njit(nogil=True, cache=True)
def _walk_forward(x0, first, last, odds, by_token, row, count, gap, token, ratio):  # type: ignore[no-untyped-def]
    """Walk the states forward (Eq. alignment-walk), merging equal tokens of each gap."""
    gaps = first.size
    widest = int((last - first).max()) + 1
    entering, leaving = np.zeros(widest), np.zeros(widest)
    seen = np.empty(widest, np.int64)
    entering[0] = 1.0
    start = 0
    for i in range(gaps):
        low, high = first[i], last[i]
        next_low = low
        if i + 1 < gaps:
            next_low = first[i + 1]
            for cell in range(last[i + 1] - next_low + 1):
                leaving[cell] = 0.0
        skipped, distinct = 0.0, 0
        for j in range(low, high + 1):
            here = skipped + entering[j - low]
            odd = odds[start + j - low]
            if odd > 0.0:
                take = 1.0 / (1.0 + 1.0 / odd) if odd > 1.0 else odd / (1.0 + odd)
                leaving[j + 1 - next_low] = here * take
            if j < high:
                skipped = here / (1.0 + odd)
                label = x0[j]
                if by_token[label] < 0.0:
                    by_token[label] = 0.0
                    seen[distinct] = label
                    distinct += 1
                by_token[label] += skipped
        if count + distinct > gap.size:
            room = 2 * (count + distinct)
            gap, token, ratio = _longer(gap, room), _longer(token, room), _longer(ratio, room)
        _sort(seen, distinct)
        for place in range(distinct):
            label = seen[place]
            gap[count], token[count], ratio[count] = row + i, label, by_token[label]
            by_token[label] = -1.0
            count += 1
        start += high - low + 1
        entering, leaving = leaving, entering
    return count, gap, token, ratio


@njit(nogil=True, cache=True)
def _sort(values, count):  # type: ignore[no-untyped-def]
    """Sort the first `count` values: nearly always a handful."""
    if count > 32:
        values[:count].sort()
        return
    for end in range(1, count):
        value, place = values[end], end
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@njit(nogil=True, cache=True)
def _longer(array, size):  # type: ignore[no-untyped-def]
    result = np.empty(size, array.dtype)
    result[: array.size] = array
    return result
