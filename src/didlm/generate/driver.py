"""The one loop of generation: read, see which gaps fire, draw their tokens, insert, and again.

Every sequence has a time, a place on the grid and a count of passes of its own, so texts of
different progress share a batch. Where the grid rises, tokens are deleted (see `corrector`).

A pass has four stages, each a function from one `State` to the next. Between the second and the
third, which know how many gaps fire, is the only question that is asked of the device; on a GPU the
stages are recorded and repeated (see `desk`), so they must not ask anything themselves then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from didlm.generate import uniforms
from didlm.generate.desk import Desk, PlainDesk, roomy_desk
from didlm.generate.draft import Draft, Edit, insert
from didlm.generate.limits import Limits, check_limits, count_by, largest, limits_of, within
from didlm.generate.results import Frame
from didlm.generate.samplers import CAUTION, Moment, Sampler
from didlm.generate.scorer import Answer, NetworkScorer, Scorer
from didlm.generate.state import State
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.template import NO_LIMIT
from didlm.generate.tokens import TokenControls, draw_tokens
from didlm.packed import Packed

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


class Report(NamedTuple, Generic[Number]):
    """What the host must know of a pass, in one answer of the device."""

    rows: Number  # of all texts
    fires: Number  # gaps that get a token
    broken: Number  # whether limits are
    bad: Number  # whether the model's answers were no numbers
    ending: Number  # texts that may be at the end of the grid after this pass
    idle_rows: Number  # rows of those that were there before


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
        self.scorer, self.plan = scorer, plan
        device = draft.blank.device
        self.in_network = Stopwatch(device)  # the time that the model takes to read
        self.in_head = Stopwatch(device)  # and to name tokens
        self.finished: list[Finished] = []
        self.unfinished = len(draft.x_t)
        self._rises = any(later > time for time, later in pairwise(plan.grid))
        self._reads = True  # whether there is anything new to read
        self._seen = Report(0, 0, 0, 0, 0, 0)  # in the last pass
        self.desk = self._lay_out(_begun(scorer, draft, plan, seed, first))

    @property
    def draft(self) -> Draft:
        """The texts as they are now."""
        return self.desk.state.draft

    @property
    def passes(self) -> Tensor:
        """How many passes each text has taken part in [S]."""
        return self.desk.state.passes

    @property
    def rows_read(self) -> int:
        """By the model, in all its calls."""
        return int(self.desk.state.rows_read)

    @torch.no_grad()
    def step(self) -> None:
        """One pass of all texts."""
        with self.in_network.running():
            self.desk.do(self._read, int(self._reads))
        self.desk.do(self._choose)
        seen = Report(*self.desk.report())
        if seen.broken and not seen.bad:
            self.desk.do(self._obey)
            seen = Report(*self.desk.report())
        _check_numbers(seen.bad)
        rows = self.desk.make_room(seen.rows + seen.fires)
        if seen.fires:
            with self.in_head.running():
                self.desk.do(self._name, self.desk.rounded(seen.fires), everywhere=True)
        self.desk.do(self._write, rows if seen.fires else 0)
        self._reads = seen.fires > 0 or self.scorer.timed or self._rises
        self._seen = seen

    def retire(self) -> None:
        """Take those texts out of the batch that have come to the end of the grid."""
        seen = self._seen
        # Where the others stay in their places it must be worth it.
        stays = self.desk.records and 8 * seen.idle_rows < seen.rows
        if not seen.ending or (stays and seen.ending < self.unfinished):
            return
        state, done = self.desk.state, self.desk.state.done
        count, bad = torch.stack([done.sum(), state.bad.long()]).tolist()
        _check_numbers(bad)
        if count and not (stays and count < self.unfinished):
            texts = state.draft.select(done)
            lengths = texts.x_t.offsets.diff().tolist()
            columns = zip(
                state.number[done].tolist(),
                (rows[1:].numpy() for rows in texts.x_t.tokens.cpu().split(lengths)),
                (rows[1:].numpy() for rows in texts.born.cpu().split(lengths)),
                state.passes[done].tolist(),
                state.calls[done].tolist(),
                strict=True,
            )
            self.finished += [Finished(*column) for column in columns]
            self.unfinished -= count
            self.desk.clear(done)

    def frames(self) -> dict[int, Frame]:
        """The texts of the batch as they are now, by sample number."""
        state = self.desk.state
        lengths = state.draft.x_t.offsets.diff().tolist()
        # Copies: the next pass may write over these.
        tokens, born = (x.to("cpu", copy=True) for x in (state.draft.x_t.tokens, state.draft.born))
        columns = zip(
            state.passes.tolist(),
            state.time.tolist(),
            (rows[1:].numpy() for rows in tokens.split(lengths)),
            (rows[1:].numpy() for rows in born.split(lengths)),
            state.number.tolist(),
            strict=True,
        )
        present = ((state.number >= 0) & ~state.idle).tolist()
        frames = [
            Frame(*column) for column, is_there in zip(columns, present, strict=True) if is_there
        ]
        return {frame.number: frame for frame in frames}

    def _lay_out(self, state: State) -> Desk:
        scorer, plan, texts = self.scorer, self.plan, state.draft.x_t
        if not isinstance(scorer, NetworkScorer) or not scorer.recordable:
            return PlainDesk(state)
        state = replace(state, draft=state.draft.answered(None, scorer.nothing(texts.rows)))
        # Where there is no limit there are marks, and no text grows.
        longest = plan.longest if plan.longest < NO_LIMIT else int(texts.lengths.max())
        same = replace(plan, grid=(), forbidden=None, without_space=None)
        stages = same, self._gaps_at_a_time, self._rises
        return roomy_desk(state, len(texts) * (longest + 1), scorer.network, stages)

    # The stages. What they are told beside the state is what a recording depends on.

    def _read(self, state: State, reads: int) -> State:
        """Ask the model about the texts that are due; the others keep their answers."""
        idle = state.place == len(state.grid) - 1
        state = replace(state, idle=idle, passes=state.passes + ~idle)
        if self._rises:
            state = self._delete_where_time_rises(state)
        if not reads:
            return state
        x_t = state.draft.x_t
        due = self._limits(state).receptive & ~idle
        if not self.scorer.timed:
            due = due & state.stale
        if not self.desk.records and not bool(due.any()):
            return state
        rows, answer = self._ask(state, due)
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

    def _ask(self, state: State, due: Tensor) -> tuple[Tensor | None, Answer]:
        """The rows that are asked about, None for all, and the answer."""
        x_t, rows = state.draft.x_t, due[state.draft.x_t.sequence]
        if self.desk.records:  # it is quicker to ask about all than to find out who is due
            # With time, who is not due gets no token any more, whatever the answer.
            return None if self.scorer.timed else rows, self.scorer.read(x_t, state.time)
        recall = state.draft.recall(rows)
        if bool(due.all()):
            return None, self.scorer.read(x_t, state.time, recall)
        answer = self.scorer.read(x_t.select(due), state.time[due], recall)
        if answer.stop is not None:
            stop = torch.zeros_like(due).masked_scatter_(due, answer.stop)
            answer = replace(answer, stop=stop)
        return rows, answer

    def _choose(self, state: State, _: int) -> State:
        """Let the sampler say which gaps fire, and what time it is afterwards."""
        x_t, limits = state.draft.x_t, self._limits(state)
        low, high, missing = self._expected(x_t, limits)
        complete = state.idle | (state.stopped & ~limits.unmet)
        moment = Moment(
            rate=limits.bend(self._rates(state, complete), low, high),
            uniform=_uniforms(state, uniforms.FIRE),
            sequence=limits.sequence,
            offsets=x_t.offsets,
            time=state.time,
            target=_target(state),
            missing=missing,
            dispersion=self.scorer.dispersion(x_t),
            flips=lambda count, chance: self._flips(state, count, chance),
            caution=self.plan.caution,
        )
        fires, until = self.plan.sampler(moment)
        broken = limits.broken(fires, (until <= 0) & ~state.idle)
        state = replace(state, until=until, arrival=moment.arrival)
        return self._chosen(state, fires, broken)

    def _obey(self, state: State, _: int) -> State:
        """Let other gaps fire where limits would be broken; where lengths are free that is rare."""
        closing = (state.until <= 0) & ~state.idle
        fires = self._limits(state).obey(state.fires, state.arrival, closing)
        return self._chosen(state, fires, torch.zeros_like(state.bad))

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
            ending=((state.until <= state.grid[-1]) & present).sum(),
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

    def _name(self, state: State, gaps: int) -> State:
        """A token for each gap that fires; the vocabulary head runs on these alone."""
        rows, draws = state.rows[:gaps], state.draws[:gaps]
        size = self._gaps_at_a_time
        drawn, highest = [], []
        for some, uniform in zip(rows.split(size), draws.split(size), strict=True):
            logits = self.scorer.logits(state.draft.features[some])
            highest.append(logits.amax(-1))
            logits.index_fill_(-1, state.forbidden, -torch.inf)
            if self.plan.end is not None:
                x_t = state.draft.x_t
                short = (x_t.lengths < self.plan.shortest)[x_t.sequence[some]]
                logits[:, self.plan.end].masked_fill_(short, -torch.inf)
            if state.without_space is not None:
                spaced = state.draft.spaced[some, None]
                logits.masked_fill_(spaced & state.without_space, -torch.inf)
            drawn.append(draw_tokens(logits, uniform, self.plan.tokens))
        # What is drawn from no numbers must not lead anywhere until that is noticed.
        tokens = torch.cat(drawn).clamp(max=self.scorer.outputs - 1)
        fires = torch.arange(gaps, device=rows.device) < state.report[1]
        return replace(
            state,
            drawn=torch.cat([tokens, state.drawn[gaps:]]),
            bad=state.bad | (~(torch.cat(highest) < torch.inf) & fires).any(),
        )

    def _write(self, state: State, rows: int) -> State:
        """Put the tokens where they belong, if there are any, and move on in time."""
        target = _target(state)
        if rows:
            fires, sequence = state.fires, state.draft.x_t.sequence
            tokens = state.drawn[(fires.cumsum(0) - 1).clamp(min=0)]
            draft = self.plan.edit(state.draft, fires, tokens, state.passes[sequence], rows)
            if self.plan.end is not None:
                draft = draft.ended(self.plan.end)
            stale = state.stale | (count_by(sequence, fires, state.place) > 0)
            state = self.desk.tidy(replace(state, draft=draft, stale=stale))
        waits = state.idle | ((state.until <= 0) & self._lacks_something(state))
        time = torch.where(waits, state.time, state.until)
        return replace(state, time=time, place=state.place + ((time <= target) & ~state.idle))

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
        return limits_of(state.draft, self.plan.shortest, self.plan.longest)

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
        return rate if self.scorer.normalised else rate * most.exp()[sequence]

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
        if not self.plan.shortest and not state.draft.bounded:
            return torch.zeros_like(state.stale)
        return self._limits(state).unmet & state.stale

    @property
    def _gaps_at_a_time(self) -> int:
        on_gpu = self.in_head.device.type == "cuda"
        return max(1, (LOGITS_ON_GPU if on_gpu else LOGITS_AT_A_TIME) // self.scorer.outputs)


def _begun(scorer: Scorer, draft: Draft, plan: Plan, seed: int, first: int) -> State:
    """The state before the first pass."""
    device = draft.blank.device
    forbidden = torch.arange(scorer.outputs, device=device) >= scorer.vocabulary
    if plan.forbidden is not None:
        forbidden[: scorer.vocabulary] |= plan.forbidden
    without_space: Tensor | None = None
    if plan.without_space is not None and bool(draft.spaced.any()):
        without_space = torch.ones_like(forbidden)
        without_space[: scorer.vocabulary] = plan.without_space
        if bool((forbidden | without_space).all()):
            raise ValueError(
                "the text before a blank ends in a space, but every token that begins with one "
                "is banned"
            )
    number = torch.arange(first, first + len(draft.x_t), device=device)
    grid = torch.tensor(plan.grid, dtype=torch.float64, device=device)
    none, no = torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool)
    nowhere = torch.zeros_like(draft.blank)
    return State(
        draft=draft,
        number=number,
        key=uniforms.sample_keys(seed, number),
        time=grid[:1].repeat(len(number)),
        place=none,
        passes=none,
        calls=none,
        stale=~no,
        stopped=no,
        idle=no,
        fires=nowhere.bool(),
        until=none.double(),
        rows=nowhere,
        draws=nowhere.double(),
        arrival=nowhere.double(),
        drawn=nowhere,
        rows_read=none.new_zeros(()),
        bad=no.new_zeros(()),
        report=none.new_zeros(len(Report._fields)),
        grid=grid,
        forbidden=forbidden.nonzero().squeeze(-1),
        without_space=without_space,
    )


def _target(state: State) -> Tensor:
    """The next time on the grid [S]."""
    return state.grid[(state.place + 1).clamp(max=len(state.grid) - 1)]


def _uniforms(state: State, purpose: int, rows: Tensor | None = None) -> Tensor:
    """A draw for each of the rows, or for all, told apart by their places in their texts."""
    sequence, position = state.draft.x_t.sequence, state.draft.position
    if rows is not None:
        sequence, position = sequence[rows], position[rows]
    return uniforms.uniforms(state.key[sequence], state.passes[sequence], purpose, position)


def _check_numbers(bad: int) -> None:
    """Refuse what is not a number, or infinitely large."""
    if bad:
        raise ValueError(
            "the model's answers are not numbers: its weights are damaged, or the dtype is too "
            "narrow for it"
        )


def write(writer: Writer) -> Iterator[None]:
    """Step until all texts are finished; yields after every pass, before any text is retired."""
    while writer.unfinished:
        writer.step()
        yield
        writer.retire()
    writer.desk.give_back()
