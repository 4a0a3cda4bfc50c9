"""Padded batches cost what they cost without."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from didlm.data.batch import make_batch
from didlm.data.padding import DUMMIES, Shape, Shapes, padded
from didlm.data.tokenizer import Tokenizer
from didlm.loss import batch_loss, sequence_costs
from didlm.methods.registry import OURS, find_method
from didlm.model.config import preset
from didlm.model.transformer import Network

TOKENIZER = Tokenizer.train_bpe(["red fox and blue owl"] * 3, 270)


def a_batch(name: str, lengths: list[int], seed: int):
    method = find_method(name).build(TOKENIZER, fixed_length=9, given_share=0.5)
    rng = np.random.default_rng(seed)
    lengths = [9] * len(lengths) if method.length else lengths
    texts = [rng.integers(1, 270, n) for n in lengths]
    return method, make_batch(method.training_examples(texts, range(len(texts)), seed))


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=12)
@forall(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 30))
def test_padding_changes_neither_cost_nor_gradients(name, lengths, more, seed) -> None:
    method, batch = a_batch(name, lengths, seed)
    torch.manual_seed(0)
    config = preset("tiny", TOKENIZER.vocabulary, method.heads)
    network = Network(replace(config, layers=1, width=32, heads=2))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    shape = Shapes(len(lengths) + more).fitting(batch)
    whole = padded(batch, shape)
    gradients = []
    for one in (batch, whole):
        network.zero_grad()
        loss = batch_loss(network, one)
        loss.total.backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
        costs = sequence_costs(loss, one)[: len(lengths)]
        if one is batch:
            total, before = loss.total, costs
    torch.testing.assert_close(loss.total, total, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(costs, before, rtol=1e-4, atol=1e-4)
    assert len(gradients[0]) == len(gradients[1])
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() <= 1e-4 * (1 + other.norm())
    assert len(whole.x_t) == len(lengths) + more + DUMMIES
    assert whole.x_t.rows == int(whole.x_t.offsets[-1]) == shape.rows
    assert int(whole.x_t.offsets.diff().max()) <= whole.longest


def test_similar_batches_have_few_shapes() -> None:
    chooser, shapes = Shapes(40), []
    for seed in range(40):
        _, batch = a_batch("did", [100] * 40, seed)
        shapes.append(chooser.fitting(batch))
    assert len(set(shapes[20:])) <= 10
    assert len({x.generation for x in shapes[-5:]}) == 1


def test_what_does_not_fit_is_refused() -> None:
    _, batch = a_batch("did", [5, 5], 0)
    with pytest.raises(ValueError, match="rows cannot be padded to"):
        padded(batch, Shape(3, batch.x_t.rows, 100, 100, 100))


def test_batches_that_differ_much_have_not_many_shapes() -> None:
    chooser, rng, shapes = Shapes(20), np.random.default_rng(0), []
    for seed in range(120):
        _, batch = a_batch("did", rng.integers(1, 400, 20).tolist(), seed)
        shapes.append(chooser.fitting(batch))
        assert shapes[-1].rows > batch.x_t.rows
    assert len({x.rows for x in shapes[60:]}) <= 40
    assert shapes[0].generation < shapes[-1].generation


def test_stories_settle() -> None:
    """Lengths as those of stories: graphs are dropped a few times at the start, then no more."""
    chooser, rng, shapes = Shapes(32), np.random.default_rng(0), []
    for seed in range(150):
        lengths = np.clip(rng.gamma(5, 213 / 5, 32), 10, 1024).astype(int)
        _, batch = a_batch("did", lengths.tolist(), seed)
        shapes.append(chooser.fitting(batch))
    assert shapes[-1].generation <= 6
    assert len({x.generation for x in shapes[75:]}) <= 2


def test_no_more_rows_with_targets_than_rows() -> None:
    _, batch = a_batch("ar", [30] * 8, 0)
    shape = Shapes(8).fitting(batch)
    assert shape.target_rows <= shape.rows
