"""The ragged batch that flows through everything: sequences end to end, without padding.

Shape suffixes: S sequences, T rows. Each sequence is BOS followed by its text, so a text of n
tokens takes n + 1 rows, and row r is both a token and the gap right after it. That is why the
network's outputs, the insertion targets and the insertions themselves are all indexed by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from didlm._inputs import Booleans, Integers, integers, same_length, token_ids
from didlm.given import check_spans, open_gaps

INTEGER_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, eq=False)
class Packed:
    """A batch of sequences; build one with `pack`."""

    tokens: Tensor  # [T] int64: BOS, text, BOS, text, ...
    offsets: Tensor  # [S + 1] int64: sequence s is rows offsets[s] to offsets[s + 1]
    given: Tensor  # [T] int64: 0 for a free token and for BOS, else the number of its span
    open: Tensor  # [T] bool: whether tokens may be inserted after this row

    def __len__(self) -> int:
        """The number of sequences."""
        return self.offsets.numel() - 1

    @property
    def rows(self) -> int:
        """The number of rows, BOS included."""
        return self.tokens.numel()

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each text [S], BOS not counted."""
        return self.offsets.diff() - 1

    @cached_property
    def sequence(self) -> Tensor:
        """Which sequence each row belongs to [T]."""
        return torch.repeat_interleave(self.offsets.diff(), output_size=self.rows)

    @property
    def is_bos(self) -> Tensor:
        """Whether a row is the BOS of its sequence [T], whatever ids occur inside the texts."""
        return torch.zeros_like(self.open).index_fill_(0, self.offsets[:-1], True)

    def to(self, device: torch.device | str) -> "Packed":
        """The same batch on another device."""
        return Packed(*(x.to(device) for x in (self.tokens, self.offsets, self.given, self.open)))

    def unpack(self) -> list[Tensor]:
        """The texts, without BOS."""
        return [rows[1:] for rows in self.tokens.split(self.offsets.diff().tolist())]

    def delete(self, keep: Booleans) -> "Packed":
        """The batch with only the rows where `keep` [T] is true.

        Raises:
            ValueError: if BOS or a given token would go, or `keep` does not fit the batch.
        """
        keep = self.check_deletion(keep)
        kept_until = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        # A deleted token is free, so the gaps beside it were open, and so is what they become.
        return Packed(
            tokens=self.tokens[keep],
            offsets=kept_until[self.offsets],
            given=self.given[keep],
            open=self.open[keep],
        )

    def check_deletion(self, keep: Booleans) -> Tensor:
        """The mask as a tensor; refuse one that does not fit, or deletes BOS or a given token."""
        keep = self._tensor(keep)
        if keep.numel() == 0:
            keep = keep.bool()
        if keep.dtype != torch.bool or keep.shape != self.tokens.shape:
            raise ValueError(
                f"keep must be {self.rows} booleans, one per row: "
                f"got {tuple(keep.shape)} of {keep.dtype}"
            )
        self._refuse(~keep & self.is_bos, "is BOS, which is never deleted")
        self._refuse(~keep & (self.given != 0), "is given, and given tokens are never deleted")
        return keep

    def insert(self, rows: Integers, tokens: Integers) -> "Packed":
        """The batch with tokens[i] inserted right after row rows[i].

        Tokens for one gap end up in the order in which they are listed.

        Raises:
            ValueError: if a row does not exist, its gap is closed, or an id is negative.
        """
        rows, tokens = self._tensor(rows), self._tensor(tokens)
        if rows.shape != tokens.shape or rows.ndim != 1:
            raise ValueError(
                "insert takes one token per row: "
                f"got {tuple(rows.shape)} rows and {tuple(tokens.shape)} tokens"
            )
        for name, values in (("rows", rows), ("tokens", tokens)):
            if values.numel() and values.dtype not in INTEGER_TYPES:
                raise ValueError(f"{name} to insert must be integers: got {values.dtype}")
        rows, tokens = rows.long(), tokens.long()
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < self.rows:
            bad = int(rows[(rows < 0) | (rows >= self.rows)][0])
            raise ValueError(f"cannot insert after row {bad}: the batch has {self.rows} rows")
        if tokens.numel() and int(tokens.min()) < 0:
            at = int(tokens.argmin())
            raise ValueError(f"token {int(tokens[at])} at position {at} is negative")
        if not bool(self.open[rows].all()):
            row = int(rows[~self.open[rows]][0])
            raise ValueError(f"cannot insert after row {row}: its gap is closed")

        rows, order = rows.sort(stable=True)
        return self.splice(rows, tokens[order])[0]

    def splice(self, rows: Tensor, tokens: Tensor) -> tuple["Packed", Tensor]:
        """Insert without checks after rows in rising order; also say which rows are new [T]."""
        inserted_at = rows + 1 + torch.arange(rows.numel(), device=rows.device)
        is_new = torch.zeros(self.rows + rows.numel(), dtype=torch.bool, device=rows.device)
        is_new[inserted_at] = True
        batch = Packed(
            tokens=merge(is_new, self.tokens, tokens),
            # Insertions after the last row of sequence s are the last before offset s + 1.
            offsets=self.offsets + torch.searchsorted(rows, self.offsets),
            given=merge(is_new, self.given, 0),
            open=merge(is_new, self.open, True),
        )
        return batch, is_new

    # Insertion and deletion again, in shapes that do not depend on what is done: nothing here asks
    # the device anything, so a GPU can record it.

    def grown(self, fires: Tensor, tokens: Tensor, rows: int) -> tuple["Packed", Tensor, Tensor]:
        """Insert a token behind each row that fires, without checks.

        Args:
            fires: [T] the rows that get a token.
            tokens: [T] the tokens, anything where none comes.
            rows: how many there are afterwards; what does not fit falls off the end.

        Returns:
            The batch; where each of its rows was, or behind which it came [rows]; and which are
            new [rows].
        """
        number = torch.arange(self.rows, device=fires.device)
        until = torch.nn.functional.pad(fires.cumsum(0), (1, 0))
        place = (number + until[:-1]).clamp(max=rows)
        behind = torch.where(fires, place + 1, rows).clamp(max=rows)
        source = number.new_zeros(rows + 1)  # the last one takes what falls off
        source = source.scatter_(0, place, number).scatter_(0, behind, number)[:rows]
        is_new = fires.new_zeros(rows + 1).scatter_(0, behind, True)[:rows]
        batch = Packed(
            tokens=torch.where(is_new, tokens[source], self.tokens[source]),
            offsets=self.offsets + until[self.offsets],
            given=self.given[source].masked_fill_(is_new, 0),
            open=self.open[source] | is_new,
        )
        return batch, source, is_new

    def shrunk(self, gone: Tensor, rows: int) -> tuple["Packed", Tensor]:
        """Delete the rows where `gone` [T] is true, without checks.

        Args:
            gone: [T] the rows to delete.
            rows: how many there are afterwards; where fewer are left, the last row is repeated.

        Returns:
            The batch, and where each of its rows was [rows].
        """
        until = torch.nn.functional.pad((~gone).cumsum(0), (1, 0))
        place = torch.where(gone, rows, until[:-1]).clamp(max=rows)
        source = place.new_full((rows + 1,), self.rows - 1)
        source = source.scatter_(0, place, torch.arange(self.rows, device=gone.device))[:rows]
        offsets = until[self.offsets]
        return Packed(self.tokens[source], offsets, self.given[source], self.open[source]), source

    def select(self, chosen: Tensor) -> "Packed":
        """The sequences where `chosen` [S] is true."""
        rows = chosen[self.sequence]
        offsets = torch.nn.functional.pad(self.offsets.diff()[chosen].cumsum(0), (1, 0))
        return Packed(self.tokens[rows], offsets, self.given[rows], self.open[rows])

    def close(self, rows: Integers) -> "Packed":
        """The batch with the gaps after these rows closed, as before a prompt or after a suffix.

        Raises:
            ValueError: if a gap touches a free token: something may be missing there.
        """
        chosen = torch.zeros_like(self.open)
        for row in self._tensor(rows).tolist():
            if not 0 <= row < self.rows:
                raise ValueError(f"cannot close the gap after row {row} of {self.rows}")
            chosen[row] = True
        is_free = (self.given == 0) & ~self.is_bos
        next_is_free = torch.nn.functional.pad(is_free[1:], (0, 1))
        self._refuse(chosen & (is_free | next_is_free), "or the next is free: its gap stays open")
        return replace(self, open=self.open & ~chosen)

    def _tensor(self, values: Integers | Booleans) -> Tensor:
        return torch.as_tensor(values, device=self.tokens.device)

    def _refuse(self, wrong: Tensor, why: str) -> None:
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            sequence = int(torch.searchsorted(self.offsets, row, right=True)) - 1
            position = row - int(self.offsets[sequence]) - 1
            place = "before the text" if position < 0 else f"at position {position}"
            raise ValueError(f"row {row} (sequence {sequence}, {place}) {why}")


def merge(is_new: Tensor, old: Tensor, new: Tensor | float) -> Tensor:
    """Rows in their order after an insertion: `old` where `is_new` [T] is false, else `new`."""
    result = old.new_empty(is_new.numel(), *old.shape[1:])
    result[~is_new] = old
    result[is_new] = torch.as_tensor(new, dtype=old.dtype, device=old.device)
    return result


def pack(texts: Sequence[Integers], bos: int, given: Sequence[Integers] | None = None) -> Packed:
    """Lay texts end to end, each after a BOS.

    Args:
        texts: token ids of each text, without BOS; a text may be empty.
        bos: the id of BOS. It may also occur inside a text, where it is a token like any other.
        given: for each text, the number of the span of each token, or 0 (see `didlm.given`).

    Raises:
        ValueError: for ids that are negative or no integers, or `given` that does not fit.
    """
    first = token_ids([bos], "the id of BOS")
    arrays = [token_ids(text, f"text {s}") for s, text in enumerate(texts)]
    if given is None:
        spans = [np.zeros_like(array) for array in arrays]
    elif len(given) != len(arrays):
        raise ValueError(f"given describes {len(given)} texts, but there are {len(arrays)}")
    else:
        spans = [integers(span, f"given {s}") for s, span in enumerate(given)]
    for s, (array, span) in enumerate(zip(arrays, spans, strict=True)):
        same_length(span, f"given {s}", array, f"text {s}")
        check_spans(span, f"given {s}")
    none = np.array([0], dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    return Packed(
        tokens=torch.from_numpy(
            np.concatenate([nothing, *(x for a in arrays for x in (first, a))])
        ),
        offsets=torch.from_numpy(np.cumsum([0, *(a.size + 1 for a in arrays)], dtype=np.int64)),
        given=torch.from_numpy(np.concatenate([nothing, *(x for g in spans for x in (none, g))])),
        open=torch.from_numpy(
            np.concatenate([nothing.astype(bool), *(open_gaps(g) for g in spans)])
        ),
    )
