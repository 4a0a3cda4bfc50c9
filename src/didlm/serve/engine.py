"""One thread that writes the texts of all requests together, and answers questions in between.

Requests wait in line until there are places for their texts in the batch, join it between two
passes, and leave it when their texts are done, they take too long, or nobody waits for them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from didlm.generate.controls import Controls, suited
from didlm.generate.draft import Draft
from didlm.generate.driver import Finished
from didlm.generate.joining import News, OpenWriter, Room
from didlm.generate.limits import check_limits
from didlm.generate.results import Sample
from didlm.generate.scorer import scorer_of
from didlm.generate.template import Start
from didlm.generate.writing import Task, begun, sample_of
from didlm.pretrained import Model
from didlm.serve.faults import internal
from didlm.serve.limits import Limits
from didlm.serve.metrics import Metrics


class Full(Exception):
    """Too many requests wait already."""


@dataclass(frozen=True)
class Done:
    """The end of a request: its samples, or the answer to its question."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The end of a request that came to nothing."""

    status: int  # of HTTP
    reason: str  # a sentence


_ENDING = Failed(503, "the service is shutting down")
Event = News | Done | Failed  # the number of news is that of the sample
Listener = Callable[[Event], None]


@dataclass(eq=False)
class Request:
    """Something to do, and who is told about it, in the engine's thread."""

    tell: Listener
    texts: int = 1  # places that it takes
    deadline: float = float("inf")
    gone: bool = False  # nobody listens any more


@dataclass(eq=False)
class Question(Request):
    """Something that is answered between two passes."""

    answer: Callable[[], Any] = lambda: None


@dataclass(eq=False)
class Writing(Request):
    """Texts to be written: a task whose samples all start alike."""

    task: Task = field(kw_only=True)
    starts: list[Start] = field(kw_only=True)
    draft: Draft = field(kw_only=True)
    watched: bool = False  # whether every pass is told
    samples: list[Sample] = field(default_factory=list)


class Engine:
    """Writes until it is stopped."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        model.network.eval()
        self._changed = threading.Condition()  # guards the next two
        self._waiting: deque[Request] = deque()
        self._stopping = False
        self._owners: dict[int, tuple[Writing, int]] = {}  # of the texts in the batch: which sample
        self._writer = self._new_writer()
        self._thread = threading.Thread(target=self._run, name="didlm-engine", daemon=True)

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def end(self) -> None:
        """Stop after the pass that goes on; whoever still waits is told so."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def stop(self) -> None:
        """The same, and wait for it."""
        self.end()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether requests are answered."""
        return self._thread.is_alive()

    def prepare(self, task: Task, tell: Listener, watched: bool = False) -> Writing:
        """A request for texts; all that can be wrong with it is found here.

        Raises:
            ValueError: if it cannot be done.
        """
        starts, draft = begun(task, range(task.count))
        check_limits(draft, task.plan.shortest, task.plan.longest)
        return Writing(tell, task.count, task=task, starts=starts, draft=draft, watched=watched)

    def submit(self, *requests: Request) -> None:
        """Put requests in line, all or none.

        Raises:
            Full: if too many are there.
        """
        with self._changed:
            if self._stopping:
                for each in requests:
                    each.tell(_ENDING)
                return
            texts = sum(each.texts for each in requests)
            if sum(each.texts for each in self._waiting) + texts > self.limits.waiting:
                raise Full
            for each in requests:
                each.deadline = time.monotonic() + self.limits.seconds
                self._waiting.append(each)
            self._changed.notify()

    def drop(self, request: Request) -> None:
        """Forget a request; nobody listens any more."""
        with self._changed:
            request.gone = True
            self._changed.notify()

    # The engine's thread:

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._owners or self._stopping):
                    self.metrics.set("didlm_waiting_texts", 0)
                    self.metrics.set("didlm_batch_texts", 0)
                    self._changed.wait()
                if self._stopping:
                    break
                admitted = self._admitted()
            for request in admitted:
                self._begin(request)
            if self._owners:
                try:
                    self._pass()
                except Exception as error:
                    self._fail(error)
        everybody = {id(owner): owner for owner, _ in self._owners.values()}
        for request in (*everybody.values(), *self._waiting):
            request.tell(_ENDING)

    def _admitted(self) -> list[Request]:
        """Those whose turn it is, of the first in line as many as find places."""
        free, now, admitted = self.limits.batch - len(self._owners), time.monotonic(), []
        for request in [each for each in self._waiting if each.gone or each.deadline < now]:
            self._waiting.remove(request)
            self._give_up(request)
        while self._waiting and (
            isinstance(self._waiting[0], Question) or self._waiting[0].texts <= free
        ):
            request = self._waiting.popleft()
            free -= request.texts if isinstance(request, Writing) else 0
            admitted.append(request)
        self.metrics.set("didlm_waiting_texts", sum(each.texts for each in self._waiting))
        return admitted

    def _begin(self, request: Request) -> None:
        try:
            if isinstance(request, Question):
                request.tell(Done(request.answer()))
            elif isinstance(request, Writing):
                task = request.task
                numbers = self._writer.join(request.draft, task.plan, task.seed)
                self._owners |= {number: (request, i) for i, number in enumerate(numbers)}
        except ValueError as error:
            request.tell(Failed(400, str(error)))
        except Exception as error:
            request.tell(Failed(500, internal(error)))

    def _pass(self) -> None:
        self.metrics.set("didlm_batch_texts", len(self._owners))
        self.metrics.count("didlm_passes_total")
        self.metrics.count("didlm_text_passes_total", len(self._owners))
        self._writer.step()
        self.metrics.count("didlm_rows_total", self._writer.rows)
        if any(owner.watched for owner, _ in self._owners.values()):
            for news in self._writer.news(mark=self.model.tokenizer.vocabulary):
                owner, sample = self._owners[news.number]
                if owner.watched and not owner.gone:
                    owner.tell(replace(news, number=sample))
        self._writer.retire()
        for text in self._writer.finished:
            self._finish(text)
        self._writer.finished.clear()
        self._leave()

    def _finish(self, text: Finished) -> None:
        owner, number = self._owners.pop(text.number)
        sample = sample_of(owner.task, owner.starts[number], replace(text, number=number))
        owner.samples.append(sample)
        self.metrics.count("didlm_texts_total")
        self.metrics.count("didlm_tokens_total", sum(born > 0 for born in sample.born))
        if len(owner.samples) == owner.texts and not owner.gone:
            owner.tell(Done(sorted(owner.samples, key=lambda each: each.number)))

    def _leave(self) -> None:
        """Take out of the batch what takes too long, or nobody waits for."""
        now = time.monotonic()
        owners = {id(owner): owner for owner, _ in self._owners.values()}
        late = [owner for owner in owners.values() if owner.gone or owner.deadline < now]
        if not late:
            return
        numbers = [number for number, (owner, _) in self._owners.items() if owner in late]
        self._writer.leave(numbers)
        for number in numbers:
            del self._owners[number]
        for owner in late:
            self._give_up(owner)

    def _give_up(self, request: Request) -> None:
        self.metrics.count("didlm_dropped_total", why="left" if request.gone else "late")
        if not request.gone:
            reason = f"this took longer than {self.limits.seconds:g} seconds and was given up"
            request.tell(Failed(503, reason))

    def _fail(self, error: Exception) -> None:
        """A pass went wrong: all of the batch is lost, but not the service."""
        owners = {id(owner): owner for owner, _ in self._owners.values()}
        self._owners.clear()
        self._writer = self._new_writer()
        for owner in owners.values():
            owner.tell(Failed(500, internal(error)))

    def _new_writer(self) -> OpenWriter:
        model, limits = self.model, self.limits
        controls = Controls(**suited({}, model.defaults))
        plan = controls.plan(model.tokenizer, model.method, model.longest, model.device)
        scorer = scorer_of(model.network, max(model.longest, model.length or 0))
        # Forced words, which a request cannot have, would need more blanks; a grid has both ends.
        room = Room(limits.batch, limits.blanks + 1, limits.steps + 1)
        return OpenWriter(scorer, plan, room, model.device)
