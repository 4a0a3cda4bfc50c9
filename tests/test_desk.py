"""Texts do not depend on where they lie while they are written, nor on whether that is recorded."""

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didlm.generate import desk, uniforms
from didlm.generate.corrector import corrected
from didlm.generate.desk import PLACES, PlainDesk, RoomyDesk
from didlm.generate.draft import append, begin, insert, replace_marks
from didlm.generate.driver import Writer, write
from didlm.generate.limits import earliest, first, largest
from didlm.generate.marks import with_marks
from didlm.generate.samplers import adaptive, counted, jump_chain, one_by_one, tau_leaping
from didlm.generate.scorer import CausalScorer, NetworkScorer, scorer_of
from didlm.generate.sizes import rounded_rows
from didlm.generate.stages import Plan, Stages
from didlm.generate.template import CLOSED, NO_LIMIT, Start
from didlm.generate.tokens import TokenControls, _edge_by_halving, _nucleus_edge
from didlm.model.config import Heads, ModelConfig
from didlm.model.transformer import Network
from didlm.packed import pack
from didlm.schedule import uniform_grid
from interpreter import needs_triton, runs_as_main

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
LONGEST = 40
GRID = uniform_grid(8).tolist()
FREE, FIXED = Heads(), Heads(timed=False, normalised=True)
CAUSAL = Heads(rates=False, timed=False, flags=False, causal=True)
ALL_BUT_FOUR = torch.arange(300) >= 4
KINDS = {
    "adaptive": (FREE, Plan(adaptive, GRID, longest=LONGEST)),
    "tau-leaping": (FREE, Plan(tau_leaping, GRID, longest=LONGEST)),
    "at least": (FREE, Plan(adaptive, GRID, shortest=20, longest=LONGEST)),
    "at most": (FREE, Plan(adaptive, GRID, longest=9)),
    "nucleus": (FREE, Plan(adaptive, GRID, longest=LONGEST, tokens=TokenControls(0.9, 0.8, 50))),
    "surer": (FREE, Plan(adaptive, GRID, longest=LONGEST, position_temperature=0.5)),
    "shorter": (FREE, Plan(adaptive, GRID, longest=LONGEST, rate_scale=0.7)),
    "no repeats": (
        FREE,
        Plan(adaptive, GRID, longest=LONGEST, forbidden=ALL_BUT_FOUR, repeats=False),
    ),
    "marks, no repeats": (
        Heads(rates=False, timed=False, flags=False, marks=1),
        Plan(
            tau_leaping,
            GRID,
            edit=replace_marks,
            longest=NO_LIMIT,
            forbidden=ALL_BUT_FOUR,
            repeats=False,
        ),
    ),
    "corrected": (
        FREE,
        Plan(adaptive, corrected(uniform_grid(6), 0.4, 2, 3).tolist(), longest=LONGEST),
    ),
    "counted": (FIXED, Plan(counted, GRID, length=30, shortest=30, longest=30)),
    "jump chain": (FIXED, Plan(jump_chain, [1.0, 0.0], length=12, shortest=12, longest=12)),
    "stopping": (
        Heads(normalised=True, timed=False, stop=True),
        Plan(one_by_one, [1.0, 0.0], longest=12),
    ),
    "marks": (
        Heads(rates=False, timed=False, flags=False, marks=1),
        Plan(tau_leaping, GRID, edit=replace_marks, longest=NO_LIMIT),
    ),
    "left to right": (
        CAUSAL,
        Plan(one_by_one, [1.0, 0.0], edit=append, end=5, shortest=3, longest=LONGEST),
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def network(heads: Heads, dtype=torch.float64, device="cpu") -> Network:
    """Untrained, but its gaps and tokens are not all alike."""
    torch.manual_seed(1)
    config = ModelConfig(
        vocabulary=300,
        layers=2,
        width=64,
        heads=2,
        feed_forward=64,
        condition=16 if heads.timed else None,
        rates=heads.rates,
        normalised=heads.normalised,
        stop=heads.stop,
        flags=heads.flags,
        marks=heads.marks,
        causal=heads.causal,
        mean_length=15.0,
        length_dispersion=0.5,
    )
    result = Network(config)
    for name, parameter in result.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.02 if "modulation" in name else 0.2)
    return result.to(device, dtype).eval()


def blank(least: int = 0, most: int = NO_LIMIT) -> Start:
    """A blank, and a given token after it."""
    return Start(
        tokens=np.array([7]),
        given=np.array([1]),
        blank=np.array([0, 1]),
        least=np.array([least, 0]),
        most=np.array([most, NO_LIMIT]),
        spaced=np.array([False, False]),
        pieces=(None, "7", None),
        exact=True,
    )


def start_of(kind: str) -> Start:
    if kind == "left to right":
        return replace(blank(), blank=np.array([CLOSED, 0]), pieces=("7", None))
    return with_marks(blank(3, 3), 300, 20) if kind.startswith("marks") else blank()


def begun(model: Network, plan: Plan, starts: list[Start], seed: int = 0) -> Writer:
    device = model.token_head.device
    draft = begin(starts, 0, device)
    if plan.forbidden is not None:
        plan = replace(plan, forbidden=plan.forbidden.to(device))
    return Writer(scorer_of(model, LONGEST), draft, plan, seed)


def texts(writer: Writer) -> list[tuple[object, ...]]:
    for _ in write(writer):
        assert writer.passes.max() < 1000
    return sorted(
        (text.number, text.tokens.tolist(), text.born.tolist(), text.passes, text.calls)
        for text in writer.finished
    )


@pytest.fixture
def room(monkeypatch):
    """Texts are written where a GPU could record it."""
    monkeypatch.setattr(NetworkScorer, "recordable", True)
    monkeypatch.setattr(desk, "_desks", weakref.WeakKeyDictionary())


@kinds
def test_room_behind_the_texts_changes_nothing(kind, room, monkeypatch) -> None:
    heads, plan = KINDS[kind]
    model, starts = network(heads), [start_of(kind)] * 9
    with monkeypatch.context() as patch:
        patch.setattr(NetworkScorer, "recordable", False)
        plain = begun(model, plan, starts)
        assert isinstance(plain.desk, PlainDesk)
        expected = texts(plain)
    roomy = begun(model, plan, starts)
    assert isinstance(roomy.desk, RoomyDesk)
    assert texts(roomy) == expected
    assert len({str(tokens) for _, tokens, *_ in expected}) > 4
    assert roomy.rows_read == plain.rows_read
    again = begun(model, plan, starts)
    assert again.desk is roomy.desk  # which another batch may lie on
    assert texts(again) == expected


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 5), max_size=5), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([None, 3]),
    st.sets(st.integers(0, 5)),
)
def test_the_tokens_on_both_sides_are_banned(words, marked, padding, forbidden) -> None:
    """By rows, as one would: BOS is 0, a mark 5, and 5 is no output of the model."""
    x_t = pack([np.array(word, dtype=np.int64) for word in words], 0)
    open_rows = x_t.tokens == 5 if marked else torch.ones(x_t.rows, dtype=torch.bool)
    x_t = replace(x_t, open=open_rows)
    rows = open_rows.nonzero().squeeze(-1)
    edit = replace_marks if marked else insert
    logits = torch.randn(len(rows), 5 if marked else 6)
    logits[:, [n for n in forbidden if n < logits.shape[1]]] = -torch.inf
    expected = logits.clone()
    texts = [[0, *word] for word in words]
    places = [(text, place) for text in texts for place in range(len(text))]
    for row, logit in zip(rows.tolist(), expected, strict=True):
        text, place = places[row]
        left, right = (text[place - 1 : place] if marked else [text[place]]), text[place + 1 :][:1]
        banned = {n for n in (*left, *right) if n not in (0, padding) and not (marked and n == 5)}
        allowed = logit.clone()
        allowed[list(banned)] = -torch.inf
        if allowed.max() > -torch.inf:
            logit.copy_(allowed)
    plan = Plan(adaptive, GRID, edit=edit, repeats=False, padding=padding)
    stages = Stages(scorer_of(network(FREE)), plan, torch.device("cpu"))
    state = SimpleNamespace(draft=SimpleNamespace(x_t=x_t))
    stages._ban_neighbours(state, rows, logits)
    assert torch.equal(logits, expected)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=5),
    st.sampled_from(["adaptive", "tau-leaping", "corrected", "at least"]),
    st.integers(0, 1000),
)
def test_nor_where_blanks_have_limits(limits, kind, seed) -> None:
    heads, plan = KINDS[kind]
    starts = [blank(least, least + more) for least, more in limits]
    found = []
    for recordable in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NetworkScorer, "recordable", recordable)
            found.append(texts(begun(network(heads), plan, starts, seed)))
    assert found[0] == found[1]


def test_texts_that_are_done_leave_their_places(room) -> None:
    heads, plan = KINDS["adaptive"]
    writer = begun(network(heads), plan, [blank()] * 40)
    rows = []
    for _ in write(writer):
        rows.append(writer.draft.x_t.rows)
        assert int(writer.desk.end(writer.draft.x_t)) + PLACES <= rows[-1]
        assert set(rows) <= {rounded_rows(size) for size in range(1, 3000)}
    assert rows[-1] < max(rows)
    assert len(writer.finished) == 40


def test_two_batches_of_one_model_do_not_disturb_each_other(room) -> None:
    heads, plan = KINDS["adaptive"]
    model = network(heads)
    alone = [texts(begun(model, plan, [blank()] * 5, seed)) for seed in (0, 1)]
    writers = [begun(model, plan, [blank()] * 5, seed) for seed in (0, 1)]
    assert writers[0].desk is not writers[1].desk
    loops = [write(writer) for writer in writers]
    while any([next(loop, "end") is None for loop in loops]):  # noqa: C419 - both go on
        pass
    assert [texts(writer) for writer in writers] == alone


def test_recordings_go_with_what_they_were_made_for(room) -> None:
    heads, plan = KINDS["adaptive"]
    model = network(heads)
    first_desk = begun(model, plan, [blank()] * 5)
    texts(first_desk)
    other_batch, other_plan = begun(model, plan, [blank()] * 6), Plan(adaptive, GRID, longest=20)
    assert other_batch.desk is not first_desk.desk
    assert begun(model, other_plan, [blank()] * 5).desk is not first_desk.desk
    falls, rises = ([*uniform_grid(14)], [*corrected(uniform_grid(6), 0.4, 2, 3)])
    assert len(falls) == len(rises)
    falling = begun(model, replace(plan, grid=falls), [blank()] * 5)
    texts(falling)
    assert begun(model, replace(plan, grid=rises), [blank()] * 5).desk is not falling.desk
    texts(begun(model, plan, [blank()] * 5))
    model.token_head = torch.nn.Parameter(model.token_head.clone())  # now elsewhere
    assert begun(model, plan, [blank()] * 5).desk is not first_desk.desk
    gone = weakref.ref(first_desk.desk)
    del first_desk, other_batch, falling, model
    gc.collect()
    assert gone() is None


def test_only_the_last_desks_are_kept(room) -> None:
    heads, plan = KINDS["jump chain"]
    model = network(heads)
    for count in range(1, desk.KEPT + 4):
        texts(begun(model, plan, [blank()] * count))
    assert len(desk._desks[model]) == desk.KEPT


def test_a_memory_that_does_not_fit_is_not_laid_out(room, monkeypatch) -> None:
    heads, plan = KINDS["left to right"]
    model, starts = network(heads), [start_of("left to right")] * 5
    first = begun(model, plan, starts)
    expected, asked = texts(first), []
    monkeypatch.setattr(CausalScorer, "fits", lambda _, rows: bool(asked.append(rows)))
    again = begun(model, plan, starts)
    assert again.desk is first.desk  # which has its memory
    assert not asked
    assert texts(again) == expected
    other = begun(network(heads), plan, starts)
    assert asked == [5 * (LONGEST + 1)]
    assert isinstance(other.desk, PlainDesk)
    assert texts(other) == expected


@given(st.integers(1, 10**6))
def test_sizes_are_few_and_not_much_too_large(count) -> None:
    size = rounded_rows(count)
    assert count <= size
    assert size % 128 == 0
    assert size <= max(1.125 * count, count + 127)
    assert rounded_rows(size) == size


# The pieces in constant shapes, and their plain twins.

lists = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=5)


@given(lists, st.randoms(use_true_random=False), st.integers(0, 5))
def test_growing_is_inserting(texts, random, less) -> None:
    batch = pack(texts, bos=9)
    fires = torch.tensor([random.random() < 0.5 for _ in range(batch.rows)])
    tokens = torch.tensor([random.randrange(5) for _ in range(batch.rows)])
    expected = batch.insert(fires.nonzero().squeeze(-1), tokens[fires])
    rows = max(1, expected.rows - less)  # the rest falls off the end
    grown, source, is_new = batch.grown(fires, tokens, rows)
    for name in ("tokens", "given", "open"):
        assert torch.equal(getattr(grown, name), getattr(expected, name)[:rows])
    assert torch.equal(grown.offsets, expected.offsets)
    assert torch.equal(batch.tokens[source[~is_new]], expected.tokens[:rows][~is_new])
    assert fires[source[is_new]].all()


@given(lists, st.randoms(use_true_random=False), st.integers(0, 5))
def test_shrinking_is_deleting(texts, random, more) -> None:
    batch = pack(texts, bos=9)
    keep = torch.tensor([random.random() < 0.5 for _ in range(batch.rows)]) | batch.is_bos
    expected = batch.delete(keep)
    shrunk, source = batch.shrunk(~keep, expected.rows + more)
    for name in ("tokens", "given", "open"):
        assert torch.equal(getattr(shrunk, name)[: expected.rows], getattr(expected, name))
    assert torch.equal(shrunk.offsets, expected.offsets)
    assert torch.equal(batch.tokens[source], shrunk.tokens)
    assert (source[expected.rows :] == batch.rows - 1).all()


@given(lists, st.randoms(use_true_random=False))
def test_the_first_of_each_text_is_the_earliest(texts, random) -> None:
    batch = pack(texts, bos=9)
    arrival = torch.tensor([random.choice([1.0, 2.0, 3.0, torch.inf]) for _ in range(batch.rows)])
    wanted = torch.tensor([random.random() < 0.7 for _ in texts])
    soonest = -largest(-arrival, batch.offsets)
    found = first(arrival, soonest, batch.sequence, wanted)
    assert torch.equal(found, earliest(arrival, batch.sequence, wanted.long()))


@settings(max_examples=50)
@given(st.integers(1, 600), st.floats(0.001, 0.999), st.floats(0.0, 4.0), st.integers(0, 99))
def test_the_edge_of_a_nucleus_is_the_same_without_sorting(size, top_p, spread, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = (spread * torch.randn(6, size, generator=generator)).softmax(-1)
    wanted = weights.sum(-1, keepdim=True, dtype=torch.float64) * top_p
    found = weights >= _edge_by_halving(weights, wanted)
    expected = weights >= _nucleus_edge(weights, top_p)
    # Sums in another order may round to the other side of what is wanted.
    unclear = (weights.double() * found).sum(-1) - wanted.squeeze(-1) < 1e-12
    assert torch.equal(found[~unclear], expected[~unclear])


def check_draws(device: str) -> None:
    from didlm.generate import uniforms_triton

    keys = uniforms.sample_keys(5, torch.arange(7, device=device))
    passes, places = torch.arange(3, 10, device=device), torch.arange(300, device=device)
    for purpose in range(4):
        arguments = keys[:, None], passes[:, None], purpose, places
        found = uniforms_triton.uniforms(*arguments)
        assert torch.equal(found, uniforms.uniforms_plain(*arguments))


@needs_triton
def test_the_kernel_of_draws_is_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


@pytest.mark.gpu
@on_gpu
def test_the_kernel_of_draws_is_right() -> None:
    check_draws("cuda")


# On a GPU.


@pytest.mark.gpu
@on_gpu
@kinds
def test_what_is_recorded_is_what_is_done(kind) -> None:
    """The first batch is not recorded, the second is while it is written, the third was."""
    heads, plan = KINDS[kind]
    model, starts = network(heads, torch.bfloat16, "cuda"), [start_of(kind)] * 9
    found = []
    for _ in range(3):
        writer = begun(model, plan, starts)
        found.append(texts(writer))
    assert found[0] == found[1] == found[2]
    assert isinstance(writer.desk, RoomyDesk)
    assert any(graph is not None for graph in writer.desk._graphs.values())


@pytest.mark.gpu
@on_gpu
@kinds
def test_what_is_recorded_is_nearly_what_is_done_without_room(kind, monkeypatch) -> None:
    """Products of other shapes are rounded otherwise, which may change a token here or there."""
    heads, plan = KINDS[kind]
    model, starts = network(heads, torch.bfloat16, "cuda"), [start_of(kind)] * 32
    recorded = [texts(begun(model, plan, starts)) for _ in range(2)][1]
    monkeypatch.setattr(NetworkScorer, "recordable", False)
    plain = texts(begun(model, plan, starts))
    assert np.mean([one == other for one, other in zip(recorded, plain, strict=True)]) > 0.5


@pytest.mark.gpu
@on_gpu
def test_weights_that_change_in_their_places_are_read_anew() -> None:
    heads, plan = KINDS["counted"]
    model = network(heads, torch.bfloat16, "cuda")
    before = [texts(begun(model, plan, [blank()] * 4)) for _ in range(3)]
    with torch.no_grad():
        model.token_head.copy_(model.token_head.flip(0))
    assert texts(begun(model, plan, [blank()] * 4)) != before[-1]


def test_what_torch_keeps_for_later_is_given_back_before_recording_fails(room, monkeypatch) -> None:
    """While it records, torch gives nothing back: what it keeps may be all the memory there is."""
    heads, plan = KINDS["adaptive"]
    table, kept, tried = begun(network(heads), plan, [blank()] * 3).desk, [True], []
    monkeypatch.setattr(torch.cuda, "empty_cache", kept.clear)

    def recorded(*arguments):
        tried.append(arguments)
        if kept:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "a recording"

    monkeypatch.setattr(table, "_recorded", recorded)
    stage = table.do
    assert table._record(stage, 128, 7) == "a recording"
    assert tried == [(stage, 128, 7)] * 2


def test_other_faults_of_a_recording_are_told(room, monkeypatch) -> None:
    heads, plan = KINDS["adaptive"]
    table = begun(network(heads), plan, [blank()] * 3).desk

    def recorded(*_):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(table, "_recorded", recorded)
    with pytest.raises(RuntimeError, match="illegal"):
        table._record(table.do, 128, 0)


@pytest.mark.gpu
@on_gpu
def test_without_memory_for_recordings_texts_are_written_all_the_same(monkeypatch) -> None:
    heads, plan = KINDS["adaptive"]
    model, starts = network(heads, torch.bfloat16, "cuda"), [blank()] * 9
    expected, tried = texts(begun(model, plan, starts)), []

    def recorded(*_):
        tried.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(desk, "_desks", weakref.WeakKeyDictionary())
    with monkeypatch.context() as patch:
        patch.setattr(RoomyDesk, "_recorded", recorded)
        for batch in range(3):
            writer = begun(model, plan, starts)
            assert texts(writer) == expected
            assert set(writer.desk._graphs.values()) == {None}
            assert len(tried) <= 2 * (batch + 1)  # it is tried again for each batch, not each pass
    assert tried
    again = begun(model, plan, starts)
    assert again.desk is writer.desk
    assert texts(again) == expected
    assert any(again.desk._graphs.values())


if __name__ == "__main__":  # in the interpreter of Triton
    torch.cuda.device_of = lambda _: nullcontext()
    check_draws("cpu")
