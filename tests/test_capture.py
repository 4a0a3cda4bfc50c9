"""Steps as captured graphs: the same as steps that are not."""

import copy
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from didlm.data.corpus import Corpus
from didlm.data.loader import Loader, budget_for
from didlm.data.padding import Shapes, padded
from didlm.data.tokenizer import Tokenizer
from didlm.kernels import add_norm, embedding, feed_forward, linear, rotary_attention, rows
from didlm.kernels.twins import in_16_bits
from didlm.loss import batch_loss
from didlm.methods.registry import OURS, find_method
from didlm.model.config import Heads, preset
from didlm.model.transformer import Network
from didlm.train import capture
from didlm.train.settings import Settings
from didlm.train.state import State
from didlm.train.step import take_step
from didlm.train.world import World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
TOKENIZER = Tokenizer.train_bpe(["red fox and blue owl"] * 3, 300)
STEPS = 14


@pytest.fixture(autouse=True)
def _graphs_from_the_second_step_on(monkeypatch) -> None:
    monkeypatch.setattr(capture, "WATCHED", 1)


def begun(name: str, **changes) -> tuple[State, Settings, list]:
    """A run that is about to start, and the batches of its steps."""
    method = find_method(name).build(TOKENIZER, fixed_length=40, given_share=0.3)
    rng = np.random.default_rng(0)
    lengths = [40] * 64 if method.length else rng.integers(0, 80, 64)
    corpus = Corpus.of([rng.integers(1, TOKENIZER.vocabulary, n) for n in lengths])
    settings = Settings(device="cuda", precision="bf16", batch=16, warmup=0).changed(changes)
    torch.manual_seed(0)
    config = preset("mini", TOKENIZER.vocabulary, method.heads, settings.dropout)
    config = replace(config, mean_length=corpus.mean_length)
    state = State.start(Network(config).cuda(), settings, World(0, 1, torch.device("cuda")))
    loader = iter(Loader(corpus, method, budget_for(corpus, 16), 16, 0))
    return state, settings, [next(loader) for _ in range(STEPS)]


def learnt(name: str, **changes) -> tuple[State, list[float]]:
    state, settings, steps = begun(name, **changes)
    world = World(0, 1, torch.device("cuda"))
    outcomes = [take_step(state, batches, settings, world) for batches in steps]
    return state, [outcome.read().loss for outcome in outcomes]


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("name", OURS)
def test_graphs_learn_what_steps_do(name, optimiser) -> None:
    # A rate of 0.001 makes some courses chaotic: a last bit of a gradient changes the loss by 1 %.
    changes = {"optimiser": optimiser, "learning_rate": 3e-4}
    state, captured = learnt(name, **changes)
    assert state.captured is not None
    assert state.captured._graphs
    other, plain = learnt(name, **changes, capture=False)
    assert other.captured is None
    np.testing.assert_allclose(captured, plain, rtol=2e-3)
    assert captured[-1] < captured[0]
    assert all(math.isfinite(loss) for loss in captured)
    start, one, two = (
        torch.cat([p.detach().flatten() for p in each.network.parameters()])
        for each in (begun(name, **changes)[0], state, other)
    )
    # AdamW divides by the size of gradients: where those are rounding errors, so are its steps.
    assert (one - two).norm() <= 0.2 * (two - start).norm()


def test_steps_before_the_first_graph_learn_the_same(monkeypatch) -> None:
    """Batches of one shape come to lie in the same place: none is taken for the one before."""
    monkeypatch.setattr(capture, "WATCHED", STEPS)
    state, watched = learnt("did", learning_rate=1e-3)
    assert state.captured is not None
    assert state.captured.captures == 0
    assert len(state.captured._rooms) < STEPS / 2
    _, plain = learnt("did", learning_rate=1e-3, capture=False)
    np.testing.assert_allclose(watched, plain, rtol=2e-3)


def test_batches_are_packed_by_one_thread(monkeypatch) -> None:
    """Many wait for each other, and a GPU for them all."""
    seen, fill = [], capture.Room.fill

    def watching(room, batch):
        seen.append(torch.get_num_threads())
        fill(room, batch)

    monkeypatch.setattr(capture.Room, "fill", watching)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        learnt("did")
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_dropout_differs_from_step_to_step() -> None:
    state, settings, steps = begun("did", dropout=0.5, learning_rate=1e-9)
    world = World(0, 1, torch.device("cuda"))
    losses = [take_step(state, steps[0], settings, world).read().loss for _ in range(6)]
    assert len(set(losses)) == 6
    again, _, _ = begun("did", dropout=0.5, learning_rate=1e-9)
    repeated = [take_step(again, steps[0], settings, world).read().loss for _ in range(6)]
    np.testing.assert_allclose(losses, repeated, rtol=1e-4)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    state, settings, steps = begun("did", optimiser="adamw")
    world = World(0, 1, torch.device("cuda"))
    for _ in range(3):
        take_step(state, steps[0], settings, world).read()
    before = [p.clone() for p in state.network.parameters()]
    batch = steps[0][0]
    bad = replace(batch, constant=batch.constant + math.inf)
    assert take_step(state, [bad], settings, world).read().skipped == 1
    assert state.progress.bad_in_a_row == 1
    for one, other in zip(state.network.parameters(), before, strict=True):
        assert torch.equal(one, other)
    assert take_step(state, [batch], settings, world).read().skipped == 1
    assert state.progress.bad_in_a_row == 0
    state.settle()
    assert state.average.steps == 4


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_weights_in_16_bits_are_the_weights(optimiser) -> None:
    state, _ = learnt("did", optimiser=optimiser)
    twins = [(p, p.twin) for p in state.network.parameters() if hasattr(p, "twin")]
    assert len(twins) > 10
    for weight, twin in twins:
        assert torch.equal(weight.bfloat16(), twin)


def test_weights_that_somebody_else_changes_are_not_taken_for_their_twins() -> None:
    state, settings, steps = begun("did", optimiser="adamw", capture=False)
    world = World(0, 1, torch.device("cuda"))
    take_step(state, steps[0], settings, world).read()
    head = state.network.token_head
    assert in_16_bits(head, torch.bfloat16) is head.twin
    state.network.load_state_dict({k: v * 0 for k, v in state.network.state_dict().items()})
    assert not in_16_bits(head, torch.bfloat16).any()


def test_the_fast_network_is_as_exact_as_the_plain_one(monkeypatch) -> None:
    """Gradients in bf16 against float64, with all kernels and without any."""
    _, _, steps = begun("did")
    torch.manual_seed(0)
    config = preset("small", TOKENIZER.vocabulary, Heads())
    network = Network(replace(config, mean_length=40.0)).cuda()
    for name, parameter in network.named_parameters():
        if ".modulation." in name:
            torch.nn.init.normal_(parameter, std=0.02)

    def gradients(wide: bool = False) -> torch.Tensor:
        network.zero_grad()
        batch = steps[0][0].to("cuda")
        if wide:
            wider = {
                x.name: getattr(batch, x.name).double()
                for x in fields(batch)
                if isinstance(getattr(batch, x.name), torch.Tensor)
                and getattr(batch, x.name).is_floating_point()
            }
            copied = copy.deepcopy(network).double()
            batch_loss(copied, replace(batch, **wider)).total.backward()
        else:
            copied = network
            with torch.autocast("cuda", torch.bfloat16):
                cost = batch_loss(network, batch).total
            cost.backward()
        found = [p.grad.double().flatten() for p in copied.parameters() if p.grad is not None]
        return torch.cat(found)

    truth, fast = gradients(wide=True), gradients()
    for module in (add_norm, embedding, feed_forward, rotary_attention, rows):
        monkeypatch.setattr(module, "runs_triton", lambda tensor: False)
    monkeypatch.setattr(linear, "narrow_dtype", lambda tensor: None)
    plain = gradients()
    assert (fast - truth).norm() <= 1.1 * (plain - truth).norm()


def test_room_holds_a_batch() -> None:
    _, _, steps = begun("did")
    batch = padded(steps[0][0], Shapes(16).fitting(steps[0][0]))
    room = capture.Room(batch, torch.device("cuda"), torch.cuda.Stream())
    room.fill(batch)
    for one, other in zip(capture._tensors(room.batch), capture._tensors(batch), strict=True):
        assert torch.equal(one.cpu(), other)
