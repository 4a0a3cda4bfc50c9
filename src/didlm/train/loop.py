"""The training loop: noised batches in, a model folder out."""

import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from didlm.data.loader import Loader, Share, budget_for
from didlm.files import alone_in, check_folder, check_free
from didlm.methods.registry import find_method
from didlm.model.config import preset
from didlm.model.flops import training_flops
from didlm.model.transformer import Network
from didlm.pretrained import Model
from didlm.train.checkpoint import (
    NotWritten,
    find_checkpoint,
    forget_after,
    prune,
    save_checkpoint,
)
from didlm.train.meter import Meter
from didlm.train.prepare import Prepared, prepare
from didlm.train.progress import Reporter
from didlm.train.record import model_card, record_resumption, record_run
from didlm.train.resume import check_same_run, cut_metrics, recorded_run, settings_to_go_on
from didlm.train.settings import Settings
from didlm.train.state import State, autocast
from didlm.train.step import Figures, Outcome, take_step
from didlm.train.stopping import Stopping
from didlm.train.validation import sentence, validate, validation_metrics, write_samples
from didlm.train.world import World
from didlm.workers import expect_workers

# Dynamic loss scaling of fp16 overflows on purpose while it looks for the largest scale.
BAD_STEPS_FP16 = 30
AHEAD = 2  # steps that a GPU is given before the figures of the first are waited for


class TrainingStopped(Exception):
    """Training cannot go on; the last good model or checkpoint is there."""


class Interrupted(Exception):
    """Training was asked to stop, and can be resumed."""


def train(settings: Settings, folder: Path, resume: bool = False) -> Model:
    """Train a model and leave its best version in a folder.

    Started by torchrun, every process calls this, and all get the model.

    Args:
        settings: of the run.
        folder: for the model, the records of the run and its checkpoints.
        resume: whether to go on with a run that was begun there; if none was, one is.

    Raises:
        ValueError: if the settings or the data cannot be used, or the folder holds another run.
        TrainingStopped: after too many non-finite steps in a row, or when nothing can be written.
        Interrupted: after SIGTERM or Ctrl-C; a checkpoint has been written.
    """
    world = World.join(settings.device, settings.distribution)
    try:
        return _Run(settings, folder, resume, world).go()
    finally:
        world.leave()


class _Run:
    """One run in one process, from its folder to its last step."""

    def __init__(self, settings: Settings, folder: Path, resume: bool, world: World) -> None:
        self.folder, self.world, self.resuming = folder, world, resume
        check_folder(folder)
        self.begun = _begun_before(folder, settings, resume)
        if settings.batch % (world.size * settings.accumulate):
            raise ValueError(
                f"batch {settings.batch} cannot be divided into {settings.accumulate} equal parts "
                f"on each of {world.size} processes"
            )
        torch.manual_seed(settings.seed)
        if settings.workers:  # reading takes workers too, and the first pool imports for all
            expect_workers(Loader.__module__, find_method(settings.method).__module__)
        if not world.first:
            world.wait()  # the first prepares what the others then find
        self.prepared = prepare(settings, show=world.first)
        if world.first:
            world.wait()
        network = make_network(settings, self.prepared).to(world.device)
        if settings.flops:
            settings = replace(settings, steps=_affordable_steps(settings, self.prepared, network))
        self.settings = settings
        self.state = State.start(network, settings, world)
        # The last steps, by their numbers, which a GPU may still be working on.
        self.unread: deque[tuple[int, Outcome]] = deque()

    def go(self) -> Model:
        """From the last checkpoint, or from nothing, to the end."""
        with (
            self._folder_of_all(),
            Stopping() as stopping,
            self._reporter() as reporter,
        ):
            try:
                self._begin(reporter)
                self._steps(reporter, stopping)
            except OSError as error:
                what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise TrainingStopped(self._last_resort(what)) from None
            except NotWritten as error:
                raise TrainingStopped(str(error)) from None
        self.world.wait()
        return Model.from_pretrained(self.folder, self.world.device)

    def _reporter(self) -> Reporter:
        settings = self.settings
        return Reporter(self.folder, settings.steps, settings.seconds, not self.world.first)

    @contextlib.contextmanager
    def _folder_of_all(self) -> Iterator[None]:
        """Keep other runs out of the folder, and make sure that all processes see it.

        Raises:
            ValueError: if another run is there, or it is not on a disk that all share.
        """
        with contextlib.ExitStack() as stack:
            word = secrets.token_hex(8)
            if self.world.first:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(alone_in(self.folder)).write_text(word)
            word = self.world.gather(word)[0]
            lock = self.folder / ".lock"
            seen = self.world.gather(lock.exists() and lock.read_text() == word)
            if not all(seen):
                raise ValueError(
                    f"process {seen.index(False)} does not see the folder {self.folder} of the "
                    "first: choose one on a disk that all share"
                )
            yield

    def _begin(self, reporter: Reporter) -> None:
        """Restore the last checkpoint, or record that a run begins."""
        found = find_checkpoint(self.folder, reporter.say) if self.begun else None
        if found is None:
            if self.world.first:
                cut_metrics(self.folder, 0)
                record_run(self.folder, self.settings, self.state.network, self.prepared)
            if self.resuming:
                reporter.say("there is no checkpoint yet: starting afresh")
        else:
            self._check_same_data()
            self.state.restore(found, self.world)
            if self.world.first:
                forget_after(self.folder, found.step)
                cut_metrics(self.folder, found.step)
                record_resumption(self.folder, self.settings, found.step, self.world.size)
            reporter.say(f"resumed at step {found.step}")
            self._compare_threads(reporter)
        reporter.open(self.state.progress.step)
        for note in self.prepared.notes:
            reporter.say(note)

    def _compare_threads(self, reporter: Reporter) -> None:
        assert self.begun is not None
        before, now = self.begun["hardware"]["threads"], torch.get_num_threads()
        if before != now and self.world.device.type == "cpu":
            reporter.say(
                f"the run began with {before} threads and goes on with {now}: it is the same up to "
                "rounding only"
            )

    def _check_same_data(self) -> None:
        assert self.begun is not None
        recorded = self.begun.get("data", {}).get("fingerprint")
        if recorded != self.prepared.fingerprint:
            raise ValueError(
                f"the data are not those with which the run in {self.folder} began: "
                "start another run in another folder"
            )

    def _steps(self, reporter: Reporter, stopping: Stopping) -> None:
        settings, world, progress = self.settings, self.world, self.state.progress
        parts = world.size * settings.accumulate
        loader = Loader(
            self.prepared.train,
            self.prepared.method,
            budget_for(self.prepared.train, settings.batch // parts),
            settings.batch,
            settings.seed,
            world.workers(settings.workers),
            start=progress.step,
            share=Share(world.rank, world.size),
        )
        config = self.state.network.config
        meter = Meter(loader, config, world, progress.flops, progress.seconds)
        saving = _Clock(settings.checkpoint_every, settings.checkpoint_seconds, time.monotonic)
        looking = _Clock(settings.validate_every, settings.validate_seconds, meter.seconds)
        batches = iter(loader)
        last = self._is_over(progress.seconds)
        if last:
            reporter.say(f"all of its {progress.step} steps have been taken")
        while not last:
            try:
                batch = next(batches)
            except BrokenProcessPool:
                # Whoever ends a run may have ended its workers first. Of several processes the
                # others may be elsewhere, and saving takes them all.
                if not stopping.wanted or world.size > 1:
                    raise TrainingStopped(self._last_resort("a loader process has died")) from None
                self._checkpoint(reporter, meter)
                raise Interrupted(self._farewell()) from None
            outcome = take_step(self.state, batch, settings, world, meter.count)
            meter.took(outcome)
            step = progress.step
            self.unread.append((step, outcome))
            self._catch_up(reporter, meter, AHEAD)
            # Clocks and signals differ from process to process, and all must do the same.
            over = self._is_over(meter.seconds())
            wishes = (stopping.wanted, saving.due(step), looking.due(step), over)
            stop, save, look, last = map(bool, world.most(*wishes))
            if look or last:
                self._validate(reporter, meter)
                looking.restart()
            self._snapshot(step)
            if stop and not last:
                self._checkpoint(reporter, meter)
                if progress.best is None:
                    self._save()
                raise Interrupted(self._farewell())
            if save or last:
                self._checkpoint(reporter, meter)
                saving.restart()
        if progress.best is None:
            self._save()
        if world.first:
            prune(self.folder, 1)

    def _is_over(self, seconds: float) -> bool:
        """Whether all steps have been taken, or the training has taken all of its seconds."""
        steps, most = self.settings.steps, self.settings.seconds
        return self.state.progress.step >= steps or 0 < most <= seconds

    def _catch_up(self, reporter: Reporter, meter: Meter, ahead: int = 0) -> None:
        """Read and report the figures of all steps but the last few, and of those that are known.

        Of several processes all read as many: one must not stop while the others go on.
        """
        every, last = self.settings.log_every, self.settings.steps
        alone = self.world.size == 1
        while self.unread and (len(self.unread) > ahead or (alone and self.unread[0][1].known)):
            step, outcome = self.unread.popleft()
            figures = outcome.read()
            self._check_sanity(step, figures)
            if step % every == 0 or step == last:
                reporter.step(step, vars(figures) | meter.read())

    def _check_sanity(self, step: int, figures: Figures) -> None:
        bad, patience = self.state.progress.bad_in_a_row, self.settings.bad_steps
        if self.settings.precision == "fp16":
            patience = max(patience, BAD_STEPS_FP16)
        if bad < patience:
            return
        if self.state.progress.best is None:
            self._save()
        raise TrainingStopped(
            f"loss or gradient was not finite {bad} times in a row, the last at step {step} (loss "
            f"{figures.loss}, gradient norm {figures.gradient_norm}): the best model so far is in "
            f"{self.folder}; try a lower learning_rate, or another precision"
        )

    def _validate(self, reporter: Reporter, meter: Meter) -> None:
        """Measure the average of the weights; keep it if it is the best so far."""
        self._catch_up(reporter, meter)
        progress, prepared = self.state.progress, self.prepared
        meter.pause()
        model, flops = self._model(), meter.flops()
        if self.world.first:
            with autocast(self.settings, self.world.device):
                metrics = validation_metrics(validate(model, prepared, self.settings), prepared)
            metrics |= {"flops": flops, "seconds": meter.seconds()}
            reporter.validation(progress.step, metrics, sentence(metrics, prepared))
            nats = metrics["nats_per_document"]
            if math.isfinite(nats) and (progress.best is None or nats < progress.best):
                progress.best = nats
                card = model_card(self.settings, prepared, metrics, model.network)
                model.save_pretrained(self.folder, card)
            with autocast(self.settings, self.world.device):
                write_samples(model, self.folder, self.settings, progress.step)
        progress.best = self.world.gather(progress.best)[0]
        meter.restart()

    def _model(self) -> Model:
        """The average of the weights as a model; all processes must ask."""
        prepared = self.prepared
        return Model(
            self.world.whole(self.state.average.network),
            prepared.tokenizer,
            prepared.method,
            prepared.method.length or self.settings.max_length,
            prepared.lossless,
        )

    def _save(self) -> None:
        """Save the average of the weights, without figures."""
        model = self._model()
        if self.world.first:
            card = model_card(self.settings, self.prepared, None, model.network)
            model.save_pretrained(self.folder, card)

    def _snapshot(self, step: int) -> None:
        """Keep the average of the weights as a model of its own, where one is asked for."""
        kept, steps = self.settings.snapshots, self.settings.steps
        for part in range(1, kept + 1):
            if step == -(-part * steps // kept):
                model = self._model()
                if self.world.first:
                    card = model_card(self.settings, self.prepared, None, model.network)
                    model.save_pretrained(snapshot_folder(self.folder, part, kept), card)

    def _checkpoint(self, reporter: Reporter, meter: Meter) -> None:
        self._catch_up(reporter, meter)
        state = self.state
        state.progress.flops, state.progress.seconds = meter.flops(), meter.seconds()
        save_checkpoint(
            self.folder, state.progress.step, state.tensors(), state.numbers(), self.world
        )
        if self.world.first:
            prune(self.folder, self.settings.keep_checkpoints)

    def _farewell(self) -> str:
        return (
            f"stopped at step {self.state.progress.step} of {self.settings.steps}, as asked; "
            f"go on with: didlm train --out {self.folder} --resume"
        )

    def _last_resort(self, what: str) -> str:
        return (
            f"training stopped at step {self.state.progress.step}: {what}; when that is mended, "
            f"go on from the last good checkpoint with: didlm train --out {self.folder} --resume"
        )


def snapshot_folder(folder: Path, part: int, kept: int) -> Path:
    """Where a run keeps the model that it had after so many parts of its steps."""
    return folder / "snapshots" / f"{part}-of-{kept}"


class _Clock:
    """When something is due: every so many steps, and after so many seconds; 0 for none."""

    def __init__(self, steps: int, seconds: float, now: Callable[[], float]) -> None:
        self._steps, self._seconds, self._now = steps, seconds, now
        self.restart()

    def restart(self) -> None:
        self._started = self._now()

    def due(self, step: int) -> bool:
        if self._steps and step % self._steps == 0:
            return True
        return bool(self._seconds) and self._now() - self._started >= self._seconds


def _begun_before(folder: Path, settings: Settings, resume: bool) -> dict[str, Any] | None:
    """What is recorded of the run to go on with; None if it is a new one.

    Raises:
        ValueError: if the folder holds a run that is not to be gone on with, or another one.
    """
    run = recorded_run(folder)
    if run is None:
        check_free(folder)
        return None
    if not resume:
        raise ValueError(
            f"{folder} holds a run already: choose another folder for this one, or go on with "
            "that one with --resume"
        )
    check_same_run(settings_to_go_on(folder, {}), settings)
    return run


def make_network(settings: Settings, prepared: Prepared) -> Network:
    """The network to train: a new one, or that of a model to start from."""
    if prepared.start is not None:
        config = replace(prepared.start.network.config, dropout=settings.dropout)
        network = Network(config, settings.checkpointing)
        network.load_state_dict(prepared.start.network.state_dict())
        return network
    config = preset(
        settings.preset, prepared.tokenizer.vocabulary, prepared.method.heads, settings.dropout
    )
    train = prepared.train
    config = replace(
        config, mean_length=train.mean_length, length_dispersion=train.length_dispersion
    )
    return Network(config, settings.checkpointing)


def _affordable_steps(settings: Settings, prepared: Prepared, network: Network) -> int:
    """How many steps the FLOPs of the settings pay for, judged by the first ones."""
    budget = budget_for(prepared.train, settings.batch // settings.accumulate)
    loader = Loader(prepared.train, prepared.method, budget, settings.batch, settings.seed)
    some = [
        sum(training_flops(network.config, batch) for batch in batches)
        for batches in islice(loader, 16)
    ]
    return max(1, round(settings.flops / (sum(some) / len(some))))
