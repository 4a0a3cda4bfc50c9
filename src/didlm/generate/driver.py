"""The one loop of generation: read, see which gaps fire, draw their tokens, insert, and again.

Every sequence has a time, a place on the grid and a count of passes of its own, so texts of
different progress share a batch. Where the grid rises, tokens are deleted (see `corrector`).

A pass has four stages (see `stages`). Between the second and the third, which know how many gaps
fire, is the only question that is asked of the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from didlm.generate import uniforms
from didlm.generate.desk import Desk, PlainDesk, roomy_desk
from didlm.generate.draft import Draft
from didlm.generate.limits import check_limits
from didlm.generate.results import Frame
from didlm.generate.scorer import CausalScorer, NetworkScorer, Scorer
from didlm.generate.stages import ALL, CHANGES, NOTHING, Plan, Report, Stages
from didlm.generate.state import State
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.template import NO_LIMIT


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

    patient = True  # where texts stay in their places, those that are done may wait for others

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
        self._prepare(scorer, plan, draft.blank.device)
        self.unfinished = len(draft.x_t)
        self.desk = self._stages.desk = self._lay_out(begun(scorer, draft, plan, seed, first))

    def _prepare(self, scorer: Scorer, plan: Plan, device: torch.device) -> None:
        self.scorer, self.plan = scorer, plan
        self.in_network = Stopwatch(device)  # the time that the model takes to read
        self.in_head = Stopwatch(device)  # and to name tokens
        self.finished: list[Finished] = []
        self._stages = Stages(scorer, plan, device)
        # What is to be read next; a model that remembers nothing reads all of a text in any case.
        self._anew = ALL if isinstance(scorer, CausalScorer) else CHANGES
        self._reads = self._anew
        self._seen = Report(0, 0, 0, 0, 0, 0)  # in the last pass

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
            self.desk.do(self._stages.read, self._reads)
        self.desk.do(self._stages.choose)
        seen = Report(*self.desk.report())
        if seen.broken and not seen.bad:
            self.desk.do(self._stages.obey)
            seen = Report(*self.desk.report())
        _check_numbers(seen.bad)
        rows = self.desk.make_room(seen.rows + seen.fires)
        if seen.fires:
            with self.in_head.running():
                self.desk.do(self._stages.name, self.desk.rounded(seen.fires), everywhere=True)
        self.desk.do(self._stages.write, rows if seen.fires else 0)
        changes = seen.fires > 0 or self.scorer.timed or self._stages.rises
        self._reads = CHANGES if changes else NOTHING
        self._seen = seen

    def retire(self) -> None:
        """Take those texts out of the batch that have come to the end of the grid."""
        seen = self._seen
        # Where the others stay in their places it must be worth it.
        stays = self.patient and self.desk.records and 8 * seen.idle_rows < seen.rows
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
        # Where there is no limit there are marks, and no text grows.
        longest = plan.longest if plan.longest < NO_LIMIT else int(texts.lengths.max())
        draft = state.draft.answered(None, scorer.nothing(texts.rows))
        same = replace(plan, grid=(), forbidden=None, without_space=None)
        stages = same, self._stages.gaps_at_a_time, self._stages.rises
        most = self._places(state) * (longest + 1)
        roomy = self._filled(replace(state, draft=draft))
        desk = roomy_desk(roomy, most, scorer.network, stages, lambda: scorer.fits(most))
        return desk or PlainDesk(state)

    def _places(self, state: State) -> int:
        """How many texts may lie in the batch."""
        return len(state.number)

    def _filled(self, state: State) -> State:
        """With empty texts in the places that others may take."""
        return state


def begun(scorer: Scorer, draft: Draft, plan: Plan, seed: int, first: int) -> State:
    """The state before the first pass."""
    device = draft.blank.device
    forbidden = torch.arange(scorer.outputs, device=device) >= scorer.vocabulary
    if plan.forbidden is not None:
        forbidden[: scorer.vocabulary] |= plan.forbidden
    spaceless: Tensor | None = None
    if plan.without_space is not None and bool(draft.spaced.any()):
        spaceless = without_space(plan.without_space, scorer)
        if bool((forbidden | spaceless).all()):
            raise ValueError(
                "the text before a blank ends in a space, but every token that begins with one "
                "is banned"
            )
    number = torch.arange(first, first + len(draft.x_t), device=device)
    grid = torch.tensor(plan.grid, dtype=torch.float64, device=device)
    grid = grid.expand(len(number), -1)
    none, no = torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool)
    nowhere = torch.zeros_like(draft.blank)
    return State(
        draft=draft,
        number=number,
        key=uniforms.sample_keys(seed, number),
        time=grid[:, 0].contiguous(),
        place=none,
        passes=none,
        calls=none,
        stale=~no,
        stopped=no,
        idle=no,
        grid=grid,
        own=None,
        fires=nowhere.bool(),
        until=none.double(),
        rows=nowhere,
        draws=nowhere.double(),
        drawn=nowhere,
        rows_read=none.new_zeros(()),
        bad=no.new_zeros(()),
        report=none.new_zeros(len(Report._fields)),
        forbidden=forbidden.nonzero().squeeze(-1),
        without_space=spaceless,
    )


def without_space(tokens: Tensor, scorer: Scorer) -> Tensor:
    """Which outputs of the model are no tokens that begin with a space, given those tokens [V]."""
    padding = tokens.new_ones(scorer.outputs - scorer.vocabulary)
    return torch.cat([tokens, padding])


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
