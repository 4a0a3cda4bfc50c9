"""How many tokens a blank and a text may take: rates bend towards the limits, firing obeys them.

Shapes: S sequences, T rows, B blanks, G groups, which are either of the former.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from didlm.generate.draft import Draft

MARGIN = 1.1  # more tokens may be expected in a blank than there is room for, by this factor


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
        gap = self.open
        if self.bounded:
            gap = gap & (self.room_in_blank[self.blank] > 0)
        return (self.room > 0) & (count_by(self.sequence, gap, self.room) > 0)

    @property
    def unmet(self) -> Tensor:
        """Whether a text must still receive something [S]."""
        if not self.bounded:
            return self.shortfall > 0
        return (self.shortfall > 0) | (count_by(self.owner, self.lacking > 0, self.room) > 0)

    def bend(self, rate: Tensor, low: Tensor, high: Tensor, patient: Tensor) -> Tensor:
        """Rates [T] that expect between `low` and `high` [S] tokens in a text, and obey blanks.

        In a `patient` text [S] a blank waits until the model expects no more there than there is
        room for. Before that it names the tokens of a longer text: of one word, mostly "the".
        """
        if not self.bounded:
            return within(rate, self.sequence, low, high)
        rate = rate.masked_fill(self.room_in_blank[self.blank] <= 0, 0)
        total = torch.zeros_like(self.lacking, dtype=rate.dtype).index_add_(0, self.blank, rate)
        # If any come: the mean of a Poisson variable that is not 0. Where nothing is expected this
        # is no number, and nothing waits.
        expected = total / -torch.expm1(-total)
        waits = (expected > MARGIN * self.room_in_blank) & patient[self.owner]
        rate = within(rate, self.sequence, low, high)
        rate = within(rate, self.blank, self.lacking, self.room_in_blank)
        return rate.masked_fill(waits[self.blank], 0)

    def broken(self, fires: Tensor, closing: Tensor) -> Tensor:
        """Whether the gaps that a sampler lets fire must `obey` to be within the limits []."""
        if self.bounded:
            return torch.ones_like(closing).any()
        count = count_by(self.sequence, fires, self.room)
        return ((count > self.room) | ((count < self.shortfall) & closing)).any()

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
        later = self.lacking - count_by(self.blank, required, self.lacking)
        room = room - torch.zeros_like(room).index_add_(0, self.owner, later)
        full = count_by(self.blank, fires, self.lacking) >= self.room_in_blank
        order = arrival.masked_fill(full[self.blank] & ~fires, torch.inf).masked_fill(required, -1)
        fires = clamp_fired(fires, order, self.sequence, torch.minimum(low, room), room)
        return clamp_fired(fires, order, self.blank, torch.zeros_like(due), self.room_in_blank)


def limits_of(draft: Draft, shortest: int | Tensor, longest: int | Tensor) -> Limits:
    """The limits of a draft whose texts are to have `shortest` to `longest` tokens, or [S] each."""
    x_t, sequence = draft.x_t, draft.x_t.sequence
    owner = lacking = room_in_blank = draft.least  # nobody asks where blanks have no limits
    blank = draft.blank
    if draft.bounded:
        last = len(draft.least) - 1  # which is nobody's
        opened = torch.where(x_t.open, blank, last)
        owner = torch.zeros_like(draft.least)
        owner = owner.scatter_(0, opened, torch.where(x_t.open, sequence, 0))
        free = draft.free & (blank >= 0)
        inserted = count_by(torch.where(free, blank, last), free, owner)
        lacking, room_in_blank = (draft.least - inserted).clamp(min=0), draft.most - inserted
        blank = blank.clamp(min=0)
    lengths = x_t.lengths
    return Limits(
        sequence=sequence,
        open=x_t.open,
        shortfall=(shortest - lengths).clamp(min=0),
        room=longest - lengths,
        blank=blank,
        owner=owner,
        lacking=lacking,
        room_in_blank=room_in_blank,
        bounded=draft.bounded,
    )


def check_limits(draft: Draft, shortest: int, longest: int) -> None:
    """Refuse given text and limits that cannot go together.

    Raises:
        ValueError: naming the figures.
    """
    limits, given = limits_of(replace(draft, bounded=True), shortest, longest), draft.x_t.lengths
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
    return rate * (wanted / total).masked_fill_(total <= 0, 0)[group]


def earliest(
    arrival: Tensor, group: Tensor, count: Tensor, favoured: Tensor | None = None
) -> Tensor:
    """A mask [T] of the `count` [G] first arrivals of each group; infinite ones never come.

    If arrival times are exponential with the gaps' rates, this draws gaps without replacement, in
    proportion to their rates.

    Args:
        arrival: [T].
        group: [T] which group each belongs to.
        count: [G].
        favoured: [T] those that come before all others of their group, whenever they arrive.
    """
    by_time = arrival.argsort(stable=True)
    key = group if favoured is None else 2 * group + ~favoured
    key = key.to(torch.int16) if len(count) < 2**14 else key  # small numbers are sorted sooner
    order = by_time[key[by_time].argsort(stable=True)]
    number = torch.arange(len(order), device=order.device)
    rank = torch.empty_like(order).scatter_(0, order, number)
    size = count_by(group, torch.ones_like(group), torch.zeros_like(count, dtype=torch.int64))
    rank -= (size.cumsum(0) - size)[group]
    return (rank < count[group]) & arrival.isfinite()


def first(arrival: Tensor, soonest: Tensor, group: Tensor, wanted: Tensor) -> Tensor:
    """As `earliest`, where one is wanted [G] or none.

    `soonest` [G] is when the first of each group arrives.
    """
    number = torch.arange(len(arrival), device=arrival.device)
    late = arrival > soonest[group]
    # Of those that come at the same time, the one that stands first.
    row = torch.full_like(wanted, len(arrival), dtype=torch.int64)
    row = row.scatter_reduce_(0, group, number.masked_fill(late, len(arrival)), "amin")
    return (row[group] == number) & (wanted & (soonest < torch.inf))[group]


def largest(values: Tensor, offsets: Tensor) -> Tensor:
    """Of the rows of each sequence [S]; minus infinity where there are none."""
    return torch.segment_reduce(values, "max", offsets=offsets, initial=-torch.inf, unsafe=True)


def clamp_fired(fires: Tensor, arrival: Tensor, group: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The mask `fires` [T] with at least `low` and at most `high` [G] gaps in each group.

    The last to arrive are dropped, the next to arrive are added.
    """
    wanted = torch.minimum(torch.maximum(count_by(group, fires, low), low), high)
    return earliest(arrival, group, wanted, favoured=fires)


def count_by(group: Tensor, mask: Tensor, like: Tensor) -> Tensor:
    """How many of a mask [T] are in each group [G]."""
    return torch.zeros_like(like).index_add_(0, group, mask.to(like.dtype))
