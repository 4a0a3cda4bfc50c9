"""Texts that join a batch and leave it are the same as alone, whatever else is written there."""

import weakref
from dataclasses import replace

import pytest

from didlm.generate import desk
from didlm.generate.draft import Draft, begin
from didlm.generate.driver import Writer, write
from didlm.generate.joining import OpenWriter, Room
from didlm.generate.samplers import adaptive
from didlm.generate.scorer import NetworkScorer, scorer_of
from didlm.generate.stages import Plan
from didlm.generate.tokens import TokenControls
from didlm.schedule import uniform_grid
from test_desk import FREE, GRID, LONGEST, blank, network

COMMON = Plan(adaptive, GRID, longest=LONGEST)
PLANS = [
    COMMON,
    replace(COMMON, tokens=TokenControls(0.7, 1.0)),
    replace(COMMON, tokens=TokenControls(1.0, 0.6), grid=uniform_grid(3).tolist()),
    replace(COMMON, grid=uniform_grid(13).tolist(), longest=5),
    replace(COMMON, tokens=TokenControls(1.3, 0.9), shortest=12),
]
STARTS = [
    [blank()],
    [blank(), blank(2, 3)],
    [blank(0, 4)] * 3,
]


def draft_of(number: int) -> Draft:
    return begin(STARTS[number % len(STARTS)], 0)


def alone(scorer, number: int) -> list[tuple[object, ...]]:
    writer = Writer(scorer, draft_of(number), PLANS[number % len(PLANS)], seed=number)
    for _ in write(writer):
        pass
    return sorted((t.number, t.tokens.tolist(), t.born.tolist(), t.calls) for t in writer.finished)


def together(scorer, arrivals: list[int], leaves: int | None = None):
    """Requests join at the given passes; returns what each has become, and the news of each."""
    writer = OpenWriter(scorer, COMMON, Room(16, 2, 14), scorer.network.token_head.device)
    owners: dict[int, tuple[int, int]] = {}
    grown: dict[int, list[int]] = {}
    done, step = 0, 0
    results: dict[int, list[tuple[object, ...]]] = {}
    while done < len(arrivals) or writer.unfinished:
        for request in [r for r, at in enumerate(arrivals) if at == step]:
            numbers = writer.join(draft_of(request), PLANS[request % len(PLANS)], seed=request)
            owners |= {n: (request, i) for i, n in enumerate(numbers)}
            start = draft_of(request).x_t.unpack()
            grown |= {n: text.tolist() for n, text in zip(numbers, start, strict=True)}
            done += 1
        if step == leaves:
            writer.leave([n for n, (request, _) in owners.items() if request == 1] + [999])
        if writer.unfinished:
            writer.step()
            for news in writer.news(mark=-1):
                for place, token in zip(news.places, news.tokens, strict=True):
                    grown[news.number].insert(place, token)
            writer.retire()
            for text in writer.finished:
                request, sample = owners[text.number]
                assert grown[text.number] == text.tokens.tolist()
                row = (sample, text.tokens.tolist(), text.born.tolist(), text.calls)
                results.setdefault(request, []).append(row)
            writer.finished.clear()
        step += 1
        assert step < 2000
    return {request: sorted(rows) for request, rows in results.items()}


@pytest.fixture(params=["plain", "roomy"])
def where(request, monkeypatch) -> str:
    """The batch lies as it comes, or where a GPU could record it."""
    if request.param == "roomy":
        monkeypatch.setattr(NetworkScorer, "recordable", True)
        monkeypatch.setattr(desk, "_desks", weakref.WeakKeyDictionary())
    return request.param


@pytest.mark.parametrize(
    "arrivals", [[0] * 5, [0, 1, 2, 5, 9], [0, 0, 40, 41, 300]], ids=["at once", "soon", "late"]
)
def test_texts_are_the_same_as_alone(where, arrivals) -> None:
    scorer = scorer_of(network(FREE), LONGEST)
    expected = {request: alone(scorer, request) for request in range(len(arrivals))}
    assert together(scorer, arrivals) == expected
    assert len({str(text) for texts in expected.values() for text in texts}) > 6


def test_those_that_leave_change_nothing_either(where) -> None:
    scorer = scorer_of(network(FREE), LONGEST)
    result = together(scorer, [0, 0, 3, 4, 4], leaves=4)
    assert result == {request: alone(scorer, request) for request in (0, 2, 3, 4)}


def test_plans_that_cannot_be_written_together_are_refused() -> None:
    scorer = scorer_of(network(FREE), LONGEST)
    writer = OpenWriter(scorer, COMMON, Room(4, 2, 14), scorer.network.token_head.device)
    with pytest.raises(ValueError, match="must have the same sampler"):
        writer.join(draft_of(0), replace(COMMON, caution=0.5), seed=0)
    with pytest.raises(ValueError, match="more than the maximum of 0"):
        writer.join(draft_of(0), replace(COMMON, longest=0), seed=0)
    assert writer.unfinished == 0
