"""All that changes while a batch is written, in one value: every stage of a pass makes a new one.

Shapes: S texts, T rows, N times of a grid, V tokens of the vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from didlm.generate.draft import Draft

Node = TypeVar("Node")
OF_TEXTS = (
    *("number", "key", "time", "place", "passes", "calls"),
    *("stale", "stopped", "idle", "until", "grid"),
)


@dataclass(frozen=True, eq=False)
class Own:
    """What each text has of its own where those of many plans are written together."""

    temperature: Tensor  # [S, 1]
    top_p: Tensor  # [S, 1]
    shortest: Tensor  # [S]
    longest: Tensor  # [S]

    def map_texts(self, change: Callable[[Tensor], Tensor]) -> "Own":
        """With all columns changed in the same way."""
        return Own(*(change(column) for column in leaves(self)))


@dataclass(frozen=True, eq=False)
class State:
    """A batch in the midst of being written, and the choices of the pass that goes on."""

    draft: Draft
    # Of each text [S]:
    number: Tensor  # of the sample, -1 if the place is empty
    key: Tensor  # of its draws
    time: Tensor
    place: Tensor  # on the grid
    passes: Tensor  # so far
    calls: Tensor  # of the model
    stale: Tensor  # changed since it was read
    stopped: Tensor  # complete, says the model
    idle: Tensor  # was at the end of the grid before this pass
    grid: Tensor  # [S, N] times from 1 to 0, short grids at the right; where they rise, tokens go
    own: Own | None  # in the place of what the plan says, if not all have the same
    # What this pass does:
    fires: Tensor  # [T] the rows that get a token
    until: Tensor  # [S] the time afterwards
    rows: Tensor  # [T] the rows that fire in rising order, then others
    draws: Tensor  # [T] for their tokens
    drawn: Tensor  # [T] these tokens, then anything
    # Of the batch:
    rows_read: Tensor  # [] by the model, in all its calls
    bad: Tensor  # [] whether an answer of the model was no number
    report: Tensor  # what the host asks for, see `stages.Report`
    # What stays as it is:
    forbidden: Tensor  # ids that never come
    without_space: Tensor | None  # [V] tokens that do not begin with a space, if that matters

    @property
    def done(self) -> Tensor:
        """Which texts have come to the end of the grid [S]."""
        return (self.place == self.end) & (self.number >= 0)

    @property
    def end(self) -> int:
        """The last place on the grid."""
        return self.grid.shape[1] - 1

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> "State":
        """With everything that has rows changed in the same way."""
        return replace(
            self,
            draft=self.draft.map_rows(change),
            fires=change(self.fires),
            rows=change(self.rows),
            draws=change(self.draws),
            drawn=change(self.drawn),
        )

    def map_texts(self, change: Callable[[Tensor], Tensor]) -> "State":
        """With all columns of the texts changed in the same way, but not the draft."""
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in OF_TEXTS}
        return replace(self, own=self.own and self.own.map_texts(change), **changed)

    def select(self, chosen: Tensor) -> "State":
        """The texts where `chosen` [S] is true."""
        return replace(self.map_texts(lambda x: x[chosen]), draft=self.draft.select(chosen))

    def joined(self, more: "State") -> "State":
        """With other texts behind these, between two passes; what stays as it is is the same."""
        longest = max(self.end, more.end)
        one, other = self.with_times(longest + 1), more.with_times(longest + 1)
        both: dict[str, Any] = {
            name: torch.cat([getattr(one, name), getattr(other, name)]) for name in OF_TEXTS
        }
        own = zip(leaves(one.own), leaves(other.own), strict=True)
        rows = one.draft.x_t.rows + other.draft.x_t.rows
        return replace(
            one.map_rows(lambda x: x.new_zeros(rows, *x.shape[1:])),
            draft=one.draft.joined(other.draft),
            own=Own(*(torch.cat(pair) for pair in own)) if one.own else None,
            **both,
        )

    def with_times(self, count: int) -> "State":
        """With grids of so many times; those before the first are nobody's."""
        missing = count - self.grid.shape[1]
        grid = pad(self.grid, (missing, 0), value=1.0)
        return replace(self, grid=grid, place=self.place + missing)

    def emptied(self, gone: Tensor) -> "State":
        """The same, but nothing is left of the texts where `gone` [S] is true but a closed BOS."""
        x_t, rows = self.draft.x_t, gone[self.draft.x_t.sequence]
        draft = replace(self.draft, x_t=replace(x_t, open=x_t.open & ~rows))
        draft = draft.without(rows & ~x_t.is_bos, x_t.rows).with_open_blanks()
        return replace(self, draft=draft, number=self.number.masked_fill(gone, -1))

    def with_room(self, rows: int, places: int) -> "State":
        """The same with empty texts behind the last one, into which texts can grow.

        Args:
            rows: how many there are with these.
            places: how many empty texts there are: see `spread`.
        """
        missing = rows - self.draft.x_t.rows
        state = self.map_rows(lambda x: torch.cat([x, x.new_zeros(missing, *x.shape[1:])]))
        state = state.map_texts(lambda x: torch.cat([x, x.new_zeros(places, *x.shape[1:])]))
        x_t = replace(state.draft.x_t, offsets=pad(state.draft.x_t.offsets, (0, places)))
        state.draft.blank[rows - missing :] = -1
        state.number[-places:], state.place[-places:] = -1, self.end
        return replace(state, draft=replace(state.draft, x_t=x_t)).spread(places)

    def filled(self, places: int, blanks: int, times: int) -> "State":
        """As it lies where there is room for more: its shapes do not tell how much is there.

        Args:
            places: of texts, the rest of which are empty.
            blanks: of all texts, less one.
            times: of the longest grid.
        """
        draft, rest = self.draft, blanks - len(self.draft.least)
        least, most = pad(draft.least, (0, rest)), pad(draft.most, (0, rest))
        state = replace(self, draft=replace(draft, least=least, most=most, bounded=True))
        state = state.with_times(times)
        empty = places - len(state.number)
        return state.with_room(draft.x_t.rows + empty, empty) if empty else state

    def spread(self, places: int) -> "State":
        """The same with the rows behind the last text divided evenly among the empty ones.

        The work of attention grows with the square of the rows of a text: hence several.
        """
        x_t = self.draft.x_t
        first = len(x_t) - places
        end, number = x_t.offsets[first], torch.arange(1, places + 1, device=x_t.offsets.device)
        behind = end + (x_t.rows - end) * number // places
        x_t = replace(x_t, offsets=torch.cat([x_t.offsets[: first + 1], behind]))
        return replace(self, draft=replace(self.draft, x_t=x_t))


def leaves(node: Any) -> list[Tensor]:
    """All tensors of a dataclass, in the order of its fields."""
    if isinstance(node, Tensor):
        return [node]
    if is_dataclass(node):
        return [leaf for each in fields(node) for leaf in leaves(getattr(node, each.name))]
    return []


def with_leaves(node: Node, tensors: Iterator[Tensor]) -> Node:
    """The same with other tensors."""
    if isinstance(node, Tensor):
        return next(tensors)  # type: ignore[return-value]
    if is_dataclass(node) and not isinstance(node, type):
        changes = {
            each.name: with_leaves(getattr(node, each.name), tensors) for each in fields(node)
        }
        return replace(node, **changes)
    return node
