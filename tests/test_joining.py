"""Texts that join a batch and leave it are the same as alone, whatever else is written there."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from didlm.generate import desk
from didlm.generate.draft import Draft, begin
from didlm.generate.driver import Writer, write
from didlm.generate.joining import OpenWriter, Room
from didlm.generate.samplers import adaptive
from didlm.generate.scorer import CausalScorer, NetworkScorer, scorer_of
from didlm.generate.stages import Plan
from didlm.generate.template import CLOSED, Start
from didlm.generate.tokens import TokenControls
from didlm.schedule import uniform_grid
from test_desk import CAUSAL, FREE, GRID, KINDS, LONGEST, blank, network, on_gpu, start_of

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


# Of a model that writes from left to right, after prompts of different lengths.
RIGHTWARD = KINDS["left to right"][1]
RIGHTWARD_PLANS = [RIGHTWARD, replace(RIGHTWARD, tokens=TokenControls(0.7, 0.9), shortest=9)]


def after(prompt: Start, token: int) -> Start:
    """The same with one more given token."""
    return replace(
        prompt,
        tokens=np.append(prompt.tokens, token),
        given=np.append(prompt.given, 1),
        blank=np.insert(prompt.blank, 0, CLOSED),
        spaced=np.insert(prompt.spaced, 0, False),
        pieces=(f"{prompt.pieces[0]}{token}", None),
    )


def starts_of(scorer, number: int) -> list[Start]:
    if not isinstance(scorer, CausalScorer):
        return STARTS[number % len(STARTS)]
    prompt = start_of("left to right")
    return [prompt] * 2 if number % 2 else [after(prompt, 8), prompt]


def plan_of(scorer, number: int) -> Plan:
    plans = RIGHTWARD_PLANS if isinstance(scorer, CausalScorer) else PLANS
    return plans[number % len(plans)]


def draft_of(scorer, number: int) -> Draft:
    return begin(starts_of(scorer, number), 0, scorer.network.token_head.device)


def alone(scorer, number: int) -> list[tuple[object, ...]]:
    writer = Writer(scorer, draft_of(scorer, number), plan_of(scorer, number), seed=number)
    for _ in write(writer):
        pass
    return sorted((t.number, t.tokens.tolist(), t.born.tolist(), t.calls) for t in writer.finished)


def together(scorer, arrivals: list[int], leaves: int | None = None, places: int = 16):
    """Requests join at the given passes; returns what each has become, and the news of each."""
    device = scorer.network.token_head.device
    writer = OpenWriter(scorer, plan_of(scorer, 0), Room(places, 2, 14), device)
    owners: dict[int, tuple[int, int]] = {}
    grown: dict[int, list[int]] = {}
    done, step = 0, 0
    results: dict[int, list[tuple[object, ...]]] = {}
    while done < len(arrivals) or writer.unfinished:
        for request in [r for r, at in enumerate(arrivals) if at == step]:
            draft, plan = draft_of(scorer, request), plan_of(scorer, request)
            numbers = writer.join(draft, plan, seed=request)
            owners |= {n: (request, i) for i, n in enumerate(numbers)}
            start = draft_of(scorer, request).x_t.unpack()
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


kinds = pytest.mark.parametrize("heads", [FREE, CAUSAL], ids=["anywhere", "left to right"])


@pytest.fixture(params=["plain", "roomy"])
def where(request, monkeypatch) -> str:
    """The batch lies as it comes, or where a GPU could record it."""
    if request.param == "roomy":
        monkeypatch.setattr(NetworkScorer, "recordable", True)
        monkeypatch.setattr(desk, "_desks", weakref.WeakKeyDictionary())
    return request.param


@kinds
@pytest.mark.parametrize(
    "arrivals", [[0] * 5, [0, 1, 2, 5, 9], [0, 0, 40, 41, 300]], ids=["at once", "soon", "late"]
)
def test_texts_are_the_same_as_alone(where, arrivals, heads) -> None:
    scorer = scorer_of(network(heads), LONGEST)
    expected = {request: alone(scorer, request) for request in range(len(arrivals))}
    assert together(scorer, arrivals) == expected
    assert len({str(text) for texts in expected.values() for text in texts}) > 6


@kinds
def test_those_that_leave_change_nothing_either(where, heads) -> None:
    scorer = scorer_of(network(heads), LONGEST)
    result = together(scorer, [0, 0, 3, 4, 4], leaves=4)
    assert result == {request: alone(scorer, request) for request in (0, 2, 3, 4)}


def test_plans_that_cannot_be_written_together_are_refused() -> None:
    scorer = scorer_of(network(FREE), LONGEST)
    writer = OpenWriter(scorer, COMMON, Room(4, 2, 14), torch.device("cpu"))
    with pytest.raises(ValueError, match="must have the same sampler"):
        writer.join(draft_of(scorer, 0), replace(COMMON, caution=0.5), seed=0)
    with pytest.raises(ValueError, match="more than the maximum of 0"):
        writer.join(draft_of(scorer, 0), replace(COMMON, longest=0), seed=0)
    assert writer.unfinished == 0


def test_what_is_remembered_in_16_bits_stays_so() -> None:
    """A text joins others that have been read."""
    scorer = scorer_of(network(CAUSAL, torch.bfloat16), LONGEST)
    found = together(scorer, [0, 1, 3])
    assert {request: len(rows) for request, rows in found.items()} == {0: 2, 1: 2, 2: 2}


@pytest.mark.gpu
@on_gpu
@kinds
def test_texts_on_a_gpu_are_nearly_the_same_as_alone(heads) -> None:
    """Products of other shapes are rounded otherwise, which may change a token here or there."""
    scorer = scorer_of(network(heads, torch.bfloat16, "cuda"), LONGEST)
    arrivals = [0, 0, 1, 2, 5, 9, 40, 41] * 2
    expected = {request: alone(scorer, request) for request in range(len(arrivals))}
    for _ in range(3):  # passes that come again are recorded
        found = together(scorer, arrivals, places=32)
        assert np.mean([found[request] == expected[request] for request in expected]) > 0.5
