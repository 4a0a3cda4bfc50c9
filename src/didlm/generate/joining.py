"""A batch that texts join and leave while others are being written: for a service.

Texts of different requests have different grids, temperatures, nuclei and lengths, and are at
different steps; all of these are columns of the batch (see `state.Own`), so a pass is as many
operations for many requests as for one, and one call of the network.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from didlm.generate.draft import Draft
from didlm.generate.driver import Writer, begun, without_space
from didlm.generate.limits import check_limits
from didlm.generate.scorer import Scorer
from didlm.generate.stages import Plan
from didlm.generate.state import Own, State


@dataclass(frozen=True)
class Room:
    """How much may lie in the batch at once."""

    texts: int
    blanks: int  # of one text
    times: int  # of one grid


@dataclass(frozen=True)
class News:
    """What a pass has done to a text."""

    number: int
    step: int
    time: float
    places: list[int]  # of the new tokens in the text as it is now, from left to right
    tokens: list[int]


class OpenWriter(Writer):
    """Begins without texts; `join` brings some at any time between two passes."""

    patient = False

    def __init__(self, scorer: Scorer, plan: Plan, room: Room, device: torch.device) -> None:
        """Take a model.

        Args:
            scorer: the model.
            plan: what all texts have in common; no text is longer than it says.
            room: for how much.
            device: of the model.
        """
        self._prepare(scorer, plan, device)
        self.unfinished = 0
        self._room, self._number, self._device = room, 0, device
        self._without_space: Tensor | None = None
        if plan.without_space is not None:
            self._without_space = without_space(plan.without_space, scorer)

    @property
    def rows(self) -> int:
        """Of all texts that took part in the last pass, before it."""
        return self._seen.rows

    def join(self, draft: Draft, plan: Plan, seed: int) -> list[int]:
        """Let texts join, and say by which numbers they are known from now on.

        Their draws are those of samples 0, 1, ... of their seed: the others do not change them.

        Args:
            draft: what they start from, on the model's device.
            plan: how they are written; it may differ from the others' in its grid, temperature,
                top-p, and in the lengths of texts.
            seed: of their draws.

        Raises:
            ValueError: if what is given and the limits do not go together, or plans do not.
        """
        check_limits(draft, plan.shortest, plan.longest)
        if _common(plan) != _common(self.plan):
            raise ValueError("texts that are written together must have the same sampler and edits")
        count = len(draft.x_t)
        numbers = torch.arange(self._number, self._number + count, device=self._device)
        state = replace(
            begun(self.scorer, draft, plan, seed, 0),
            number=numbers,
            own=_own(plan, count, self._device),
            without_space=self._without_space,  # others may join to whom it matters
        )
        if hasattr(self, "desk"):
            self.desk.join(state)
        else:
            self.desk = self._stages.desk = self._lay_out(state)
        self._number += count
        self.unfinished += count
        self._reads = self._anew
        return numbers.tolist()

    def leave(self, numbers: Collection[int]) -> None:
        """Take texts out of the batch, as far as they are there."""
        there = self.desk.state.number
        gone = torch.isin(there, torch.tensor(list(numbers), device=there.device))
        self.unfinished -= int(gone.sum())
        self.desk.clear(gone)

    def news(self, mark: int) -> list[News]:
        """What the last pass has done, before any text is retired.

        Args:
            mark: a token that stands for one that is to come; it counts for nothing.
        """
        state, draft = self.desk.state, self.desk.state.draft
        x_t, sequence = draft.x_t, draft.x_t.sequence
        written = (x_t.tokens != mark) & ~x_t.is_bos
        before = written.cumsum(0) - written.long()
        place = before - before[x_t.offsets[:-1]][sequence]
        fresh = written & draft.free & (draft.born == state.passes[sequence])
        found = [x[fresh].tolist() for x in (sequence, place, x_t.tokens)]
        present = ((state.number >= 0) & ~state.idle).tolist()
        columns = (state.number.tolist(), state.passes.tolist(), state.time.tolist())
        news = [News(*column, [], []) for column in zip(*columns, strict=True)]
        for text, at, token in zip(*found, strict=True):
            news[text].places.append(at)
            news[text].tokens.append(token)
        return [each for each, is_there in zip(news, present, strict=True) if is_there]

    def _places(self, state: State) -> int:
        return self._room.texts

    def _filled(self, state: State) -> State:
        blanks = self._room.texts * self._room.blanks + 1
        return state.filled(self._room.texts, blanks, self._room.times)


def _own(plan: Plan, count: int, device: torch.device) -> Own:
    """What the plan says of each of its texts, as columns."""

    def column(value: object, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(value, dtype=dtype, device=device).repeat(count, *shape)

    return Own(
        temperature=column(plan.tokens.temperature, 1, dtype=torch.float64),
        top_p=column(plan.tokens.top_p, 1, dtype=torch.float64),
        shortest=column(plan.shortest),
        longest=column(plan.longest),
    )


def _common(plan: Plan) -> Plan:
    """The plan without what may differ; tokens that never come are the service's own choice."""
    tokens = replace(plan.tokens, temperature=1.0, top_p=1.0)
    return replace(
        plan, grid=(), tokens=tokens, shortest=0, longest=0, forbidden=None, without_space=None
    )
