"""From what a user asks for to samples: batches, forced words, frames, timing."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from didlm.data.tokenizer import Tokenizer
from didlm.generate.controls import Controls
from didlm.generate.draft import Draft, begin
from didlm.generate.driver import Finished, Writer, write
from didlm.generate.results import Frame, Sample
from didlm.generate.scorer import Scorer
from didlm.generate.stages import Plan
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.template import Parts, Start, is_kept, with_forced
from didlm.generate.template import start as begin_with
from didlm.methods.method import Method

BATCH = 64  # texts written together, unless a batch size is asked for

Callback = Callable[[list[Frame]], None]  # gets the texts of a batch after every step
# Yields the texts of a batch after every step, if watched; returns the samples.
Steps = Generator[list[Frame], None, list[Sample]]


@dataclass(frozen=True)
class Task:
    """What is to be written, by which model, and how."""

    scorer: Scorer
    method: Method
    tokenizer: Tokenizer
    plan: Plan
    templates: Sequence[Parts]  # texts and blanks: of each sample, or the same of all
    controls: Controls
    count: int
    seed: int
    device: torch.device


def write_all(task: Task, batch_size: int, watched: bool, trace: bool) -> Steps:
    """Write the samples batch by batch.

    Args:
        task: what to write.
        batch_size: how many texts are written together.
        watched: whether to yield frames, which costs a copy of all texts at every step.
        trace: whether samples keep their frames.
    """
    samples = []
    for first in range(0, task.count, batch_size):
        size = min(batch_size, task.count - first)
        samples += yield from _write_batch(task, first, size, watched, trace)
    return samples


def finish(steps: Steps, callback: Callback | None = None) -> list[Sample]:
    """The samples at the end of all steps, whose frames a callback may see."""
    while True:
        try:
            frames = next(steps)
        except StopIteration as end:
            return end.value
        if callback:
            callback(frames)


def _write_batch(task: Task, first: int, size: int, watched: bool, trace: bool) -> Steps:
    clock = Stopwatch(task.device)
    with clock.running():
        starts, draft = begun(task, range(first, first + size))
        writer = Writer(task.scorer, draft, task.plan, task.seed, first)
    frames: dict[int, list[Frame]] = {number: [] for number in range(first, first + size)}

    def observe() -> list[Frame]:
        for number, frame in writer.frames().items():
            if not trace:
                frames[number].clear()
            frames[number].append(frame)
        return [seen[-1] for seen in frames.values()]

    if watched or trace:
        yield observe()
    for _ in clock.each(write(writer)):
        if watched or trace:
            yield observe()
    samples = []
    for text in sorted(writer.finished, key=lambda text: text.number):
        sample = replace(
            sample_of(task, starts[text.number - first], text),
            seconds=clock.seconds / size,
            network_seconds=(writer.in_network.seconds + writer.in_head.seconds) / size,
            frames=frames[text.number] if trace else [],
        )
        samples.append(sample)
    return samples


def begun(task: Task, numbers: range) -> tuple[list[Start], Draft]:
    """What the samples of these numbers start from, and the same as a batch."""
    starts = _starts(task, numbers)
    laid_out = [task.method.start(each, task.controls.length) for each in starts]
    return starts, begin(laid_out, task.tokenizer.bos, task.device)


def sample_of(task: Task, start: Start, text: Finished) -> Sample:
    """What a user gets of a text that is done; its seconds are not known here."""
    length = task.method.finish(text.tokens)
    decoded = task.tokenizer.decode(text.tokens[:length])
    return Sample(
        text=decoded,
        tokens=text.tokens[:length].tolist(),
        born=text.born[:length].tolist(),
        nfe=text.calls,
        steps=text.passes,
        seconds=0.0,
        seed=task.seed,
        number=text.number,
        exact=start.exact and is_kept(start, decoded),
    )


def _starts(task: Task, numbers: range) -> list[Start]:
    if len(task.templates) == 1:
        begun = [begin_with(task.templates[0], task.tokenizer)] * len(numbers)
    else:
        begun = [begin_with(task.templates[number], task.tokenizer) for number in numbers]
    return [_with_forced(*each, task) for each in zip(begun, numbers, strict=True)]


def _with_forced(begun: Start, number: int, task: Task) -> Start:
    """What one sample starts from; forced words stand in a different order in each."""
    if not task.controls.forced:
        return begun
    words = task.controls.forced_words(task.tokenizer)
    return with_forced(begun, words, np.random.default_rng((task.seed % 2**64, number)))
