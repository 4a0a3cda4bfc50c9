"""Samples, frames, and those who look on."""

import itertools
import json

import pytest
import torch

from didlm.generate.results import Frame
from didlm.generate.stopwatch import Stopwatch
from didlm.generate.template import Blank
from writing import is_given, pattern, texts


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_sample_says_how_it_came_to_be(request, kind) -> None:
    model = request.getfixturevalue(kind)
    samples = model.infill("Once [...] time", num_samples=6, steps=8, seed=10)
    given = len(model.tokenizer.encode("Once")) + len(model.tokenizer.encode(" time"))
    for number, sample in enumerate(samples):
        assert str(sample) == sample.text == model.tokenizer.decode(sample.tokens)
        assert len(sample) == len(sample.tokens) == len(sample.born)
        assert is_given(sample).sum() == given
        assert max(sample.born) <= sample.steps
        assert 0 < sample.nfe <= sample.steps
        assert kind == "free" or sample.steps >= 8  # where a text waits, times of the grid pass
        assert 0 < sample.network_seconds < sample.seconds
        assert sample.line()["network_seconds"] <= sample.line()["seconds"]
        assert (sample.seed, sample.number) == (10, number)
        assert sample.frames == []


def test_a_stopwatch_runs_only_under_what_it_times(monkeypatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("didlm.generate.stopwatch.time.perf_counter", lambda: next(clock))
    watch = Stopwatch(torch.device("cpu"))
    with watch.running():
        next(clock)  # a second passes
    assert watch.seconds == 2
    for _ in watch.each(iter("ab")):  # two steps, and finding out that there is no third
        next(clock)  # whoever looks on takes a second
    assert watch.seconds == 2 + 3


def test_those_who_look_on_do_not_count(free, monkeypatch) -> None:
    """On a clock that only the onlooker moves, writing takes no time at all."""
    now = [0.0]
    monkeypatch.setattr("didlm.generate.stopwatch.time.perf_counter", lambda: now[0])

    def look(frames: list[Frame]) -> None:
        now[0] += 1

    (sample,) = free.generate(steps=4, seed=10, callback=look)
    assert now[0] > 0
    assert sample.seconds == sample.network_seconds == 0


def test_a_sample_becomes_a_line_of_json(free) -> None:
    (sample,) = free.generate("Once", steps=4, seed=10, min_length=8)
    line = json.loads(json.dumps(sample.line()))
    assert {"text", "tokens", "length", "steps", "nfe"} <= line.keys()
    assert (line["text"], line["tokens"]) == (sample.text, sample.tokens)
    assert (line["length"], line["steps"]) == (len(sample), sample.steps)
    assert (line["nfe"], line["born"]) == (sample.nfe, sample.born)


def is_subsequence(short, long):
    rest = iter(long)
    return all(item in rest for item in short)


def columns(frame):
    return list(zip(frame.tokens.tolist(), frame.born.tolist(), strict=True))


def losses(sample):
    """How many tokens were taken back at each step."""
    return [
        len(before.tokens) - int((after.born != after.step).sum())
        for before, after in itertools.pairwise(sample.frames)
    ]


@pytest.mark.parametrize("options", [{}, {"sampler": "tau-leaping"}, {"min_length": 20}], ids=str)
def test_a_trace_begins_with_what_is_given_and_only_grows(free, options) -> None:
    samples = free.infill("Once[...] time", num_samples=6, steps=6, seed=11, trace=True, **options)
    untraced = free.infill("Once[...] time", num_samples=6, steps=6, seed=11, **options)
    assert texts(samples) == texts(untraced)
    for sample in samples:
        first, *_, last = sample.frames
        assert [frame.step for frame in sample.frames] == list(range(sample.steps + 1))
        assert free.tokenizer.decode(first.tokens) == "Once time"
        assert not first.born.any()
        assert first.time == 1
        assert columns(last) == list(zip(sample.tokens, sample.born, strict=True))
        assert last.time == 0
        for one, other in itertools.pairwise(sample.frames):
            assert other.time <= one.time
            assert is_subsequence(columns(one), columns(other))
            assert (other.born == other.step).sum() == len(other.tokens) - len(one.tokens)


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_corrector_takes_tokens_back_but_none_that_are_given(request, kind) -> None:
    model = request.getfixturevalue(kind)
    samples = model.infill(
        "Once [...] time", num_samples=6, steps=6, seed=11, trace=True, correct=0.3, corrections=2
    )
    for sample in samples:
        assert pattern(["Once ", Blank(), " time"]).fullmatch(sample.text)
        given = sample.frames[0].tokens.tolist()
        for lost, (one, other) in zip(
            losses(sample), itertools.pairwise(sample.frames), strict=True
        ):
            assert other.tokens[other.born == 0].tolist() == given
            old = [pair for pair in columns(other) if pair[1] != other.step]
            assert is_subsequence(old, columns(one))
            assert other.time > one.time or lost == 0
        assert model.length in (None, len(sample))
        assert sum(lost > 0 for lost in losses(sample)) <= 2
    assert sum(sum(losses(sample)) for sample in samples) > 6


def frame_texts(model, frames):
    return [model.tokenizer.decode(frame.tokens) for frame in frames]


@pytest.mark.parametrize("kind", ["free", "fixed"])
def test_a_stream_ends_with_what_generate_returns(request, kind) -> None:
    model = request.getfixturevalue(kind)
    stream = list(model.stream(num_samples=5, seed=12, steps=6))
    samples = model.generate(num_samples=5, seed=12, steps=6, trace=True)
    assert frame_texts(model, stream[-1]) == texts(samples)
    assert frame_texts(model, stream[0]) == [""] * 5
    for place, sample in enumerate(samples):  # a text that is finished keeps its last frame
        seen = [columns(frames[place]) for frames in stream]
        assert seen[: len(sample.frames)] == [columns(frame) for frame in sample.frames]
        assert all(frame == seen[-1] for frame in seen[len(sample.frames) :])
    *_, last = model.stream("Once [...] time", seed=12, steps=6, forced=[" lived"])
    assert frame_texts(model, last) == texts(
        model.infill("Once [...] time", seed=12, steps=6, forced=[" lived"])
    )


def test_a_callback_sees_every_batch_grow(free) -> None:
    seen = []
    samples = free.generate(
        num_samples=5, batch_size=3, seed=12, steps=6, callback=seen.append, trace=True
    )
    sizes = [len(frames) for frames in seen]
    assert sizes == sorted(sizes, reverse=True)
    assert set(sizes) == {3, 2}
    for batch, some in ((3, samples[:3]), (2, samples[3:])):
        frames = [seen for seen in seen if len(seen) == batch]
        assert len(frames) == max(len(sample.frames) for sample in some)
        assert frame_texts(free, frames[-1]) == texts(some)


def test_an_error_in_a_callback_comes_through(free) -> None:
    def interrupt(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        free.generate(callback=interrupt)


def test_the_jump_chain_corrects_as_often_as_it_is_told(fixed) -> None:
    for corrections, steps in ((1, 1), (1, 8), (3, 1), (3, 8)):
        samples = fixed.generate(
            num_samples=6,
            sampler="jump-chain",
            trace=True,
            seed=15,
            correct=0.3,
            corrections=corrections,
            correction_steps=steps,
        )
        times = [sum(lost > 0 for lost in losses(sample)) for sample in samples]
        assert max(times) == corrections
