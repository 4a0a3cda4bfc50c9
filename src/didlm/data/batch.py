"""Batches of fixed budgets: how examples become tensors, and how a stream of them is cut.

Legend: S sequences, T rows, K token targets, R rows that have a target.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didlm.methods.examples import Examples
from didlm.packed import Packed


@dataclass(frozen=True)
class Budget:
    """The most a batch may hold: what does not fit opens the next."""

    sequences: int
    rows: int
    target_rows: int
    targets: int

    def fits(self, examples: Examples, first: int) -> int:
        """How many sequences, from `first` on, fit one batch; refuse a sequence that never will."""
        start = examples.offsets[first]
        ends = examples.offsets[first + 1 : first + 1 + self.sequences]
        is_first_in_row = np.diff(examples.row, prepend=-1) != 0
        rows_before = np.append(0, np.cumsum(is_first_in_row))
        targets = np.searchsorted(examples.row, np.append(start, ends))
        used = np.stack(
            [
                ends - start,
                rows_before[targets[1:]] - rows_before[targets[0]],
                targets[1:] - targets[0],
            ]
        )
        limits = np.array([self.rows, self.target_rows, self.targets])[:, None]
        fitting = int((used <= limits).all(0).sum())
        if not fitting:
            rows, target_rows, targets_used = used[:, 0].tolist()
            raise ValueError(
                f"one example has {rows} rows, {target_rows} of them with targets, and "
                f"{targets_used} targets, more than a whole batch may hold "
                f"({self.rows}, {self.target_rows}, {self.targets}): raise the budget or shorten "
                "the documents"
            )
        return fitting


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples as tensors, on one device: all that the network and the loss read."""

    x_t: Packed
    deleted: Tensor  # [S]
    count: Tensor  # [T]
    count_weight: Tensor  # [T]
    constant: Tensor  # [S]
    complete: Tensor  # [S]
    complete_weight: Tensor  # [S]
    number: Tensor  # [S]
    target_rows: Tensor  # [R] the rows that have a target
    row: Tensor  # [K] into target_rows
    token: Tensor  # [K]
    target: Tensor  # [K]
    longest: int  # no sequence has more rows
    documents: int  # sequences

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        moved: dict[str, Any] = {
            field.name: getattr(self, field.name).to(device)
            for field in fields(self)
            if field.type is not int
        }
        return replace(self, **moved)

    def silenced(self) -> "Batch":
        """The same batch without any weight: it costs nothing and teaches nothing."""
        return replace(
            self,
            count=torch.zeros_like(self.count),
            count_weight=torch.zeros_like(self.count_weight),
            constant=torch.zeros_like(self.constant),
            complete_weight=torch.zeros_like(self.complete_weight),
            target=torch.zeros_like(self.target),
        )


def make_batch(examples: Examples) -> Batch:
    """Turn examples into tensors: ids in int64, everything else in float32."""
    target_rows, row = np.unique(examples.row, return_inverse=True)

    def number(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.float32))

    return Batch(
        x_t=Packed(
            tokens=torch.from_numpy(examples.tokens),
            offsets=torch.from_numpy(examples.offsets),
            given=torch.from_numpy(examples.given.astype(np.int64)),
            open=torch.from_numpy(examples.open),
        ),
        deleted=number(examples.deleted),
        count=number(examples.count),
        count_weight=number(examples.count_weight),
        constant=number(examples.constant),
        complete=number(examples.complete),
        complete_weight=number(examples.complete_weight),
        number=torch.from_numpy(examples.number),
        target_rows=torch.from_numpy(target_rows),
        row=torch.from_numpy(row.reshape(-1)),
        token=torch.from_numpy(examples.token),
        target=number(examples.target),
        longest=int(np.diff(examples.offsets).max(initial=1)),
        documents=len(examples),
    )


def fill(stream: Iterable[Examples], budget: Budget) -> Iterator[Examples]:
    """Cut a stream of examples into batches that fit the budget.

    What does not fit opens the next batch: nothing is dropped, redrawn or reordered.
    """
    waiting: Examples | None = None
    for examples in stream:
        waiting = Examples.join([waiting, examples]) if waiting is not None else examples
        first = 0
        # A batch is complete only if there is something after it that did not fit.
        while first < len(waiting) and first + (size := budget.fits(waiting, first)) < len(waiting):
            yield waiting.part(first, first + size)
            first += size
        waiting = waiting.part(first, len(waiting))
    if waiting is not None and len(waiting):
        yield waiting
