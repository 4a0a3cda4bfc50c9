"""The one loop of generation: read, see which gaps fire, draw their tokens, insert, and again.

Every sequence has a time, a place on the grid and a count of passes of its own, so texts of
different progress share a batch. Where the grid rises, tokens are deleted (see `corrector`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from didlm.generate import uniforms
from didlm.generate.draft import Draft, Edit, insert
from didlm.generate.limits import check_limits, limits_of, within
from didlm.generate.results import Frame
from didlm.generate.samplers import CAUTION, Moment, Sampler
from didlm.generate.scorer import Scorer
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.tokens import TokenControls, draw_tokens

LOGITS_AT_A_TIME = 2**22  # no more than this are ever held


@dataclass(frozen=True)
class Plan:
    """How a batch is to be written."""

    sampler: Sampler
    grid: Sequence[float]  # times from 1 to 0; where they rise, tokens are deleted
    edit: Edit = insert  # what is done with the tokens
    caution: float = CAUTION  # of adaptive steps
    tokens: TokenControls = field(default_factory=TokenControls)
    position_temperature: float = 1.0
    length: int | None = None  # to which rates are normalised; a model of fixed length needs it
    shortest: int = 0  # no text ends with fewer tokens, given ones included
    longest: int = 1024  # and none has more
    forbidden: Tensor | None = None  # [V] tokens that are never inserted
    without_space: Tensor | None = None  # [V] tokens that do not begin with a space
    end: int | None = None  # a token after which nothing comes


@dataclass(frozen=True, eq=False)
class Finished:
    """A text that is done."""

    number: int
    tokens: np.ndarray
    born: np.ndarray
    passes: int
    calls: int  # of the model


class Writer:
    """A batch of texts being written; each `step` is at most one call of the model."""

    def __init__(self, scorer: Scorer, draft: Draft, plan: Plan, seed: int, first: int = 0) -> None:
        """Begin.

        Args:
            scorer: the model.
            draft: what the texts start from, on the model's device.
            plan: how they are written.
            seed: of all draws.
            first: the number of the first sample: draws depend on numbers, not on batches.

        Raises:
            ValueError: if what is given and the limits do not go together.
        """
        check_limits(draft, plan.shortest, plan.longest)
        self.scorer, self.draft, self.plan = scorer, draft, plan
        device = draft.blank.device
        self.grid = torch.tensor(plan.grid, dtype=torch.float64, device=device)
        forbidden = torch.arange(scorer.outputs, device=device) >= scorer.vocabulary
        if plan.forbidden is not None:
            forbidden[: scorer.vocabulary] |= plan.forbidden
        self.forbidden = forbidden.nonzero().squeeze(-1)
        self.without_space: Tensor | None = None
        if plan.without_space is not None and bool(draft.spaced.any()):
            self.without_space = torch.ones_like(forbidden)
            self.without_space[: scorer.vocabulary] = plan.without_space
            if bool((forbidden | self.without_space).all()):
                raise ValueError(
                    "the text before a blank ends in a space, but every token that begins with one "
                    "is banned"
                )
        # Of each sequence:
        self.number = torch.arange(first, first + len(draft.x_t), device=device)
        self.key = uniforms.sample_keys(seed, self.number)
        self.time = self.grid[:1].repeat(len(draft.x_t))
        self.place = torch.zeros_like(self.number)  # on the grid
        self.passes = torch.zeros_like(self.number)
        self.calls = torch.zeros_like(self.number)
        self.stale = torch.ones_like(self.number, dtype=torch.bool)  # changed since it was read
        self.stopped = torch.zeros_like(self.stale)  # complete, says the model
        self.rows_read = 0  # by the model, in all its calls
        self.in_network = Stopwatch(device)  # the time that the model takes to answer
        self.finished: list[Finished] = []

    @torch.no_grad()
    def step(self) -> None:
        """One pass of all texts."""
        self.passes += 1
        self._delete_where_time_rises()
        target = self.grid[self.place + 1]
        limits = limits_of(self.draft, self.plan.shortest, self.plan.longest)
        self._read(limits.receptive & (self.stale | self.scorer.timed))
        low, high, missing = self._expected(limits.shortfall, limits.room)
        moment = Moment(
            rate=limits.bend(self._rates(self.stopped & ~limits.unmet), low, high),
            uniform=self._uniforms(uniforms.FIRE, self._all_rows()),
            sequence=limits.sequence,
            time=self.time,
            target=target,
            missing=missing,
            dispersion=self.scorer.dispersion(self.draft.x_t),
            flips=self._flips,
            caution=self.plan.caution,
        )
        fires, time = self.plan.sampler(moment)
        rows = limits.obey(fires, moment.arrival, time <= 0).nonzero().squeeze(-1)
        self._insert(rows, self._draw(rows))
        self.time = torch.where((time <= 0) & self._lacks_something(), self.time, time)
        self.place += self.time <= target

    def retire(self) -> None:
        """Take those texts out of the batch that have come to the end of the grid."""
        done = self.place == len(self.grid) - 1
        if bool(done.any()):
            texts = self.draft.select(done)
            lengths = texts.x_t.offsets.diff().tolist()
            columns = zip(
                self.number[done].tolist(),
                (rows[1:].numpy() for rows in texts.x_t.tokens.cpu().split(lengths)),
                (rows[1:].numpy() for rows in texts.born.cpu().split(lengths)),
                self.passes[done].tolist(),
                self.calls[done].tolist(),
                strict=True,
            )
            self.finished += [Finished(*column) for column in columns]
            self.draft = self.draft.select(~done)
            for name in ("number", "key", "time", "place", "passes", "calls", "stale", "stopped"):
                setattr(self, name, getattr(self, name)[~done])

    def frames(self) -> dict[int, Frame]:
        """The texts of the batch as they are now, by sample number."""
        lengths = self.draft.x_t.offsets.diff().tolist()
        columns = zip(
            self.passes.tolist(),
            self.time.tolist(),
            (rows[1:].numpy() for rows in self.draft.x_t.tokens.cpu().split(lengths)),
            (rows[1:].numpy() for rows in self.draft.born.cpu().split(lengths)),
            self.number.tolist(),
            strict=True,
        )
        frames = [Frame(*column) for column in columns]
        return {frame.number: frame for frame in frames}

    def _read(self, due: Tensor) -> None:
        """Ask the model about the texts that are due [S]; the others keep their answers."""
        self.calls += due
        self.stale &= ~due
        x_t, all_due = self.draft.x_t, bool(due.all())
        if all_due or bool(due.any()):
            part, rows = x_t if all_due else x_t.select(due), due[x_t.sequence]
            recall, deleted = self.draft.recall(rows), self.time[due]
            with self.in_network.running():
                answer = self.scorer.read(part, deleted, recall)
            _check_numbers(answer.log_rate)
            self.draft = self.draft.answered(rows, answer)
            self.rows_read += part.rows
            if answer.stop is not None:
                self.stopped[due] = answer.stop

    def _rates(self, complete: Tensor) -> Tensor:
        """How many tokens the model expects in each gap [T]: none in closed or complete ones."""
        sequence = self.draft.x_t.sequence
        closed = ~self.draft.x_t.open | complete[sequence]
        log_rate = self.draft.log_rate.double().masked_fill(closed, -torch.inf)
        largest = torch.full_like(self.time, -torch.inf)
        largest = largest.scatter_reduce(0, sequence, log_rate, "amax")
        largest = largest.masked_fill(~largest.isfinite(), 0)
        relative = log_rate - largest[sequence]
        rate = relative.exp()
        if self.plan.position_temperature != 1:  # other places, at the same pace
            total = torch.zeros_like(self.time).index_add_(0, sequence, rate)
            # No open gap is left without any rate: a blank that must be filled may need it.
            bent = (relative / self.plan.position_temperature).clamp(min=-600).exp()
            rate = torch.where(closed, 0, bent)
            rate = within(rate, sequence, total, total)
        return rate if self.scorer.normalised else rate * largest.exp()[sequence]

    def _expected(self, shortfall: Tensor, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Least and most tokens that may be expected to be missing [S], and how many are."""
        if self.plan.length is None:
            return torch.minimum(shortfall, room), room, torch.full_like(self.time, torch.inf)
        missing = (self.plan.length - self.draft.x_t.lengths).clamp(min=0)  # Eq. normalisation
        return missing, missing, missing.double()

    def _flips(self, count: Tensor, chance: Tensor) -> Tensor:
        """How many of `count` missing tokens come, each with the same chance [S]."""
        each = torch.arange(self.plan.length or 0, device=count.device)
        draws = uniforms.uniforms(self.key[:, None], self.passes[:, None], uniforms.COUNT, each)
        return ((draws < chance[:, None]) & (each < count[:, None])).sum(-1)

    def _lacks_something(self) -> Tensor:
        """Whether a text [S] cannot end yet: something must still come, and something does."""
        if not self.plan.shortest and not self.draft.bounded:
            return torch.zeros_like(self.stale)
        return limits_of(self.draft, self.plan.shortest, self.plan.longest).unmet & self.stale

    def _all_rows(self) -> Tensor:
        return torch.arange(self.draft.x_t.rows, device=self.key.device)

    def _uniforms(self, purpose: int, rows: Tensor) -> Tensor:
        """A draw for each of the rows, told apart by their places in their texts."""
        sequence, position = self.draft.x_t.sequence[rows], self.draft.position[rows]
        return uniforms.uniforms(self.key[sequence], self.passes[sequence], purpose, position)

    def _draw(self, rows: Tensor) -> Tensor:
        """A token for each gap that fires; the vocabulary head runs on these alone."""
        if not rows.numel():
            return rows
        draws = self._uniforms(uniforms.TOKEN, rows)
        size = max(1, LOGITS_AT_A_TIME // self.scorer.outputs)
        drawn = []
        for some, uniform in zip(rows.split(size), draws.split(size), strict=True):
            features = self.draft.features[some]
            with self.in_network.running():
                logits = self.scorer.logits(features)
            _check_numbers(logits.amax(-1))
            logits.index_fill_(-1, self.forbidden, -torch.inf)
            if self.plan.end is not None:
                short = self.draft.x_t.lengths < self.plan.shortest
                logits[short[self.draft.x_t.sequence[some]], self.plan.end] = -torch.inf
            if self.without_space is not None:
                spaced = self.draft.spaced[some, None]
                logits.masked_fill_(spaced & self.without_space, -torch.inf)
            drawn.append(draw_tokens(logits, uniform, self.plan.tokens))
        return torch.cat(drawn)

    def _insert(self, rows: Tensor, tokens: Tensor) -> None:
        sequence = self.draft.x_t.sequence[rows]
        self.stale.index_fill_(0, sequence, True)
        self.draft = self.plan.edit(self.draft, rows, tokens, self.passes[sequence])
        if self.plan.end is not None:
            self.draft = self.draft.ended(self.plan.end)

    def _delete_where_time_rises(self) -> None:
        """Carry texts forward to a later time, where fewer tokens survive (Eq. corrector)."""
        target = self.grid[self.place + 1]
        rises = target > self.time
        if bool(rises.any()):
            sequence = self.draft.x_t.sequence
            chance = torch.where(rises, (target - self.time) / (1 - self.time), 0)
            draws = self._uniforms(uniforms.DELETE, self._all_rows())
            # The first token after a `spaced` gap holds a space that is given.
            held = torch.nn.functional.pad(self.draft.spaced[:-1], (1, 0))
            gone = (draws < chance[sequence]) & self.draft.free & ~held
            self.stale.index_fill_(0, sequence[gone], True)
            self.draft = self.draft.delete(gone)
            self.time = torch.where(rises, target, self.time)
            self.place += rises


def _check_numbers(values: Tensor) -> None:
    """Refuse what is not a number, or infinitely large."""
    if not bool((values < torch.inf).all()):
        raise ValueError(
            "the model's answers are not numbers: its weights are damaged, or the dtype is too "
            "narrow for it"
        )


def write(writer: Writer) -> Iterator[None]:
    """Step until all texts are finished; yields after every pass, before any text is retired."""
    while len(writer.number):
        writer.step()
        yield
        writer.retire()
