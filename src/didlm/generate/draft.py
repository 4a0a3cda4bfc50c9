"""The texts of a batch while they grow: the packed rows, and what generation knows about each.

Shapes: S sequences, T rows, B blanks, D features. A row is a token and the gap after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from didlm.generate.template import NO_LIMIT, Start
from didlm.packed import Packed, merge, pack


@dataclass(frozen=True, eq=False)
class Draft:
    """A batch of unfinished texts; every edit makes a new one."""

    x_t: Packed
    blank: Tensor  # [T] the blank that the gap after this row belongs to, -1 if it is closed
    spaced: Tensor  # [T] whether what is inserted right after this row must begin with a space
    born: Tensor  # [T] the pass in which the token came, 0 if it was there from the start
    log_rate: Tensor  # [T] what the model said last about the gap; it outlives edits elsewhere
    features: Tensor  # [T, D] and what it needs in order to name tokens there
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

    def insert(self, rows: Tensor, tokens: Tensor, born: Tensor) -> "Draft":
        """Tokens after rows in rising order, with the pass in which each comes."""
        x_t, is_new = self.x_t.splice(rows, tokens)
        return replace(
            self,
            x_t=x_t,
            blank=merge(is_new, self.blank, self.blank[rows]),
            spaced=merge(is_new, self.spaced, False),
            born=merge(is_new, self.born, born),
            log_rate=merge(is_new, self.log_rate, -torch.inf),
            features=merge(is_new, self.features, 0),
        )

    def delete(self, gone: Tensor) -> "Draft":
        """Without the rows where `gone` [T] is true, which must hold free tokens."""
        return self._with_rows(self.x_t.delete(~gone), ~gone)

    def select(self, chosen: Tensor) -> "Draft":
        """The sequences where `chosen` [S] is true; blanks keep their numbers."""
        draft = self._with_rows(self.x_t.select(chosen), chosen[self.x_t.sequence])
        there = torch.zeros_like(self.least, dtype=torch.bool)
        there[draft.blank[draft.x_t.open]] = True
        return replace(draft, least=self.least * there, most=self.most * there)

    def answered(self, rows: Tensor, log_rate: Tensor, features: Tensor) -> "Draft":
        """With what the model says about the rows where the mask `rows` [T] is true."""
        if len(log_rate) == self.x_t.rows:
            return replace(self, log_rate=log_rate, features=features)
        if self.features.shape[1] != features.shape[1]:  # its first answer
            empty = features.new_zeros(self.x_t.rows, features.shape[1])
            return replace(
                self, log_rate=self.log_rate.to(log_rate.dtype), features=empty
            ).answered(rows, log_rate, features)
        return replace(
            self,
            log_rate=self.log_rate.masked_scatter(rows, log_rate),
            features=self.features.masked_scatter(rows[:, None], features),
        )

    def _with_rows(self, x_t: Packed, kept: Tensor) -> "Draft":
        return replace(
            self,
            x_t=x_t,
            blank=self.blank[kept],
            spaced=self.spaced[kept],
            born=self.born[kept],
            log_rate=self.log_rate[kept],
            features=self.features[kept],
        )


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
        least=torch.from_numpy(least).to(device),
        most=torch.from_numpy(most).to(device),
        bounded=bool((least > 0).any() or (most[:-1] < NO_LIMIT).any()),
    )
