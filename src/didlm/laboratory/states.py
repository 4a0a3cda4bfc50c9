"""The state space: texts as tuples of labels, small enough to write them all down.

A label below zero is a given token (see `didlm.given.alignment_labels`): it is never deleted and
never inserted, so conditional distributions need no code of their own. BOS is left out throughout.
"""

from itertools import combinations

State = tuple[int, ...]


def free_length(state: State) -> int:
    """How many of its tokens can be deleted."""
    return sum(label >= 0 for label in state)


def insert(state: State, gap: int, token: int) -> State:
    """Ins(x, i, v): the text with a token inserted after its first `gap` tokens."""
    return (*state[:gap], token, *state[gap:])


def subsequences(state: State) -> list[State]:
    """Every text that deletion can make of this one, shortest first, the text itself last."""
    free = [j for j, label in enumerate(state) if label >= 0]
    found = {
        tuple(label for j, label in enumerate(state) if j not in gone)
        for count in range(len(free) + 1)
        for gone in map(set, combinations(free, count))
    }
    return sorted(found, key=lambda x: (len(x), x))
