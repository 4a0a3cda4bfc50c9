"""Batches of constant shapes: dummy sequences fill the rows, targets of no weight the rest.

A captured graph of kernels needs every step to have the shapes of the one that was captured. Rows
vary by some percent from step to step, so a few dozen shapes serve them all.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from didlm.data.batch import Batch
from didlm.packed import Packed

MOST = 40  # shapes in use: each needs a graph of its own
SPARE = 0.3  # share by which all else may grow that costs nothing
SHARED = 64  # rows that the targets of no weight stand in
DUMMIES = 4  # attention within them costs the square of their rows: the more, the less


@dataclass(frozen=True)
class Shape:
    """How much of everything a padded batch has."""

    sequences: int  # the dummies included
    rows: int
    target_rows: int
    targets: int
    longest: int  # no sequence has more rows
    generation: int = 0  # shapes of another one are of no more use


def padded(batch: Batch, shape: Shape) -> Batch:
    """The batch with that shape; its cost and all gradients stay the same.

    Raises:
        ValueError: if it has more than fits.
    """
    x_t = batch.x_t
    rows, sequences = shape.rows - x_t.rows, shape.sequences - len(x_t)
    target_rows, targets = (
        shape.target_rows - len(batch.target_rows),
        shape.targets - len(batch.row),
    )
    if min(rows - 1, sequences - 1, target_rows, targets) < 0:
        raise ValueError(f"a batch of {x_t.rows} rows cannot be padded to {shape}")

    def fill(values: Tensor, count: int, value: float = 0) -> Tensor:
        return pad(values, (0, count), value=value)

    # Shares of the padding, as equal as they can be; the last is not empty.
    share = torch.arange(1, sequences + 1) * rows // sequences
    return replace(
        batch,
        x_t=Packed(
            tokens=fill(x_t.tokens, rows),
            offsets=torch.cat([x_t.offsets, x_t.rows + share]),
            given=fill(x_t.given, rows),
            # Where all gaps are closed, there is no distribution over them.
            open=torch.cat([x_t.open, x_t.open.new_ones(rows)]),
        ),
        deleted=fill(batch.deleted, sequences, 0.5),
        count=fill(batch.count, rows),
        count_weight=fill(batch.count_weight, rows),
        constant=fill(batch.constant, sequences),
        complete=fill(batch.complete, sequences),
        complete_weight=fill(batch.complete_weight, sequences),
        number=fill(batch.number, sequences, -1),
        target_rows=fill(batch.target_rows, target_rows, shape.rows - 1),
        row=torch.cat([batch.row, _spread(targets, target_rows, shape.target_rows)]),
        token=fill(batch.token, targets),
        target=fill(batch.target, targets),
        longest=max(shape.longest, batch.longest),
    )


class Shapes:
    """Chooses the shape of each batch such that few are in use.

    Rows come in steps, and if that makes too many shapes, in larger ones. There is room for as many
    rows with targets as any batch so far has had, and for half more than they have varied by: these
    cost time. Of the rest there is plenty. Whenever that is not enough, a new generation of shapes
    begins.
    """

    def __init__(self, sequences: int) -> None:
        """Begin, with the most sequences that any batch has."""
        self._sequences = sequences
        self._generation = 0
        self._fewest: float = math.inf  # rows with targets of any batch
        self._grain, self._target_rows, self._targets, self._longest = 0, 0, 0, 0
        self._in_use: set[int] = set()  # numbers of rows

    def fitting(self, batch: Batch) -> Shape:
        """A shape that holds a batch."""
        rows, needed = batch.x_t.rows, (len(batch.target_rows), len(batch.target), batch.longest)
        # Padding costs half a grain on average: one part in 256, where there are many rows.
        self._grain = self._grain or max(128, 2 ** round(math.log2(max(rows, 1) / 128)))
        room = self._target_rows, self._targets, self._longest
        if not self._targets or any(one > other for one, other in zip(needed, room, strict=True)):
            target_rows, targets, longest = needed
            varied = target_rows - min(self._fewest, target_rows)
            self._target_rows = max(self._target_rows, _up(int(target_rows + varied / 2), 128))
            self._targets = max(self._targets, _up(int((1 + SPARE) * targets), 1024))
            self._longest = max(self._longest, self._grain, _up(int((1 + SPARE) * longest), 128))
            self._begin_anew()
        self._fewest = min(self._fewest, needed[0])
        padded_rows = _up(rows + 1, self._grain)  # a dummy has at least one
        self._in_use.add(padded_rows)
        if len(self._in_use) > MOST:
            self._grain *= 2
            self._begin_anew()
            return self.fitting(batch)
        return Shape(
            sequences=self._sequences + DUMMIES,
            rows=padded_rows,
            target_rows=min(self._target_rows, padded_rows),
            targets=self._targets,
            longest=self._longest,
            generation=self._generation,
        )

    def _begin_anew(self) -> None:
        self._generation += 1
        self._in_use = set()


def _spread(targets: int, rows: int, end: int) -> Tensor:
    """Rows for targets of no weight: several, since all targets of a row are compared."""
    some = min(max(rows, 1), SHARED)
    return end - some + torch.arange(targets) * some // max(targets, 1)


def _up(size: int, grain: int) -> int:
    """To the next multiple, at least one."""
    return max(1, -(-size // grain)) * grain
