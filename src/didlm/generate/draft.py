"""The texts of a batch while they grow: the packed rows, and what generation knows about each.

Shapes: S sequences, T rows, B blanks, D features. A row is a token and the gap after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from didlm.generate.scorer import Answer, Recall
from didlm.generate.sizes import rounded_rows
from didlm.generate.template import NO_LIMIT, Start
from didlm.packed import Packed, pack


@dataclass(frozen=True, eq=False)
class Draft:
    """A batch of unfinished texts; every edit makes a new one."""

    x_t: Packed
    blank: Tensor  # [T] the blank that the gap after this row belongs to, -1 if to none
    spaced: Tensor  # [T] whether what is inserted right after this row must begin with a space
    born: Tensor  # [T] the pass in which the token came, 0 if it was there from the start
    log_rate: Tensor  # [T] what the model said last about the gap; it outlives edits elsewhere
    features: Tensor  # [T, D] and what it needs in order to name tokens there
    memory: Tensor  # [T, ...] and what spares it reading the row again
    known: Tensor  # [T] whether it has read the row; where passes are recorded nobody asks
    least: Tensor  # [B] how many tokens must be inserted into each blank
    most: Tensor  # [B] and how many at most; the blanks of all sequences are numbered through
    bounded: bool  # whether any blank has such limits

    @property
    def free(self) -> Tensor:
        """Which rows hold a token that was inserted [T]."""
        return (self.x_t.given == 0) & ~self.x_t.is_bos

    @cached_property
    def position(self) -> Tensor:
        """Where each row stands in its sequence [T]; BOS is at 0."""
        rows = torch.arange(self.x_t.rows, device=self.blank.device)
        return rows - self.x_t.offsets[:-1][self.x_t.sequence]

    def without(self, gone: Tensor, rows: int) -> "Draft":
        """With `rows` rows, less those where `gone` [T] is true (see `Packed.shrunk`)."""
        x_t, source = self.x_t.shrunk(gone, rows)
        return replace(self.map_rows(lambda x: _moved(x, source)), x_t=x_t)

    def select(self, chosen: Tensor) -> "Draft":
        """The sequences where `chosen` [S] is true; blanks keep their numbers."""
        kept = chosen[self.x_t.sequence].nonzero().squeeze(-1)
        draft = replace(self.map_rows(lambda x: _moved(x, kept)), x_t=self.x_t.select(chosen))
        return draft.with_open_blanks()

    def joined(self, more: "Draft") -> "Draft":
        """With other texts behind these."""
        one, other = self.renumbered(), more.renumbered()
        first = len(one.least) - 1  # the last one is nobody's
        other = replace(other, blank=torch.where(other.blank >= 0, other.blank + first, -1))
        rows, texts = one.x_t.rows, other.x_t
        x_t = Packed(
            tokens=torch.cat([one.x_t.tokens, texts.tokens]),
            offsets=torch.cat([one.x_t.offsets, texts.offsets[1:] + rows]),
            given=torch.cat([one.x_t.given, texts.given]),
            open=torch.cat([one.x_t.open, texts.open]),
        )
        return Draft(
            x_t=x_t,
            blank=torch.cat([one.blank, other.blank]),
            spaced=torch.cat([one.spaced, other.spaced]),
            born=torch.cat([one.born, other.born]),
            log_rate=torch.cat([one.log_rate, other.log_rate]),
            features=_stacked(one.features, other.features),
            memory=_stacked(one.memory, other.memory),
            known=torch.cat([one.known, other.known]),
            least=torch.cat([one.least[:-1], other.least]),
            most=torch.cat([one.most[:-1], other.most]),
            bounded=one.bounded or other.bounded,
        )

    def renumbered(self) -> "Draft":
        """With only those blanks that an open gap belongs to."""
        there = self.blank[self.x_t.open].unique()
        number = torch.full_like(self.least, -1)
        number[there] = torch.arange(len(there), device=there.device)
        least, most = (pad(limit[there], (0, 1)) for limit in (self.least, self.most))
        return replace(
            self,
            blank=torch.where(self.blank >= 0, number[self.blank], -1),
            least=least,
            most=most,
            bounded=_is_bounded(least, most),
        )

    def with_open_blanks(self) -> "Draft":
        """Without the limits of blanks that no open gap belongs to any more."""
        there = torch.zeros_like(self.least, dtype=torch.bool)
        there[self.blank[self.x_t.open]] = True
        return replace(self, least=self.least * there, most=self.most * there)

    def ended(self, end: int) -> "Draft":
        """With no open gaps after the token `end`."""
        is_end = (self.x_t.tokens == end) & self.free
        return replace(self, x_t=replace(self.x_t, open=self.x_t.open & ~is_end))

    def answered(self, rows: Tensor | None, answer: Answer) -> "Draft":
        """With what the model says about the rows where the mask `rows` [T] is true, or about all.

        An answer may also be about more rows than that: the others keep what they have.
        """
        memory = self.memory
        if answer.memory is not None and answer.memory is not memory:
            memory = _filled(memory, rows, answer.memory)
        return replace(
            self,
            log_rate=_filled(self.log_rate, rows, answer.log_rate),
            features=_filled(self.features, rows, answer.features),
            memory=memory,
            known=torch.ones_like(self.known) if rows is None else self.known | rows,
        )

    def recall(self, rows: Tensor | None = None) -> Recall:
        """What the model remembers of the rows where the mask `rows` [T] is true, or of all."""
        memory, known = self.memory, self.known
        if rows is not None:
            memory, known = memory[rows], known[rows]
        return Recall(memory, (~known).nonzero().squeeze(-1))

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> "Draft":
        """With everything that has rows changed in the same way."""
        x_t = self.x_t
        return replace(
            self,
            x_t=Packed(change(x_t.tokens), x_t.offsets, change(x_t.given), change(x_t.open)),
            blank=change(self.blank),
            spaced=change(self.spaced),
            born=change(self.born),
            log_rate=change(self.log_rate),
            features=change(self.features),
            memory=change(self.memory),
            known=change(self.known),
        )


# Edits: tokens that come to the rows that fire [T], the pass in which each does [T], and how many
# rows there may be afterwards. Rows that do not fire may have anything there.
Edit = Callable[[Draft, Tensor, Tensor, Tensor, int], Draft]


def insert(draft: Draft, fires: Tensor, tokens: Tensor, born: Tensor, rows: int) -> Draft:
    """Tokens into the gaps after the rows; there are gaps on both sides of them then."""
    x_t, source, is_new = draft.x_t.grown(fires, tokens, rows)
    return replace(
        draft,
        x_t=x_t,
        blank=draft.blank[source],
        spaced=draft.spaced[source] & ~is_new,
        born=torch.where(is_new, born[source], draft.born[source]),
        log_rate=draft.log_rate[source].masked_fill_(is_new, -torch.inf),
        # Of new rows these are not read before the model has answered.
        features=draft.features[source],
        memory=_moved(draft.memory, source),
        known=draft.known[source] & ~is_new,
    )


def append(draft: Draft, fires: Tensor, tokens: Tensor, born: Tensor, rows: int) -> Draft:
    """Tokens after the last rows of their texts: the gaps before them close."""
    return insert(_closed(draft, fires), fires, tokens, born, rows)


def replace_marks(draft: Draft, fires: Tensor, tokens: Tensor, born: Tensor, rows: int) -> Draft:
    """Tokens in the place of the rows, which are open as long as they hold a mark."""
    draft = _closed(draft, fires)
    return replace(
        draft,
        x_t=replace(draft.x_t, tokens=torch.where(fires, tokens, draft.x_t.tokens)),
        born=torch.where(fires, born, draft.born),
    )


def neighbours(edit: Edit, x_t: Packed, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens left and right of those that an edit puts at these rows, and which are there.

    BOS is none, nor is a mark.

    Returns:
        Tokens [R, 2], and whether there is one [R, 2].
    """
    marked = edit is replace_marks
    beside = torch.stack([rows - 1 if marked else rows, rows + 1], -1)
    inside = beside.clamp(0, x_t.rows - 1)
    # What follows the last row of a text is the BOS of the next, if anything.
    there = (beside == inside) & ~x_t.is_bos[inside]
    return x_t.tokens[inside], there & ~x_t.open[inside] if marked else there


def _filled(old: Tensor, rows: Tensor | None, new: Tensor) -> Tensor:
    """`old` [T, ...] with `new` at the masked rows; the first answer sets the shape."""
    if rows is None:
        return new
    if new.shape == old.shape:
        return torch.where(rows.view(-1, *[1] * (new.ndim - 1)), new, old)
    result = new.new_zeros(len(old), *new.shape[1:])
    if result.shape == old.shape:
        result.copy_(old)
    result[rows] = new
    return result


def _moved(values: Tensor, source: Tensor) -> Tensor:
    """Some rows of values [T, ...].

    A memory is gigabytes, and larger after every token. With room in steps it lies where an earlier
    one has lain, where a GPU would otherwise have to look for new memory every time.
    """
    if values.ndim == 1 or not values.numel():
        return values[source]
    room = values.new_empty(rounded_rows(len(source)), *values.shape[1:])
    return torch.index_select(values, 0, source, out=room[: len(source)])


def _is_bounded(least: np.ndarray | Tensor, most: np.ndarray | Tensor) -> bool:
    """Whether any blank but the last, which is nobody's, has limits."""
    return bool((least > 0).any() or (most[:-1] < NO_LIMIT).any())


def _stacked(one: Tensor, other: Tensor) -> Tensor:
    """Rows [T, ...] of both, where one of them may not have been answered yet."""
    some = max(one, other, key=lambda x: x.shape[1:])
    pair = [x if x.numel() else some.new_zeros(len(x), *some.shape[1:]) for x in (one, other)]
    return torch.cat(pair)


def _closed(draft: Draft, rows: Tensor) -> Draft:
    return replace(draft, x_t=replace(draft.x_t, open=draft.x_t.open & ~rows))


def begin(starts: Sequence[Start], bos: int, device: torch.device | str = "cpu") -> Draft:
    """Lay out what the texts of a batch start from."""
    x_t = pack([start.tokens for start in starts], bos, [start.given for start in starts])
    first = np.cumsum([0, *(len(start.least) for start in starts)])
    blank = np.concatenate(
        [
            np.where(start.blank >= 0, start.blank + before, -1)
            for start, before in zip(starts, first[:-1], strict=True)
        ]
    )

    def tensor(arrays: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    # The last one is nobody's: it is there if there is no other.
    least = np.concatenate([*(start.least for start in starts), [0]])
    most = np.concatenate([*(start.most for start in starts), [0]])
    return Draft(
        x_t=replace(x_t, open=torch.from_numpy(blank >= 0)).to(device),
        blank=torch.from_numpy(blank).to(device),
        spaced=tensor([start.spaced for start in starts]),
        born=torch.zeros(x_t.rows, dtype=torch.int64, device=device),
        log_rate=torch.full((x_t.rows,), -torch.inf, device=device),
        features=torch.zeros(x_t.rows, 0, device=device),
        memory=torch.zeros(x_t.rows, 0, device=device),
        known=torch.zeros(x_t.rows, dtype=torch.bool, device=device),
        least=torch.from_numpy(least).to(device),
        most=torch.from_numpy(most).to(device),
        bounded=_is_bounded(least, most),
    )
