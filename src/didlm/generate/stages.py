"""What a pass of generation does: four stages, each a function from one `State` to the next.

On a GPU they are recorded and repeated (see `desk`): then their shapes must not depend on what is
in the tensors, and they must not ask the device anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from didlm.generate import uniforms
from didlm.generate.desk import Desk
from didlm.generate.draft import Edit, insert, neighbours
from didlm.generate.limits import Limits, count_by, largest, limits_of, within
from didlm.generate.samplers import CAUTION, PATIENCE, Moment, Sampler
from didlm.generate.scorer import Answer, Recall, Scorer
from didlm.generate.state import State
from didlm.generate.tokens import TokenControls, draw_tokens
from didlm.packed import Packed

NOTHING, CHANGES, ALL = range(3)  # what the model is to read

LOGITS_AT_A_TIME = 2**22  # no more than this are ever held,
LOGITS_ON_GPU = 2**25  # nor than this on a GPU

Number = TypeVar("Number", int, Tensor)


@dataclass(frozen=True)
class Plan:
    """How a batch is to be written."""

    sampler: Sampler
    grid: Sequence[float]  # times from 1 to 0; where they rise, tokens are deleted
    edit: Edit = insert  # what is done with the tokens
    caution: float = CAUTION  # of adaptive steps
    tokens: TokenControls = field(default_factory=TokenControls)
    position_temperature: float = 1.0
    rate_scale: float = 1.0  # of all rates but those of the last step
    repeats: bool = True  # whether a token may come right beside its equal
    padding: int | None = None  # a token that may in any case
    length: int | None = None  # to which rates are normalised; a model of fixed length needs it
    shortest: int = 0  # no text ends with fewer tokens, given ones included
    longest: int = 1024  # and none has more
    forbidden: Tensor | None = None  # [V] tokens that are never inserted
    without_space: Tensor | None = None  # [V] tokens that do not begin with a space
    end: int | None = None  # a token after which nothing comes


class Report(NamedTuple, Generic[Number]):
    """What the host must know of a pass, in one answer of the device."""

    rows: Number  # of all texts
    fires: Number  # gaps that get a token
    broken: Number  # whether limits are
    bad: Number  # whether the model's answers were no numbers
    ending: Number  # texts that may be at the end of the grid after this pass
    idle_rows: Number  # rows of those that were there before


class Stages:
    """The stages of one plan for one model: read, choose, name, write; and obey, where limits bind.

    What they are told beside the state is what a recording depends on.
    """

    desk: Desk  # where the batch lies

    def __init__(self, scorer: Scorer, plan: Plan, device: torch.device) -> None:
        self.scorer, self.plan, self.device = scorer, plan, device
        self.rises = any(later > time for time, later in pairwise(plan.grid))

    def read(self, state: State, reads: int) -> State:
        """Ask the model about the texts that are due; the others keep their answers.

        `reads` is NOTHING, CHANGES or ALL; a model that remembers nothing reads all in any case.
        """
        idle = state.place == state.end
        state = replace(state, idle=idle, passes=state.passes + ~idle)
        if self.rises:
            state = self._delete_where_time_rises(state)
        if reads == NOTHING:
            return state
        x_t = state.draft.x_t
        due = self._limits(state).receptive & ~idle
        if not self.scorer.timed:
            due = due & state.stale
        if not self.desk.records and not bool(due.any()):
            return state
        rows, answer = self._ask(state, due, reads)
        stop = (
            state.stopped if answer.stop is None else torch.where(due, answer.stop, state.stopped)
        )
        return replace(
            state,
            draft=state.draft.answered(rows, answer),
            calls=state.calls + due,
            stale=state.stale & ~due,
            stopped=stop,
            rows_read=state.rows_read + (x_t.offsets.diff() * due).sum(),
            bad=state.bad | ~(answer.log_rate < torch.inf).all(),
        )

    def _ask(self, state: State, due: Tensor, reads: int) -> tuple[Tensor | None, Answer]:
        """The rows that are asked about, None for all, and the answer."""
        x_t, rows = state.draft.x_t, due[state.draft.x_t.sequence]
        if self.desk.records:  # it is quicker to ask about all than to find out who is due
            # A model that remembers writes at the ends of texts, one token a pass.
            new = torch.arange(x_t.rows, device=due.device) if reads == ALL else x_t.offsets[1:] - 1
            answer = self.scorer.read(x_t, state.time, Recall(state.draft.memory, new))
            # With time, who is not due gets no token any more, whatever the answer.
            return None if self.scorer.timed else rows, answer
        if bool(due.all()):
            return None, self.scorer.read(x_t, state.time, state.draft.recall())
        answer = self.scorer.read(x_t.select(due), state.time[due], state.draft.recall(rows))
        if answer.stop is not None:
            stop = torch.zeros_like(due).masked_scatter_(due, answer.stop)
            answer = replace(answer, stop=stop)
        return rows, answer

    def choose(self, state: State, _: int) -> State:
        """Let the sampler say which gaps fire, and what time it is afterwards."""
        limits = self._limits(state)
        fires, until = self.plan.sampler(self._moment(state, limits))
        broken = limits.broken(fires, (until <= 0) & ~state.idle)
        return self._chosen(replace(state, until=until), fires, broken)

    def obey(self, state: State, _: int) -> State:
        """Let other gaps fire where limits would be broken; where lengths are free that is rare."""
        limits, closing = self._limits(state), (state.until <= 0) & ~state.idle
        fires = limits.obey(state.fires, self._moment(state, limits).arrival, closing)
        return self._chosen(state, fires, torch.zeros_like(state.bad))

    def _moment(self, state: State, limits: Limits) -> Moment:
        """What the sampler decides upon."""
        x_t = state.draft.x_t
        low, high, missing = self._expected(x_t, limits)
        complete = state.idle | (state.stopped & ~limits.unmet)
        return Moment(
            rate=limits.bend(self._rates(state, complete), low, high, self._patient(state)),
            uniform=_uniforms(state, uniforms.FIRE),
            sequence=limits.sequence,
            offsets=x_t.offsets,
            time=state.time,
            target=_target(state),
            latest=_latest(state),
            missing=missing,
            dispersion=self.scorer.dispersion(x_t),
            flips=lambda count, chance: self._flips(state, count, chance),
            caution=self.plan.caution,
        )

    def _patient(self, state: State) -> Tensor:
        """Whether a text [S] has time left in which the model will expect less to be missing."""
        return _target(state) > 0 if self.scorer.timed else torch.zeros_like(state.stale)

    def _chosen(self, state: State, fires: Tensor, broken: Tensor) -> State:
        number, end = torch.arange(len(fires), device=fires.device), len(fires)
        place = torch.where(fires, fires.cumsum(0) - 1, end)
        # The last row takes the places that are left; where there is room, it is no text's.
        rows = number.new_full((end + 1,), end - 1).scatter_(0, place, number)[:-1]
        x_t, present = state.draft.x_t, state.number >= 0
        report = Report(
            rows=self.desk.end(x_t),
            fires=fires.sum(),
            broken=broken.long(),
            bad=state.bad.long(),
            ending=((state.until <= state.grid[:, -1]) & present).sum(),
            idle_rows=(x_t.offsets.diff() * (state.idle & present)).sum(),
        )
        return replace(
            state,
            fires=fires,
            rows=rows,
            draws=_uniforms(state, uniforms.TOKEN, rows),
            drawn=number,
            report=torch.stack(report),
        )

    def name(self, state: State, gaps: int) -> State:
        """A token for each gap that fires; the vocabulary head runs on these alone."""
        rows, draws = state.rows[:gaps], state.draws[:gaps]
        size = self.gaps_at_a_time
        drawn, highest = [], []
        for some, uniform in zip(rows.split(size), draws.split(size), strict=True):
            logits = self.scorer.logits(state.draft.features[some])
            highest.append(logits.amax(-1))
            logits.index_fill_(-1, state.forbidden, -torch.inf)
            if self.plan.end is not None:
                short = state.draft.x_t.lengths < (state.own or self.plan).shortest
                logits[:, self.plan.end].masked_fill_(short[_texts(state, some)], -torch.inf)
            if state.without_space is not None:
                spaced = state.draft.spaced[some, None]
                logits.masked_fill_(spaced & state.without_space, -torch.inf)
            if not self.plan.repeats:
                self._ban_neighbours(state, some, logits)
            drawn.append(draw_tokens(logits, uniform, self._token_controls(state, some)))
        # What is drawn from no numbers must not lead anywhere until that is noticed.
        tokens = torch.cat(drawn).clamp(max=self.scorer.outputs - 1)
        fires = torch.arange(gaps, device=rows.device) < state.report[1]
        return replace(
            state,
            drawn=torch.cat([tokens, state.drawn[gaps:]]),
            bad=state.bad | (~(torch.cat(highest) < torch.inf) & fires).any(),
        )

    def write(self, state: State, rows: int) -> State:
        """Put the tokens where they belong, if there are any, and move on in time."""
        if rows:
            fires, sequence = state.fires, state.draft.x_t.sequence
            tokens = state.drawn[(fires.cumsum(0) - 1).clamp(min=0)]
            draft = self.plan.edit(state.draft, fires, tokens, state.passes[sequence], rows)
            stale = state.stale | (count_by(sequence, fires, state.place) > 0)
            state = self.desk.tidy(replace(state, draft=draft, stale=stale))
            if self.plan.end is not None:
                state = replace(state, draft=state.draft.ended(self.plan.end))
        waits = state.idle | ((state.until <= 0) & self._lacks_something(state))
        time = torch.where(waits, state.time, state.until)
        place = torch.where(state.idle, state.place, _place(state, time, self.rises))
        return replace(state, time=time, place=place)

    def _delete_where_time_rises(self, state: State) -> State:
        """Carry texts forward to a later time, where fewer tokens survive (Eq. corrector)."""
        draft, target = state.draft, _target(state)
        rises = (target > state.time) & ~state.idle
        chance = torch.where(rises, (target - state.time) / (1 - state.time), 0)
        draws = _uniforms(state, uniforms.DELETE)
        # The first token after a `spaced` gap holds a space that is given.
        held = torch.nn.functional.pad(draft.spaced[:-1], (1, 0))
        gone = (draws < chance[draft.x_t.sequence]) & draft.free & ~held
        stale = state.stale | (count_by(draft.x_t.sequence, gone, state.place) > 0)
        rows = draft.x_t.rows if self.desk.records else draft.x_t.rows - int(gone.sum())
        state = replace(
            state,
            draft=draft.without(gone, rows),
            stale=stale,
            time=torch.where(rises, target, state.time),
            place=state.place + rises,
        )
        return self.desk.tidy(state)

    # What the stages need to know.

    def _limits(self, state: State) -> Limits:
        own = state.own or self.plan
        return limits_of(state.draft, own.shortest, own.longest)

    def _token_controls(self, state: State, rows: Tensor) -> TokenControls:
        """Those of the plan, or of the texts that the rows belong to."""
        if state.own is None:
            return self.plan.tokens
        text = _texts(state, rows)
        return replace(
            self.plan.tokens,
            temperature=state.own.temperature[text],
            top_p=state.own.top_p[text],
        )

    def _ban_neighbours(self, state: State, rows: Tensor, logits: Tensor) -> None:
        """No token comes right beside its equal, unless nothing else may come."""
        tokens, there = neighbours(self.plan.edit, state.draft.x_t, rows)
        if self.plan.padding is not None:
            there = there & (tokens != self.plan.padding)
        # Where one is not there, the other takes its place: no index has two meanings.
        either = there | there.flip(-1)
        index = torch.where(there, tokens, tokens.flip(-1)).masked_fill(~either, 0)
        before = logits.gather(-1, index)
        logits.scatter_(-1, index, before.masked_fill(either, -torch.inf))
        nothing = logits.amax(-1, keepdim=True) == -torch.inf
        logits.scatter_(-1, index, before.masked_fill(either & ~nothing, -torch.inf))

    def _rates(self, state: State, complete: Tensor) -> Tensor:
        """How many tokens the model expects in each gap [T]: none in closed or complete ones."""
        sequence = state.draft.x_t.sequence
        closed = ~state.draft.x_t.open | complete[sequence]
        log_rate = state.draft.log_rate.double().masked_fill(closed, -torch.inf)
        most = largest(log_rate, state.draft.x_t.offsets)
        most = most.masked_fill(most == -torch.inf, 0)
        relative = log_rate - most[sequence]
        rate = relative.exp()
        if self.plan.position_temperature != 1:  # other places, at the same pace
            total = torch.zeros_like(state.time).index_add_(0, sequence, rate)
            # No open gap is left without any rate: a blank that must be filled may need it.
            bent = (relative / self.plan.position_temperature).clamp(min=-600).exp()
            rate = torch.where(closed, 0, bent)
            rate = within(rate, sequence, total, total)
        if self.scorer.normalised:
            return rate
        scale = most.exp()
        if self.plan.rate_scale != 1:  # what is surely missing comes all the same, in the end
            scale = torch.where(_target(state) > 0, self.plan.rate_scale * scale, scale)
        return rate * scale[sequence]

    def _expected(self, x_t: Packed, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
        """Least and most tokens that may be expected to be missing [S], and how many are."""
        if self.plan.length is None:
            unknown = torch.full_like(limits.room, torch.inf, dtype=torch.float64)
            return torch.minimum(limits.shortfall, limits.room), limits.room, unknown
        missing = (self.plan.length - x_t.lengths).clamp(min=0)  # Eq. normalisation
        return missing, missing, missing.double()

    def _flips(self, state: State, count: Tensor, chance: Tensor) -> Tensor:
        """How many of `count` missing tokens come, each with the same chance [S]."""
        each = torch.arange(self.plan.length or 0, device=count.device)
        draws = uniforms.uniforms(state.key[:, None], state.passes[:, None], uniforms.COUNT, each)
        return ((draws < chance[:, None]) & (each < count[:, None])).sum(-1)

    def _lacks_something(self, state: State) -> Tensor:
        """Whether a text [S] cannot end yet: something must still come, and something does."""
        if state.own is None and not self.plan.shortest and not state.draft.bounded:
            return torch.zeros_like(state.stale)
        return self._limits(state).unmet & state.stale

    @property
    def gaps_at_a_time(self) -> int:
        """How many gaps get their tokens together, so that there are not too many logits."""
        on_gpu = self.device.type == "cuda"
        return max(1, (LOGITS_ON_GPU if on_gpu else LOGITS_AT_A_TIME) // self.scorer.outputs)


def _target(state: State, ahead: int = 1) -> Tensor:
    """The next time on the grid [S], or one further ahead."""
    return state.grid.gather(1, (state.place + ahead).clamp(max=state.end)[:, None]).squeeze(1)


def _latest(state: State) -> Tensor:
    """The time until which a text waits for a token [S]; the last times are waited for singly."""
    target, later = _target(state), _target(state, PATIENCE)
    return torch.where(later > 0, torch.minimum(target, later), target)


def _place(state: State, time: Tensor, rises: bool) -> Tensor:
    """The last place on the grid [S] whose time has come; where the grid rises, tokens go first."""
    place = torch.arange(state.grid.shape[1], device=time.device)
    behind, come = place <= state.place[:, None], state.grid >= time[:, None]
    if not rises:
        return (behind | come).sum(1) - 1
    up = state.grid.diff(dim=1, prepend=state.grid[:, :1]) > 0
    return (behind | (come & ~up)).long().cumprod(1).sum(1) - 1


def _texts(state: State, rows: Tensor) -> Tensor:
    """Which texts rows belong to: searched for where only a part of a desk is in use."""
    text = torch.searchsorted(state.draft.x_t.offsets, rows, right=True) - 1
    return text.clamp(max=len(state.number) - 1)


def _uniforms(state: State, purpose: int, rows: Tensor | None = None) -> Tensor:
    """A draw for each of the rows, or for all, told apart by their places in their texts."""
    sequence, position = state.draft.x_t.sequence, state.draft.position
    if rows is not None:
        sequence, position = sequence[rows], position[rows]
    return uniforms.uniforms(state.key[sequence], state.passes[sequence], purpose, position)
