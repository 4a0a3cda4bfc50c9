"""Slots: a few rows of a packed batch each, all of one sequence, for programs that need that.

Sequence s has the slots from offsets[s] // size + s to offsets[s + 1] // size + s, both included:
enough for its rows, and at most one too many, which starts past its end. So their number is known
without the lengths of the sequences. Which sequence a slot is of is looked up in a table, made once
for all layers of a network.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Slots:
    """The tables of a packed batch."""

    offsets: Tensor  # [S + 1] where each sequence starts, and the end
    rows: int
    _tables: dict[int, Tensor] = field(default_factory=dict)

    def count(self, size: int) -> int:
        """How many slots of so many rows there are."""
        return self.rows // size + self.offsets.numel() - 1

    def table(self, size: int) -> Tensor:
        """The sequence of each slot of so many rows, in int32; on a GPU."""
        if size not in self._tables:
            from didlm.kernels import slots_triton

            self._tables[size] = slots_triton.table(self.offsets, self.count(size), size)
        return self._tables[size]


def table_plain(offsets: Tensor, slots: int, size: int) -> Tensor:
    """The same table anywhere."""
    first = offsets[:-1] // size + torch.arange(offsets.numel() - 1, device=offsets.device)
    slot = torch.arange(slots, device=offsets.device)
    return (torch.searchsorted(first, slot, right=True) - 1).int()
