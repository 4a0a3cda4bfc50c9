"""How many tokens a blank and a text may take: rates bend towards the limits, firing obeys them.

Shapes: S sequences, T rows, B blanks, G groups, which are either of the former.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from didlm.generate.draft import Draft


@dataclass(frozen=True, eq=False)
class Limits:
    """What the texts of a draft must still receive, and what they can."""

    sequence: Tensor  # [T]
    open: Tensor  # [T]
    shortfall: Tensor  # [S] tokens that must still come, for the text to be long enough
    room: Tensor  # [S] tokens that can still come
    blank: Tensor  # [T] of each gap; closed gaps, which have no rate, count as of blank 0
    owner: Tensor  # [B] the sequence that a blank belongs to
    lacking: Tensor  # [B] tokens that must still come
    room_in_blank: Tensor  # [B] tokens that can still come
    bounded: bool  # whether any blank has limits of its own

    @property
    def receptive(self) -> Tensor:
        """Whether a text can still receive anything [S]."""
        gap = self.open & (self.room_in_blank[self.blank] > 0)
        return (self.room > 0) & (_count(gap, self.sequence, self.room) > 0)

    @property
    def unmet(self) -> Tensor:
        """Whether a text must still receive something [S]."""
        if not self.bounded:
            return self.shortfall > 0
        return (self.shortfall > 0).index_fill(0, self.owner[self.lacking > 0], True)

    def bend(self, rate: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Rates [T] that expect between `low` and `high` [S] tokens in a text, and obey blanks."""
        if not self.bounded:
            return within(rate, self.sequence, low, high)
        rate = rate.masked_fill(self.room_in_blank[self.blank] <= 0, 0)
        rate = within(rate, self.sequence, low, high)
        return within(rate, self.blank, self.lacking, self.room_in_blank)

    def obey(self, fires: Tensor, arrival: Tensor, closing: Tensor) -> Tensor:
        """The gaps [T] that may fire, or must.

        Args:
            fires: the gaps that a sampler lets fire [T].
            arrival: when each gap would fire [T]; infinite if it cannot.
            closing: whether a text is at its last step [S]: what it lacks must come now.
        """
        low, room = torch.where(closing, self.shortfall, 0), self.room
        if not self.bounded:
            return clamp_fired(fires, arrival, self.sequence, low, room)
        due = torch.where(closing[self.owner], self.lacking, 0)
        fires = clamp_fired(fires, arrival, self.blank, due, self.room_in_blank)
        # Blanks that lack something go first, and room is kept for what they get later.
        required = earliest(arrival.masked_fill(~fires, torch.inf), self.blank, self.lacking)
        later = self.lacking - _count(required, self.blank, self.lacking)
        room = room - torch.zeros_like(room).index_add_(0, self.owner, later)
        full = _count(fires, self.blank, self.lacking) >= self.room_in_blank
        order = arrival.masked_fill(full[self.blank] & ~fires, torch.inf).masked_fill(required, -1)
        fires = clamp_fired(fires, order, self.sequence, torch.minimum(low, room), room)
        return clamp_fired(fires, order, self.blank, torch.zeros_like(due), self.room_in_blank)


def limits_of(draft: Draft, shortest: int, longest: int) -> Limits:
    """The limits of a draft whose texts are to have `shortest` to `longest` tokens."""
    x_t, sequence = draft.x_t, draft.x_t.sequence
    owner = torch.zeros_like(draft.least)
    owner[draft.blank[x_t.open]] = sequence[x_t.open]
    inserted = torch.bincount(draft.blank[draft.free], minlength=len(owner))
    return Limits(
        sequence=sequence,
        open=x_t.open,
        shortfall=(shortest - x_t.lengths).clamp(min=0),
        room=longest - x_t.lengths,
        blank=draft.blank.clamp(min=0),
        owner=owner,
        lacking=(draft.least - inserted).clamp(min=0),
        room_in_blank=draft.most - inserted,
        bounded=draft.bounded,
    )


def check_limits(draft: Draft, shortest: int, longest: int) -> None:
    """Refuse given text and limits that cannot go together.

    Raises:
        ValueError: naming the figures.
    """
    limits, given = limits_of(draft, shortest, longest), draft.x_t.lengths
    least = given + torch.zeros_like(given).index_add_(0, limits.owner, draft.least)
    most = given + torch.zeros_like(given).index_add_(0, limits.owner, draft.most)
    if int(given.max()) > longest:
        raise ValueError(
            f"what is given or forced has {int(given.max())} tokens, "
            f"more than the maximum of {longest}"
        )
    if int(least.max()) > longest:
        raise ValueError(
            f"the given text and the least that its blanks must receive are {int(least.max())} "
            f"tokens, more than the maximum of {longest}"
        )
    if int(most.min()) < shortest:
        raise ValueError(
            f"with its blanks filled the text has at most {int(most.min())} tokens, "
            f"fewer than the {shortest} asked for"
        )


def within(rate: Tensor, group: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Rates [T] whose sum over each group lies between `low` and `high` [G].

    A sum of rates is the number of tokens that the model expects to be missing, so this is what it
    expects once it knows the limits, with the proportions between gaps as they were.
    """
    total = torch.zeros_like(low, dtype=rate.dtype).index_add_(0, group, rate)
    wanted = torch.minimum(torch.maximum(total, low.to(rate.dtype)), high.to(rate.dtype))
    return rate * torch.where(total > 0, wanted / total, 0)[group]


def earliest(arrival: Tensor, group: Tensor, count: Tensor) -> Tensor:
    """A mask [T] of the `count` [G] first arrivals of each group; infinite ones never come.

    If arrival times are exponential with the gaps' rates, this draws gaps without replacement, in
    proportion to their rates.
    """
    by_time = arrival.argsort(stable=True)
    order = by_time[group[by_time].argsort(stable=True)]
    size = torch.bincount(group, minlength=len(count))
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    rank -= (size.cumsum(0) - size)[group]
    return (rank < count[group]) & arrival.isfinite()


def clamp_fired(fires: Tensor, arrival: Tensor, group: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The mask `fires` [T] with at least `low` and at most `high` [G] gaps in each group.

    The last to arrive are dropped, the next to arrive are added.
    """
    count = _count(fires, group, low)
    wanted = torch.minimum(torch.maximum(count, low), high)
    if torch.equal(wanted, count):
        return fires
    kept = earliest(arrival.masked_fill(~fires, torch.inf), group, wanted)
    added = earliest(arrival.masked_fill(fires, torch.inf), group, (wanted - count).clamp(min=0))
    return kept | added


def _count(mask: Tensor, group: Tensor, like: Tensor) -> Tensor:
    """How many of a mask [T] are in each group [G]."""
    return torch.zeros_like(like).index_add_(0, group, mask.to(like.dtype))
