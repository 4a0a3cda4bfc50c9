from dataclasses import dataclass

import pytest
import torch
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from didlm.kernels.token_loss import token_loss, token_loss_plain

TWINS = pytest.mark.parametrize("twin", [token_loss, token_loss_plain])
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@dataclass
class Case:
    """Random states, head and soft targets: one to four per row, but none in every fifth row."""

    hidden: Tensor
    weight: Tensor
    row: Tensor
    token: Tensor
    target: Tensor
    vocabulary: int

    @classmethod
    def draw(
        cls,
        seed: int,
        dtype: torch.dtype = torch.float64,
        rows: int = 23,
        width: int = 16,
        vocabulary: int = 50,
        padded: int = 128,
    ) -> "Case":
        generator = torch.Generator().manual_seed(seed)
        options = {"generator": generator, "dtype": torch.float64}
        hidden, weight = torch.randn(rows, width, **options), torch.randn(padded, width, **options)
        weight *= 2 / width**0.5
        number = torch.randint(1, 5, (rows,), generator=generator)
        number[2::5] = 0
        row = torch.arange(rows).repeat_interleave(number)
        token = torch.randint(0, vocabulary, row.shape, generator=generator)
        target = torch.rand(len(row), **options)
        target[::7] = 0
        leaves = [x.to(dtype).requires_grad_() for x in (hidden, weight)]
        return cls(*leaves, row, token, target, vocabulary)

    def to(self, device: str) -> "Case":
        leaves = [x.detach().to(device).requires_grad_() for x in (self.hidden, self.weight)]
        others = [x.to(device) for x in (self.row, self.token, self.target)]
        return Case(*leaves, *others, self.vocabulary)

    def all(self, twin, upstream: float = 1.0, **options) -> list[Tensor]:
        """Loss, log-probabilities, gradients of the states and of the head."""
        loss, log_prob = twin(
            self.hidden, self.weight, self.row, self.token, self.target, self.vocabulary, **options
        )
        assert loss.ndim == 0
        assert not log_prob.requires_grad
        gradients = torch.autograd.grad(upstream * loss, (self.hidden, self.weight))
        for gradient, leaf in zip(gradients, (self.hidden, self.weight), strict=True):
            assert gradient.dtype == leaf.dtype
        return [loss.detach(), log_prob, *gradients]

    def truth(self) -> list[Tensor]:
        """The same from the definition, in float64."""
        hidden, weight = self.hidden.detach().double(), self.weight.detach().double()
        target = self.target.double()
        logits = hidden @ weight[: self.vocabulary].T
        probability = logits.exp() / logits.exp().sum(1, keepdim=True)
        log_prob = probability[self.row, self.token].log()
        table = torch.zeros_like(probability)
        table.index_put_((self.row, self.token), target, accumulate=True)
        gradient = table.sum(1, keepdim=True) * probability - table
        weight_grad = torch.zeros_like(weight)
        weight_grad[: self.vocabulary] = gradient.T @ hidden
        hidden_grad = gradient @ weight[: self.vocabulary]
        return [-(target * log_prob).sum(), log_prob, hidden_grad, weight_grad]


def assert_all_close(one: list[Tensor], other: list[Tensor], **tolerance) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@TWINS
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_both_twins_tell_the_truth(twin, seed, dtype, digits) -> None:
    case = Case.draw(seed, dtype)
    values = case.all(twin)
    assert all(x.dtype == dtype for x in values)
    assert_all_close(values, case.truth(), atol=digits, rtol=digits, check_dtype=False)


@settings(deadline=None, max_examples=50)
@forall(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 12),
    width=st.integers(1, 6),
    vocabulary=st.integers(1, 9),
    padding=st.integers(0, 5),
    chunk=st.integers(1, 15),
    scale=st.sampled_from([1.0, 0.25, 1000.0]),
)
def test_the_twins_agree_for_any_shape(
    seed, rows, width, vocabulary, padding, chunk, scale
) -> None:
    case = Case.draw(seed, torch.float64, rows, width, vocabulary, vocabulary + padding)
    fast, plain = case.all(token_loss, chunk=chunk, scale=scale), case.all(token_loss_plain)
    assert_all_close(fast, plain)
    assert_all_close(fast, case.truth())


def errors(twin, dtype: torch.dtype, device: str = "cpu", **options) -> Tensor:
    """Root mean square errors, over many cases, of loss, log_prob and the two gradients."""
    squares = []
    for seed in range(10):
        case = Case.draw(seed, dtype, rows=48, width=32).to(device)
        pairs = zip(case.all(twin, **options), case.truth(), strict=True)
        squares.append(torch.stack([(x.double() - y).square().sum() for x, y in pairs]))
    return torch.stack(squares).mean(0).sqrt()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk", [1, 16])
def test_in_16_bits_the_fast_twin_is_no_less_exact(dtype, chunk) -> None:
    fast, plain = errors(token_loss, dtype, chunk=chunk), errors(token_loss_plain, dtype)
    assert (fast <= 1.1 * plain).all(), f"{fast.tolist()} against {plain.tolist()}"


@TWINS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_the_softmax_is_in_float32(twin, dtype) -> None:
    loss, log_prob, *gradients = Case.draw(0, dtype).all(twin)
    assert loss.dtype == log_prob.dtype == torch.float32
    assert gradients[0].dtype == gradients[1].dtype == dtype


@pytest.mark.parametrize("chunk", [1, 3, 22, 23, 24, 1000])
def test_the_chunk_does_not_matter(chunk) -> None:
    case = Case.draw(1)
    assert_all_close(case.all(token_loss, chunk=chunk), case.all(token_loss_plain, chunk=chunk))


def test_gradients_by_finite_differences() -> None:
    case = Case.draw(2, rows=7, width=3, vocabulary=5, padded=6)

    def loss(hidden: Tensor, weight: Tensor) -> Tensor:
        return token_loss(hidden, weight, case.row, case.token, case.target, 5, 2.0, 3)[0]

    assert torch.autograd.gradcheck(loss, (case.hidden, case.weight))


@TWINS
def test_the_upstream_gradient_is_multiplied_in(twin) -> None:
    case = Case.draw(3)
    *values, hidden_grad, weight_grad = case.truth()
    expected = [*values, -2.5 * hidden_grad, -2.5 * weight_grad]
    assert_all_close(case.all(twin, upstream=-2.5), expected)
    assert_all_close(case.all(twin, upstream=-2.5, scale=torch.tensor([8.0])), expected)


def test_gradients_can_be_asked_for_twice() -> None:
    case = Case.draw(3)
    leaves = (case.hidden, case.weight)
    loss, _ = token_loss(*leaves, case.row, case.token, case.target, case.vocabulary)
    first = [x.clone() for x in torch.autograd.grad(loss, leaves, retain_graph=True)]
    second = torch.autograd.grad(3 * loss, leaves)
    assert_all_close([3 * x for x in first], list(second))


@TWINS
def test_unequal_weights_of_two_tokens_balance_where_they_should(twin) -> None:
    # With logits log(3) and log(1), the targets 3/2 and 1/2 want nothing changed.
    hidden = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[3.0], [1.0]], dtype=torch.float64).log().requires_grad_()
    row, token = torch.tensor([0, 0]), torch.tensor([0, 1])
    loss, log_prob = twin(hidden, weight, row, token, torch.tensor([1.5, 0.5]), 2)
    loss.backward()
    torch.testing.assert_close(log_prob.exp(), torch.tensor([0.75, 0.25], dtype=torch.float64))
    torch.testing.assert_close(weight.grad, torch.zeros_like(weight))


@TWINS
def test_rows_without_targets_get_no_gradient(twin) -> None:
    case = Case.draw(4)
    hidden_grad = case.all(twin)[2]
    without = torch.bincount(case.row, case.target, minlength=len(case.hidden)) == 0
    assert without.sum() >= 4
    assert (hidden_grad[without] == 0).all()
    assert (hidden_grad[~without] != 0).any(1).all()


@TWINS
def test_a_zero_target_costs_nothing_even_if_it_is_impossible(twin) -> None:
    hidden = torch.tensor([[1.0], [1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [-torch.inf], [0.0]], requires_grad=True)
    row, token = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    loss, log_prob = twin(hidden, weight, row, token, torch.tensor([1.0, 0.0, 0.0]), 3)
    assert loss.item() == pytest.approx(torch.tensor(2.0).log().item())
    assert log_prob[1:].tolist() == [-torch.inf, -torch.inf]
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.flatten().tolist() == [-0.5, 0, 0.5]
    # Wanted, it costs infinitely much.
    assert twin(hidden, weight, row, token, torch.ones(3), 3)[0].item() == torch.inf


@TWINS
def test_padding_never_gets_probability(twin) -> None:
    case = Case.draw(5)
    expected = case.all(twin)
    with torch.no_grad():
        case.weight[case.vocabulary :] = 1e30
    values = case.all(twin)
    assert_all_close(values, expected)
    assert (values[3][case.vocabulary :] == 0).all()


@TWINS
@pytest.mark.parametrize(("rows", "targets"), [(0, 0), (6, 0)])
def test_without_rows_or_targets_there_is_no_loss(twin, rows, targets) -> None:
    case = Case.draw(6, rows=rows)
    none = slice(0, targets)
    case.row, case.token, case.target = case.row[none], case.token[none], case.target[none]
    loss, log_prob, *gradients = case.all(twin)
    assert loss == 0
    assert log_prob.shape == (0,)
    assert all((gradient == 0).all() for gradient in gradients)


@TWINS
def test_any_order_layout_and_integers_will_do(twin) -> None:
    case = Case.draw(7)
    expected = case.all(twin)
    order = torch.randperm(len(case.row), generator=torch.Generator().manual_seed(0))
    case.row, case.token = case.row[order].int(), case.token[order].short()
    case.target = case.target[order].float().double()
    case.hidden, case.weight = (
        x.detach().T.contiguous().T.requires_grad_() for x in (case.hidden, case.weight)
    )
    expected[1] = expected[1][order]
    assert_all_close(case.all(twin), expected, atol=1e-6, rtol=1e-6)


# Loss scale.


def test_tiny_gradients_survive_float16_only_with_the_loss_scale() -> None:
    case = Case.draw(8, torch.float16)
    case.target *= 1e-9
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)

    def gradients(scale: float | Tensor) -> list[Tensor]:
        case.hidden.grad = case.weight.grad = None
        loss, _ = token_loss(
            case.hidden, case.weight, case.row, case.token, case.target, case.vocabulary, scale, 5
        )
        assert loss.item() == pytest.approx(case.truth()[0].item(), rel=1e-3)
        scaler.scale(loss).backward()
        return [x.grad.double() / scaler.get_scale() for x in (case.hidden, case.weight)]

    expected = case.truth()[2:]
    for scale in (scaler.get_scale(), torch.tensor(scaler.get_scale())):
        for gradient, exact in zip(gradients(scale), expected, strict=True):
            assert (gradient - exact).norm() < 2e-3 * exact.norm()
    assert all((gradient == 0).all() for gradient in gradients(scale=1.0))


# Work and memory: what the kernel does not do.


class Watch(TorchDispatchMode):
    """Counts matrix products, and remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.largest = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.products += function.__name__.startswith(("mm", "addmm", "matmul"))
        if isinstance(result, Tensor):
            self.largest = max(self.largest, result.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_times_vocabulary_is_never_held(dtype) -> None:
    case = Case.draw(9, dtype, rows=100, width=4)
    with Watch() as watch:
        case.all(token_loss, chunk=6)
    assert watch.largest == 6 * 128
    with Watch() as watch:
        case.all(token_loss_plain)
    assert watch.largest == 100 * 128


@pytest.mark.parametrize(("hidden", "weight", "products"), [(0, 0, 4), (1, 0, 8), (0, 1, 8)])
def test_only_the_gradients_that_are_needed_are_made(hidden, weight, products) -> None:
    case = Case.draw(10, rows=20)
    expected = case.truth()
    case.hidden.requires_grad_(bool(hidden))
    case.weight.requires_grad_(bool(weight))
    with Watch() as watch:
        loss, log_prob = token_loss(*vars(case).values(), chunk=5)
    assert watch.products == products
    assert_all_close([loss.detach(), log_prob], expected[:2])
    assert loss.requires_grad == bool(hidden or weight)
    if loss.requires_grad:
        loss.backward()
    for leaf, gradient in zip((case.hidden, case.weight), expected[2:], strict=True):
        if leaf.requires_grad:
            torch.testing.assert_close(leaf.grad, gradient)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_autograd_only_the_loss_is_made(without) -> None:
    case = Case.draw(10, rows=20)
    with without(), Watch() as watch:
        loss, log_prob = token_loss(*vars(case).values(), chunk=5)
    assert watch.products == 4
    assert not loss.requires_grad
    assert_all_close([loss, log_prob], case.truth()[:2])


def test_the_gradients_are_handed_over_without_a_copy() -> None:
    case = Case.draw(11)
    loss, _ = token_loss(*vars(case).values())
    _, _, weight_grad = loss.grad_fn.saved_tensors
    address = weight_grad.data_ptr()
    del weight_grad
    loss.backward()
    assert case.weight.grad.data_ptr() == address


# Surroundings.


@TWINS
def test_under_autocast_it_multiplies_as_a_linear_layer_does(twin) -> None:
    case = Case.draw(12, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = case.all(twin)
    assert mixed[0].dtype == torch.float32
    rounded = Case.draw(12, torch.bfloat16)
    torch.testing.assert_close(mixed[1], rounded.all(twin)[1])
    assert_all_close(mixed, rounded.truth(), atol=0.05, rtol=0.05, check_dtype=False)
    # The head's gradient has not been through 16 bits, unless autograd brought it there.
    in_16_bits = torch.equal(mixed[3], mixed[3].bfloat16().float())
    assert in_16_bits == (twin is token_loss_plain)


# Dynamo itself asks for .grad at every graph break, and so trips over a warning of torch's.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_surroundings_break_at_it_and_agree() -> None:
    backends = []

    def backend(graph, inputs):
        backends.append(graph)
        return graph.forward

    def step(case: Case) -> Tensor:
        hidden = 2 * case.hidden
        loss, log_prob = token_loss(
            hidden, case.weight, case.row, case.token, case.target, case.vocabulary, chunk=4
        )
        return 3 * loss + log_prob.sum()

    compiled = torch.compile(step, backend=backend)
    for rows in (9, 14, 21, 30, 41):
        case = Case.draw(13, rows=rows)
        leaves = (case.hidden, case.weight)
        value, expected = compiled(case), step(case)
        torch.testing.assert_close(value, expected)
        assert_all_close(
            list(torch.autograd.grad(value, leaves)), list(torch.autograd.grad(expected, leaves))
        )
    assert 1 <= len(backends) <= 4  # before and after, at most once more for other sizes


@TWINS
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token": torch.tensor([0, 3, 5])}, "token has 5 at position 2"),
        ({"token": torch.tensor([0, -1, 1])}, "token has -1 at position 1"),
        ({"token": torch.tensor([0.0, 1.0, 1.0])}, "token must be integers"),
        ({"row": torch.tensor([0, 1, 4])}, "row has 4 at position 2: .* below 4"),
        ({"row": torch.tensor([-1, 0, 3])}, "row has -1 at position 0"),
        ({"row": torch.tensor([True, False, True])}, "row must be integers: got torch.bool"),
        ({"row": torch.tensor([0, 1])}, r"equally long: got shapes \(2,\), \(3,\) and \(3,\)"),
        ({"target": torch.ones(3, 1)}, "one-dimensional and equally long"),
        ({"hidden": torch.ones(4, 2)}, r"one width: got shapes \(4, 2\) and \(8, 3\)"),
        ({"hidden": torch.ones(1, 4, 3)}, "two tables of one width"),
        ({"weight": torch.ones(3)}, "two tables of one width"),
        ({"weight": torch.ones(8, 3).bfloat16()}, "of one dtype, or under autocast"),
        ({"hidden": torch.ones(4, 3).long(), "weight": torch.ones(8, 3).long()}, "floating-point"),
        ({"vocabulary": 9}, "the head has 8 rows: no vocabulary of 9 tokens"),
        ({"vocabulary": 0}, "no vocabulary of 0 tokens"),
        ({"chunk": 0}, "at least one row: got 0"),
        ({"scale": torch.ones(2)}, r"scale must be one number: got shape \(2,\)"),
    ],
)
def test_wrong_input_is_refused(twin, change, message) -> None:
    arguments = {
        "hidden": torch.ones(4, 3),
        "weight": torch.ones(8, 3),
        "row": torch.tensor([0, 1, 3]),
        "token": torch.tensor([0, 3, 4]),
        "target": torch.ones(3),
        "vocabulary": 5,
    }
    twin(**arguments)
    with pytest.raises(ValueError, match=message):
        twin(**arguments | change)


# On a GPU.


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_cuda_twins_tell_the_truth(dtype) -> None:
    digits = 1e-12 if dtype == torch.float64 else 1e-5
    case = Case.draw(14, dtype).to("cuda")
    expected = case.truth()
    for values in (case.all(token_loss, chunk=4), case.all(token_loss_plain)):
        assert_all_close(values, expected, atol=digits, rtol=digits, check_dtype=False)


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk", [7, 16, 100])
def test_cuda_in_16_bits_the_fast_twin_is_no_less_exact(dtype, chunk) -> None:
    fast = errors(token_loss, dtype, "cuda", chunk=chunk)
    plain = errors(token_loss_plain, dtype, "cuda")
    assert (fast <= 1.1 * plain).all(), f"{fast.tolist()} against {plain.tolist()}"


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [4.0, torch.tensor(4.0)])
def test_cuda_never_waits_for_the_device(dtype, scale) -> None:
    case = Case.draw(15, dtype).to("cuda")
    case.all(token_loss, chunk=4)
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = case.all(token_loss, chunk=4, scale=scale)  # a wait would raise
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(bool(result.isfinite().all()) for result in results)


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cuda_any_order_layout_and_integers_will_do_in_16_bits(dtype) -> None:
    case = Case.draw(16, dtype).to("cuda")
    expected = case.all(token_loss, is_sorted=True)
    order = torch.randperm(len(case.row), generator=torch.Generator().manual_seed(0)).cuda()
    case.row, case.token = case.row[order].int(), case.token[order].short()
    case.target = case.target[order]
    case.hidden, case.weight = (
        x.detach().T.contiguous().T.requires_grad_() for x in (case.hidden, case.weight)
    )
    expected[1] = expected[1][order]
    assert_all_close(case.all(token_loss, chunk=5), expected, atol=0.02, rtol=0.02)


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize(("rows", "targets"), [(0, 0), (6, 0), (1, 1)])
def test_cuda_few_rows_and_targets_in_16_bits(rows, targets) -> None:
    case = Case.draw(17, torch.bfloat16, rows=rows).to("cuda")
    few = slice(0, targets)
    case.row, case.token, case.target = case.row[few], case.token[few], case.target[few] + 1
    values, expected = case.all(token_loss), case.truth()
    assert_all_close(values, expected, atol=0.02, rtol=0.02, check_dtype=False)


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("needed", [(False, False), (True, False), (False, True)])
def test_cuda_only_the_gradients_that_are_needed_are_made(needed) -> None:
    case = Case.draw(18, torch.bfloat16, rows=20).to("cuda")
    expected = case.all(token_loss, chunk=5)
    leaves = case.hidden, case.weight
    for leaf, need in zip(leaves, needed, strict=True):
        leaf.requires_grad_(need)
    with Watch() as watch:
        loss, log_prob = token_loss(*vars(case).values(), chunk=5)
    assert watch.products == 4 * (1 + sum(needed))
    assert_all_close([loss.detach(), log_prob], expected[:2])
    if any(needed):
        loss.backward()
    for leaf, need, gradient in zip(leaves, needed, expected[2:], strict=True):
        if need:
            torch.testing.assert_close(leaf.grad, gradient)


@pytest.mark.gpu
@CUDA
def test_cuda_under_autocast_the_gradient_of_the_head_keeps_its_digits() -> None:
    case = Case.draw(19, torch.float32).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        mixed = case.all(token_loss, chunk=7)
    rounded = Case.draw(19, torch.bfloat16).to("cuda")
    torch.testing.assert_close(mixed[1], rounded.all(token_loss, chunk=7)[1])
    assert_all_close(mixed, rounded.truth(), atol=0.05, rtol=0.05, check_dtype=False)
    assert not torch.equal(mixed[3], mixed[3].bfloat16().float())


@pytest.mark.gpu
@CUDA
def test_cuda_tiny_gradients_survive_float16_with_the_loss_scale() -> None:
    case = Case.draw(20, torch.float16).to("cuda")
    case.target *= 1e-9
    expected = case.truth()[2:]
    for scale in (2.0**20, torch.tensor(2.0**20), torch.tensor(2.0**20, device="cuda")):
        found = case.all(token_loss, upstream=2.0**20, scale=scale, chunk=5)[2:]
        for gradient, exact in zip(found, expected, strict=True):
            assert (gradient.double() / 2.0**20 - exact).norm() < 2e-3 * exact.norm()


@pytest.mark.gpu
@CUDA
def test_cuda_memory_is_that_of_a_chunk_and_the_gradients() -> None:
    case = Case.draw(21, torch.bfloat16, rows=4096, width=64, vocabulary=8000, padded=8192)
    case = case.to("cuda")
    case.all(token_loss, chunk=512)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    token_loss(*vars(case).values(), chunk=512)
    rise = torch.cuda.max_memory_allocated() - before
    logits, gradients = 512 * 8192 * 2, 4096 * 64 * 2 + 8192 * 64 * 4
    assert logits < rise < 1.2 * (logits + gradients) + 2**20


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cuda_a_captured_graph_takes_new_values_and_padding(dtype) -> None:
    case, other = (Case.draw(seed, dtype, rows=40).to("cuda") for seed in (22, 23))
    # The graph's arrays are larger: rows without targets, targets without weight.
    room = 200 - len(case.row)
    case.row = torch.cat([case.row, case.row.new_full((room,), 47)])
    case.token = torch.cat([case.token, case.token.new_zeros(room)])
    case.target = torch.cat([case.target, case.target.new_zeros(room)])
    states = torch.zeros(48, case.hidden.shape[1], dtype=dtype, device="cuda")
    states[:40] = case.hidden.detach()
    case.hidden = states.requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.all(token_loss, chunk=16, is_sorted=True)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = case.all(token_loss, chunk=16, is_sorted=True)
    count = len(other.row)
    with torch.no_grad():
        case.hidden[:40] = other.hidden
        case.weight.copy_(other.weight)
        case.row[count:], case.target[count:] = 47, 0
        for name in ("row", "token", "target"):
            getattr(case, name)[:count] = getattr(other, name)
    graph.replay()
    loss, log_prob, hidden_grad, weight_grad = results
    expected = other.all(token_loss, chunk=16)
    found = [loss, log_prob[:count], hidden_grad[:40], weight_grad]
    assert_all_close(found, expected, atol=0.02, rtol=0.02)
    assert (hidden_grad[40:] == 0).all()
