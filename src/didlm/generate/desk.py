"""Where a batch lies while it is written: as it comes, or where a GPU can record what is done.

A GPU spends most of the time of a small pass on being told what to do, hundreds of times. Told once
in a recording (a CUDA graph), it does the same again at a word, but to tensors of the same shapes
at the same places. So there the batch lies in buffers, with room behind the texts: empty texts into
which the others grow, whose gaps are closed. Sizes are rounded up to few, and each has its own
recordings, which are kept for the next batch.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from didlm.generate.scorer import PLACES
from didlm.generate.sizes import rounded, rounded_rows
from didlm.generate.state import State, leaves, with_leaves
from didlm.packed import Packed

KEPT = 2  # desks of a network that are kept, those used last: each has memory of its own
KEPT_REMEMBERING = 1  # of a network that remembers what it has read, which takes a lot of it

Stage = Callable[..., State]  # (state, size) -> state


class Desk(Protocol):
    """A batch, and what is done to it."""

    records: bool  # whether shapes must not depend on what is in the tensors

    @property
    def state(self) -> State:
        """The batch as it is now."""
        ...

    def do(self, stage: Stage, size: int = 0, everywhere: bool = False) -> None:
        """Let a stage make a new state.

        Args:
            stage: what is done; the same name does the same.
            size: a number that it depends on.
            everywhere: whether it does not mind how many rows there are, nor in which text.
        """
        ...

    def tidy(self, state: State) -> State:
        """Inside a stage that has moved rows: put the room behind the texts in order."""
        ...

    def end(self, x_t: Packed) -> Tensor:
        """Inside a stage: the number of rows of all texts []."""
        ...

    def report(self) -> list[int]:
        """What the state reports; waits until it is known."""
        ...

    def make_room(self, rows: int) -> int:
        """For texts of so many rows in all; how many there are with the room."""
        ...

    def rounded(self, count: int) -> int:
        """How many gaps are handled where so many fire."""
        ...

    def clear(self, gone: Tensor) -> None:
        """Take the texts where `gone` [S] is true off."""
        ...

    def join(self, more: State) -> None:
        """Lay other texts beside those that are there."""
        ...

    def give_back(self) -> None:
        """Nothing comes any more."""
        ...


class PlainDesk:
    """Tensors of exactly the sizes that are needed."""

    records = False

    def __init__(self, state: State) -> None:
        self.state = state

    def do(self, stage: Stage, size: int = 0, everywhere: bool = False) -> None:
        """Do it."""
        self.state = stage(self.state, size)

    def tidy(self, state: State) -> State:
        """There is no room to put in order."""
        return state

    def end(self, x_t: Packed) -> Tensor:
        """All."""
        return x_t.offsets[-1]

    def report(self) -> list[int]:
        """What the state reports."""
        return self.state.report.tolist()

    def make_room(self, rows: int) -> int:
        """Exactly."""
        return rows

    def rounded(self, count: int) -> int:
        """Exactly."""
        return count

    def clear(self, gone: Tensor) -> None:
        """Keep the others."""
        self.state = self.state.select(~gone)

    def join(self, more: State) -> None:
        """Behind them."""
        self.state = self.state.joined(more)

    def give_back(self) -> None:
        """There is nothing to keep."""


class RoomyDesk:
    """Buffers of constant size, of which a part is in use, and recordings of what is done there."""

    records = True

    def __init__(self, state: State, most: int, give_back: Callable[["RoomyDesk"], None]) -> None:
        """Lay a batch out.

        Args:
            state: the batch, as it is on a plain desk.
            most: how many rows its texts can have in all.
            give_back: called with the desk when nothing lies there any more.
        """
        self.most = rounded_rows(most + PLACES)
        laid_out = state.with_room(self.most, PLACES)
        self._buffers = with_leaves(laid_out, iter([x.clone() for x in leaves(laid_out)]))
        self._give_back = give_back
        self._graphs: dict[Hashable, Any] = {}  # None where there may be one the next time
        self._is_full = False  # there is no memory for recordings
        self._aside: Any = None  # a stream to record on
        self._pool: Any = None
        self._rows = 0
        self.make_room(state.draft.x_t.rows)

    @property
    def state(self) -> State:
        """The part that is in use."""
        return self._part(self._rows)

    def do(self, stage: Stage, size: int = 0, everywhere: bool = False) -> None:
        """Do it as it is recorded; the first time at a size without, the second time record it."""
        rows = self.most if everywhere else self._rows
        key = stage.__name__, rows, size
        graph = self._graphs.get(key)
        if graph is None and key in self._graphs and self._buffers.time.is_cuda:
            graph = self._record(stage, rows, size)
        self._graphs[key] = graph
        if graph is None:
            self._take_step(stage, rows, size)
            return
        with torch.cuda.device_of(self._buffers.time):
            graph.replay()

    def tidy(self, state: State) -> State:
        """Divide the room anew."""
        return state.spread(PLACES)

    def end(self, x_t: Packed) -> Tensor:
        """Where the room begins."""
        return x_t.offsets[-1 - PLACES]

    def report(self) -> list[int]:
        """What the state reports."""
        return self._buffers.report.tolist()

    def make_room(self, rows: int) -> int:
        """As much as there is at the next larger size."""
        size = min(rounded_rows(rows + PLACES), self.most)
        if size < self._rows:  # all that lies behind the part in use is as if it were new

            def zero(x: Tensor) -> Tensor:
                x[size : self._rows] = 0
                return x

            self._buffers.map_rows(zero)
            self._buffers.draft.blank[size : self._rows] = -1
        if size != self._rows:
            self._rows = size
            self._change(lambda state: state.spread(PLACES))
        return size

    def rounded(self, count: int) -> int:
        """The next larger size."""
        return min(rounded(count, 16, 4), self.most)

    def clear(self, gone: Tensor) -> None:
        """Leave an empty text in their places."""
        self._change(lambda state: self.tidy(state.emptied(gone)))
        self.make_room(int(self.end(self.state.draft.x_t)))

    def join(self, more: State) -> None:
        """In the places of empty texts."""
        there, room = self.state, self._buffers
        texts = there.select(there.number >= 0).joined(more)
        places = len(room.number) - PLACES
        self.lay_out(texts.filled(places, len(room.draft.least), room.grid.shape[1]))

    def give_back(self) -> None:
        """Keep the recordings for another batch."""
        self._give_back(self)

    def lay_out(self, state: State) -> None:
        """Begin another batch, of the same sizes."""
        _copy(self._buffers, state.with_room(self.most, PLACES))
        self._rows, self._is_full = 0, False
        self.make_room(state.draft.x_t.rows)

    def _part(self, rows: int) -> State:
        return self._buffers.map_rows(lambda x: x[:rows])

    def _change(self, change: Callable[[State], State]) -> None:
        part = self.state
        _copy(part, change(part))

    def _take_step(self, stage: Stage, rows: int, size: int) -> None:
        part = self._part(rows)
        _copy(part, stage(part, size))

    def _record(self, stage: Stage, rows: int, size: int) -> Any:
        """What a stage does, to be done again; None if there is no memory for that."""
        for _ in range(0 if self._is_full else 2):
            try:
                with torch.cuda.device_of(self._buffers.time):
                    return self._recorded(stage, rows, size)
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
            # While it records, torch gives nothing back of what it keeps for later use.
            torch.cuda.empty_cache()
        self._is_full = True
        return None

    def _recorded(self, stage: Stage, rows: int, size: int) -> Any:
        graph = torch.cuda.CUDAGraph()
        self._aside = self._aside or torch.cuda.Stream()
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            # Other threads may go on with what they do. Recordings share their memory: what one
            # leaves is copied into the buffers before the next is done.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._take_step(stage, rows, size)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # which would be heard of instead
                    graph.capture_end()
                raise
            graph.capture_end()
        self._pool = self._pool or graph.pool()
        return graph


def _copy(target: State, source: State) -> None:
    """Write over what differs; those of one kind in one go, in which no order is kept."""
    kinds = defaultdict[Hashable, tuple[list[Tensor], list[Tensor]]](lambda: ([], []))
    for one, other in zip(leaves(target), leaves(source), strict=True):
        if one is not other:
            ones, others = kinds[one.dtype, other.dtype]
            ones.append(one)
            others.append(other)
    for ones, others in kinds.values():
        torch._foreach_copy_(ones, others)


_desks: WeakKeyDictionary[nn.Module, dict[Hashable, RoomyDesk]] = WeakKeyDictionary()


def roomy_desk(
    state: State, most: int, network: nn.Module, stages: Hashable, fits: Callable[[], bool]
) -> RoomyDesk | None:
    """A desk on which a network has written such a batch before, or a new one if that fits.

    While a batch is written nobody else gets its desk, and if it is never finished nobody will.

    Args:
        state: the batch.
        most: how many rows its texts can have in all.
        network: that writes; its desks go with it.
        stages: all that the stages depend on and `state` does not tell.
        fits: whether there is memory for a new one.
    """
    weights = tuple(x.data_ptr() for x in network.parameters())  # which recordings read there
    shapes = tuple((x.shape, x.dtype) for x in leaves(state))
    key, owner = (stages, most, state.draft.bounded, shapes, weights), ref(network)
    kept = KEPT_REMEMBERING if state.draft.memory.numel() else KEPT

    def keep(desk: RoomyDesk) -> None:
        network = owner()
        if network is not None:
            desks = _desks.setdefault(network, {})
            desks[key] = desk
            for old in list(desks)[:-kept]:
                del desks[old]

    desk = _desks.get(network, {}).pop(key, None)
    if desk is None:
        return RoomyDesk(state, most, keep) if fits() else None
    desk.lay_out(state)
    return desk
