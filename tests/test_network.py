import math

import numpy as np
import pytest
import torch

from didlm.data.batch import Budget, fill, make_batch
from didlm.kernels.attention import attention_plain, packed_attention
from didlm.laboratory import bounds
from didlm.loss import batch_loss, sequence_costs
from didlm.methods.did import DID
from didlm.methods.examples import Examples
from didlm.model.config import PRESETS, Heads, ModelConfig, preset
from didlm.model.length_prior import log_rate_prior, missing_dispersion
from didlm.model.transformer import Network, non_embedding_parameters
from didlm.objectives import dense
from didlm.packed import pack

VOCABULARY = 7


def small_network(timed: bool, seed: int = 0, **changes) -> Network:
    torch.manual_seed(seed)
    settings = {"layers": 2, "width": 24, "heads": 2, "feed_forward": 40} | changes
    config = ModelConfig(
        VOCABULARY,
        condition=8 if timed else None,
        normalised=not timed,
        mean_length=6.0,
        **settings,
    )
    network = Network(config).double()
    # Away from the start, where rates and time say nothing yet.
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return network.eval()


def examples(fixed: bool, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    lengths = [6] * 5 if fixed else [0, 1, 4, 9, 6]
    texts = [rng.integers(0, VOCABULARY, n) for n in lengths]
    method = DID(bos=0, fixed_length=fixed or None, given_share=0.5)
    return method.training_examples(texts, range(len(texts)), seed)


def double_batch(some: Examples):
    batch = make_batch(some)
    fields = {
        name: torch.from_numpy(getattr(some, name))
        for name in ("deleted", "count", "count_weight", "constant", "target")
    }
    return type(batch)(**{**vars(batch), **fields})


@pytest.mark.parametrize(
    ("name", "millions"), [("small", 85), ("medium", 302), ("large", 708), ("xl", 1030)]
)
@pytest.mark.parametrize("timed", [False, True])
def test_presets_have_the_papers_non_embedding_counts(name, millions, timed) -> None:
    with torch.device("meta"):
        network = Network(preset(name, 32_000, Heads(timed=timed)))
    assert non_embedding_parameters(network) / 1e6 == pytest.approx(millions, rel=0.01)


def test_small_presets_have_the_promised_sizes() -> None:
    with torch.device("meta"):
        tiny = Network(preset("tiny", 2048))
        mini = Network(preset("mini", 4096))
    assert 1e6 <= sum(p.numel() for p in tiny.parameters()) <= 2e6
    assert 6e6 <= sum(p.numel() for p in mini.parameters()) <= 8e6
    assert 2 * sum(p.numel() for p in mini.parameters()) < 16 * 2**20  # bytes in 16 bits


def test_unknown_presets_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no preset 'smal': did you mean 'small'"):
        preset("smal", 100)
    with pytest.raises(ValueError, match="known are tiny, mini"):
        preset("zzz", 100)
    assert set(PRESETS) == {"tiny", "mini", "small", "medium", "large", "xl"}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("changes", [{}, {"norm": "rms", "gated": True}], ids=["plain", "gated"])
def test_a_packed_batch_is_its_sequences_alone(timed, changes) -> None:
    network = small_network(timed, **changes)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, VOCABULARY, n) for n in (0, 3, 8)]
    spans = [np.zeros(0, int), np.array([1, 1, 0]), np.zeros(8, int)]
    u = torch.tensor([0.9, 0.2, 0.5], dtype=torch.float64)
    batch = pack(texts, bos=1, given=spans)
    together = network(batch, u, 9)
    for s, (text, span) in enumerate(zip(texts, spans, strict=True)):
        alone = network(pack([text], bos=1, given=[span]), u[s : s + 1], 9)
        rows = slice(*batch.offsets[s : s + 2].tolist())
        torch.testing.assert_close(together[rows], alone)


def test_the_network_reads_time_given_and_open() -> None:
    network = small_network(timed=True)
    plain, given = pack([[1, 2]], 0), pack([[1, 2]], 0, given=[[1, 2]])
    closed = given.close([0])
    u, later = (torch.tensor([x], dtype=torch.float64) for x in (0.3, 0.4))
    outputs = [network(plain, u, 3), network(given, u, 3), network(closed, u, 3)]
    outputs.append(network(plain, later, 3))
    for i, one in enumerate(outputs):
        for other in outputs[:i]:
            assert not torch.allclose(one, other)
    untimed = small_network(timed=False)
    torch.testing.assert_close(untimed(plain, u, 3), untimed(plain, later, 3))


@pytest.mark.parametrize("fixed", [False, True])
def test_batch_composition_does_not_change_a_sequences_cost(fixed) -> None:
    network, some = small_network(timed=not fixed), examples(fixed)
    batch = double_batch(some)
    together = sequence_costs(batch_loss(network, batch), batch)
    for s in range(len(some)):
        one = double_batch(some.part(s, s + 1))
        alone = batch_loss(network, one)
        torch.testing.assert_close(together[s], alone.total.detach())
        torch.testing.assert_close(sequence_costs(alone, one)[0], alone.total.detach())


@pytest.mark.parametrize("fixed", [False, True])
def test_loss_and_gradients_are_those_of_the_dense_objective(fixed) -> None:
    network = small_network(timed=not fixed)
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 3, 6) for _ in range(4)]
    method = DID(bos=0, fixed_length=fixed or None)
    some = method.training_examples(texts, range(4), seed=1)
    batch = double_batch(some)
    loss = batch_loss(network, batch).total
    sparse_gradients = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)

    hidden = network(batch.x_t, batch.deleted, batch.longest)
    log_rate = network.log_rate(hidden, batch.deleted, batch.x_t)
    logits = (hidden @ network.token_head.T)[:, :VOCABULARY]
    scores = log_rate.exp()[:, None] * logits.softmax(-1)
    table = np.zeros((batch.x_t.rows, VOCABULARY))
    table[some.row, some.token] = some.target
    total = torch.zeros((), dtype=torch.float64)
    for s in range(4):
        rows = slice(some.offsets[s], some.offsets[s + 1])
        weight = some.count_weight[some.offsets[s]]
        ratio = torch.from_numpy(table[rows] / weight)
        if fixed:
            cost = dense.dice(dense.normalise(scores[rows], ratio.sum()), ratio)
        else:
            cost = dense.dise(scores[rows], ratio)
        total = total + weight * cost
    torch.testing.assert_close(loss, total)
    dense_gradients = torch.autograd.grad(total, list(network.parameters()), allow_unused=True)
    for one, other in zip(sparse_gradients, dense_gradients, strict=True):
        # A network without time does not use u, and neither objective must.
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_total_loss_and_gradient_do_not_depend_on_the_budget() -> None:
    """Every example counts once with its own weight, whatever batch it falls into."""
    rng = np.random.default_rng(8)
    texts = [rng.integers(0, VOCABULARY, n) for n in rng.integers(0, 30, 60)]
    some = DID(bos=0, given_share=0.3).training_examples(texts, range(60), seed=2)
    results = []
    for budget in (Budget(1, 99, 99, 999), Budget(60, 60, 40, 90), Budget(99, 9999, 9999, 9999)):
        network = small_network(timed=True)
        total = 0.0
        for part in fill([some], budget):
            loss = batch_loss(network, double_batch(part)).total
            loss.backward()
            total += loss.item()
        results.append((total, [p.grad for p in network.parameters() if p.grad is not None]))
    for total, gradients in results[1:]:
        assert total == pytest.approx(results[0][0], rel=1e-9)
        torch.testing.assert_close(gradients, results[0][1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("fixed", [False, True], ids=["dise", "dice"])
@pytest.mark.parametrize("kind", ["evaluation", "training"])
def test_the_estimated_bound_is_the_exact_one(fixed, kind) -> None:
    """Draws, weights, targets, network and loss together against the laboratory."""
    network, text, many = small_network(timed=not fixed, seed=4), (1, 2, 1, 1), 1500

    def scores(state, u):
        batch = pack([state] * len(u), bos=0)
        hidden = network(batch, u, len(state) + 1)
        rates = network.log_rate(hidden, u, batch).exp()
        tokens = (hidden @ network.token_head.T)[:, :VOCABULARY].softmax(-1)
        return (rates[:, None] * tokens).view(len(u), len(state) + 1, VOCABULARY)

    with torch.no_grad():
        cost = bounds.dice if fixed else bounds.dise
        exact = bounds.over_time(cost, scores, text, VOCABULARY)
        method, texts = (
            DID(bos=0, fixed_length=fixed or None, untouched_share=0.4),
            [np.array(text)] * many,
        )
        if kind == "evaluation":
            some = method.evaluation_examples(texts, range(many), seed=3, draws=2)
        else:
            some = method.training_examples(texts, range(many), seed=3)
        batch = double_batch(some)
        costs = sequence_costs(batch_loss(network, batch), batch).numpy()
    estimates = np.bincount(some.number, costs)
    error = estimates.std() / np.sqrt(many)
    assert abs(estimates.mean() - exact) < 4.5 * error
    assert error < 0.05 * exact


def test_training_starts_at_the_prior() -> None:
    """For geometric lengths the rates are M u / (M (1 - u) + 1) at first, whatever is read."""
    network = Network(preset("tiny", 50))
    batch, u = pack([[1, 2, 3], []], 0), torch.tensor([0.5, 0.01])
    hidden = network(batch, u, 4)
    rates = network.log_rate(hidden, u, batch).exp()
    mean = network.config.mean_length
    expected = (mean * u / (mean * (1 - u) + 1))[batch.sequence]
    torch.testing.assert_close(rates, expected)


@pytest.mark.parametrize("dispersion", [0.0, 0.02, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("kept", [0, 1, 7, 30])
def test_the_prior_is_what_lengths_alone_tell(dispersion: float, kept: int) -> None:
    """With negative binomial lengths, against the sum over all of them (Eq. rate-prior)."""
    mean, m = 12.0, torch.arange(2000, dtype=torch.float64)
    if dispersion:
        shape = 1 / dispersion
        log_p = (m + shape).lgamma() - (m + 1).lgamma() + m * math.log(mean / (mean + shape))
    else:
        log_p = m * math.log(mean) - (m + 1).lgamma()
    u = torch.tensor([1.0, 0.9, 0.5, 0.01], dtype=torch.float64)[kept > 0 :]
    missing = m - kept
    ways = (m + 1).lgamma() - (missing.clamp(min=0) + 1).lgamma()
    log_weight = (log_p + ways + missing * u.log()[:, None]).masked_fill(missing < 0, -torch.inf)
    expected = (log_weight.softmax(-1) * missing).sum(-1) / (kept + 1)
    prior = log_rate_prior(pack([[1] * kept] * len(u), 0), u, mean, dispersion)
    torch.testing.assert_close(prior.exp(), expected, rtol=1e-9, atol=0)


def test_the_prior_knows_what_is_given() -> None:
    """Lengths that hardly vary leave little beyond what is given; geometric ones do not ask."""
    u = torch.ones(3, dtype=torch.float64)
    batch = pack([[], [1] * 30, [1] * 300], 0, given=[[], [1] * 30, [1] * 300])
    gaps = torch.tensor([1, 2, 2])
    narrow = gaps * log_rate_prior(batch, u, 100.0, 0.0).exp()
    assert narrow.tolist() == pytest.approx([100, 70.4, 1.5], rel=0.01)
    geometric = gaps * log_rate_prior(batch, u, 100.0, 1.0).exp()
    assert geometric.tolist() == pytest.approx([100, 100.2, 100.8], rel=0.01)


def test_activation_checkpointing_changes_nothing() -> None:
    plain, saving = small_network(timed=True).train(), small_network(timed=True).train()
    saving.checkpointing = True
    batch = double_batch(examples(fixed=False))
    for network in (plain, saving):
        batch_loss(network, batch).total.backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_sees_its_own_sequence_only(causal) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 9, 2, 4, dtype=torch.float64)
    offsets = torch.tensor([0, 4, 4, 9])  # an empty sequence too
    result = packed_attention(query, key, value, offsets, 5, causal)
    for first, last in ((0, 4), (4, 9)):
        q, k, v = (x[first:last].transpose(0, 1) for x in (query, key, value))
        scores = q @ k.transpose(1, 2) / 2
        if causal:
            later = torch.ones(last - first, last - first).triu(1).bool()
            scores = scores.masked_fill(later, -torch.inf)
        torch.testing.assert_close(result[first:last].transpose(0, 1), scores.softmax(-1) @ v)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("causal", [False, True])
def test_fast_attention_equals_plain_attention(causal) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 90, 2, 64, device="cuda", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 40, 41, 90], device="cuda")
    fast = packed_attention(query, key, value, offsets, 49, causal)
    truth = attention_plain(query.double(), key.double(), value.double(), offsets, 49, causal)
    plain = attention_plain(query, key, value, offsets, 49, causal)
    assert (fast - truth).norm() <= 1.5 * (plain - truth).norm() + 1e-3 * truth.norm()


def test_impossible_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match="width 10 cannot be split into 4 heads"):
        ModelConfig(10, layers=1, width=10, heads=4, feed_forward=8)
    with pytest.raises(ValueError, match="'layer' or 'rms'"):
        ModelConfig(10, layers=1, width=8, heads=2, feed_forward=8, norm="batch")
    with pytest.raises(ValueError, match="no tokens"):
        ModelConfig(0, layers=1, width=8, heads=2, feed_forward=8)


def test_uncertainty_is_that_of_what_lies_beyond_the_given_text() -> None:
    batch = pack([[], [1] * 8, [1] * 8], 0, given=[[], [0] * 8, [1] * 8])
    found = missing_dispersion(batch, 60.0, 0.9)
    assert found[:2].tolist() == pytest.approx([0.9, 0.9 / (1 + 0.9 * 8)])
    assert found[2] > 0.8  # it is given, and says little about how long the rest is
