"""All that changes while a batch is written, in one value: every stage of a pass makes a new one.

Shapes: S texts, T rows, N times of the grid, V tokens of the vocabulary.
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
    *("stale", "stopped", "idle", "until"),
)


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
    # What this pass does:
    fires: Tensor  # [T] the rows that get a token
    until: Tensor  # [S] the time afterwards
    arrival: Tensor  # [T] when each row would fire
    rows: Tensor  # [T] the rows that fire in rising order, then others
    draws: Tensor  # [T] for their tokens
    drawn: Tensor  # [T] these tokens, then anything
    # Of the batch:
    rows_read: Tensor  # [] by the model, in all its calls
    bad: Tensor  # [] whether an answer of the model was no number
    report: Tensor  # what the host asks for, see `stages.Report`
    # What stays as it is:
    grid: Tensor  # [N] times from 1 to 0; where they rise, tokens are deleted
    forbidden: Tensor  # ids that never come
    without_space: Tensor | None  # [V] tokens that do not begin with a space, if that matters

    @property
    def done(self) -> Tensor:
        """Which texts have come to the end of the grid [S]."""
        return (self.place == len(self.grid) - 1) & (self.number >= 0)

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> "State":
        """With everything that has rows changed in the same way."""
        return replace(
            self,
            draft=self.draft.map_rows(change),
            fires=change(self.fires),
            arrival=change(self.arrival),
            rows=change(self.rows),
            draws=change(self.draws),
            drawn=change(self.drawn),
        )

    def map_texts(self, change: Callable[[Tensor], Tensor]) -> "State":
        """With all columns of the texts changed in the same way, but not the draft."""
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in OF_TEXTS}
        return replace(self, **changed)

    def select(self, chosen: Tensor) -> "State":
        """The texts where `chosen` [S] is true."""
        return replace(self.map_texts(lambda x: x[chosen]), draft=self.draft.select(chosen))

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
        state = state.map_texts(lambda x: pad(x, (0, places)))
        x_t = replace(state.draft.x_t, offsets=pad(state.draft.x_t.offsets, (0, places)))
        state.draft.blank[rows - missing :] = -1
        state.number[-places:], state.place[-places:] = -1, len(self.grid) - 1
        return replace(state, draft=replace(state.draft, x_t=x_t)).spread(places)

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
