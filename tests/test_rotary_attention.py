import itertools
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from didlm.kernels.rotary_attention import (
    rotary_angles,
    rotary_attention,
    rotary_attention_plain,
)
from didlm.kernels.slots import Slots
from interpreter import needs_triton, runs_as_main

LENGTHS = [
    [40, 1, 0, 17, 64, 0, 70],  # the short, the empty, whole tiles and parts of one
    [0, 0, 5],
    [129],
    [1] * 9,
]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def packed(lengths: list[int], heads: int, channels: int, dtype: torch.dtype, device="cpu"):
    """Random queries, keys and values, the gradient of their mixture, rotation and offsets."""
    torch.manual_seed(0)
    counts = torch.tensor(lengths)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(device)
    position = torch.cat([torch.arange(n) for n in lengths]).to(device)
    qkv = torch.randn(len(position), 3, heads, channels).to(device, dtype)
    grad = torch.randn(len(position), heads, channels).to(device, dtype)
    return qkv, grad, rotary_angles(position, channels), offsets


def with_gradient(attention, qkv: Tensor, grad: Tensor, *arguments) -> list[Tensor]:
    """The mixture, and the gradients of queries, keys and values."""
    qkv = qkv.detach().requires_grad_()
    mixed = attention(qkv, *arguments)
    (gradient,) = torch.autograd.grad(mixed, qkv, grad)
    return [mixed.detach(), *gradient.unbind(1)]


def dense(qkv: Tensor, rotation, offsets: Tensor, longest: int, causal: bool) -> Tensor:
    """By complex numbers and one mask over all rows."""
    cosine, sine = (x.double() for x in rotation)
    turn = torch.complex(cosine, sine)
    halves = [torch.complex(*x.chunk(2, -1)) * turn for x in qkv.double()[:, :2].unbind(1)]
    query, key = (torch.cat([x.real, x.imag], -1) for x in halves)
    scores = torch.einsum("qhc,khc->hqk", query, key) / qkv.shape[-1] ** 0.5
    sequence = torch.searchsorted(offsets, torch.arange(len(qkv)), right=True)
    hidden = sequence[:, None] != sequence
    if causal:
        hidden |= torch.ones_like(hidden).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khc->qhc", weights, qkv[:, 2].double())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("attention", [rotary_attention, rotary_attention_plain])
def test_it_is_attention_of_rotated_rows_within_each_sequence(attention, lengths, causal) -> None:
    qkv, grad, rotation, offsets = packed(lengths, 2, 6, torch.float64)
    arguments = (qkv, grad, rotation, offsets, max(lengths), causal)
    for one, other in zip(
        with_gradient(attention, *arguments), with_gradient(dense, *arguments), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_only_the_distance_of_rows_counts() -> None:
    qkv, _, _, offsets = packed([12], 1, 8, torch.float64)
    near, far = (rotary_angles(torch.arange(12) + start, 8) for start in (0, 50))
    one, other = (rotary_attention(qkv, rotation, offsets, 12) for rotation in (near, far))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_triton_is_not_needed_to_import_it() -> None:
    code = "import sys; sys.modules['triton'] = None; import didlm.kernels.rotary_attention"
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_triton
def test_the_kernels_are_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


def interpret() -> None:
    """Run the kernels on the CPU, with memory that is not a number where nothing is written."""
    from didlm.kernels.rotary_attention import _RotaryAttention

    torch.use_deterministic_algorithms(True)
    lengths = [40, 1, 0, 17, 64, 0, 70]
    for channels, causal in itertools.product((32, 64), (False, True)):
        qkv, grad, rotation, offsets = packed(lengths, 1, channels, torch.float16)

        def kernels(qkv, rotation, offsets, causal):
            return _RotaryAttention.apply(qkv.clone(), *rotation, Slots(offsets, len(qkv)), causal)

        found = with_gradient(kernels, qkv, grad, rotation, offsets, causal)
        truth = with_gradient(
            rotary_attention_plain, qkv.double(), grad.double(), rotation, offsets, 70, causal
        )
        for one, other in zip(found, truth, strict=True):
            assert (one - other).norm() <= 1e-3 * other.norm()


def check_against_truth(lengths, heads, channels, causal, dtype) -> None:
    """An error no worse than that of plain attention in the same dtype, in all results."""
    qkv, grad, rotation, offsets = packed(lengths, heads, channels, dtype, "cuda")
    rest = (rotation, offsets, max(lengths), causal)
    truth = with_gradient(rotary_attention_plain, qkv.double(), grad.double(), *rest)
    plain = with_gradient(rotary_attention_plain, qkv, grad, *rest)
    # What is allocated next is then not a number where nothing is written.
    torch.full((1 << 22,), torch.nan, device="cuda")
    fast = with_gradient(rotary_attention, qkv, grad, *rest)
    for name, found, other, right in zip(("mixed", *"qkv"), fast, plain, truth, strict=True):
        assert found.dtype == dtype
        error, allowed = (found - right).norm(), 1.2 * (other - right).norm()
        # Where plain attention is exact by chance, as for a single row, rounding is allowed.
        rounding = torch.finfo(dtype).eps * grad.double().norm() / 2
        assert error <= allowed + (rounding if max(lengths) < 8 else 0), name


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("channels", "dtype"),
    [(32, torch.bfloat16), (64, torch.bfloat16), (128, torch.bfloat16), (64, torch.float16)],
)
@pytest.mark.parametrize("lengths", [*LENGTHS, [1100], [300, 1, 0, 511, 512, 513]], ids=str)
def test_the_kernel_is_as_exact_as_plain_attention(lengths, channels, dtype, causal) -> None:
    check_against_truth(lengths, 2, channels, causal, dtype)


@pytest.mark.gpu
@on_gpu
def test_the_kernel_works_for_random_lengths() -> None:
    for seed in range(5):
        lengths = torch.randint(0, 300, (40,), generator=torch.Generator().manual_seed(seed))
        check_against_truth(lengths.tolist(), 2, 64, False, torch.bfloat16)


@pytest.mark.gpu
@on_gpu
def test_what_other_sequences_hold_does_not_matter() -> None:
    lengths = [70, 5, 200, 33]
    qkv, grad, rotation, offsets = packed(lengths, 2, 64, torch.bfloat16, "cuda")
    together = with_gradient(rotary_attention, qkv, grad, rotation, offsets, 200)
    for first, last in itertools.pairwise(offsets.tolist()):
        part = tuple(x[first:last] for x in rotation)
        alone = with_gradient(
            rotary_attention, qkv[first:last], grad[first:last], part,
            torch.tensor([0, last - first], device="cuda"), last - first,
        )  # fmt: skip
        for one, other in zip(together, alone, strict=True):
            assert torch.equal(one[first:last], other)


@pytest.mark.gpu
@on_gpu
def test_it_compiles_whole_and_is_captured_as_a_graph_of_kernels() -> None:
    """Compiled it rotates, then attends, as a compiler can fuse it: the same up to rounding."""
    qkv, grad, rotation, offsets = packed([70, 5, 200, 33], 2, 64, torch.bfloat16, "cuda")
    expected = with_gradient(rotary_attention, qkv, grad, rotation, offsets, 200)
    compiled = torch.compile(rotary_attention, fullgraph=True)
    found = with_gradient(compiled, qkv, grad, rotation, offsets, 200)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = with_gradient(rotary_attention, qkv, grad, rotation, offsets, 200)
    for result in captured:
        result.zero_()
    graph.replay()
    for one, other in zip(captured, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@on_gpu
def test_no_rows_and_rows_that_lie_elsewhere() -> None:
    qkv, grad, rotation, offsets = packed([0, 0], 2, 64, torch.bfloat16, "cuda")
    assert with_gradient(rotary_attention, qkv, grad, rotation, offsets, 0)[0].shape == (0, 2, 64)
    qkv, grad, rotation, offsets = packed([9, 30], 2, 64, torch.bfloat16, "cuda")
    expected = with_gradient(rotary_attention, qkv, grad, rotation, offsets.int(), 30)
    scattered = qkv.transpose(1, 2).contiguous().transpose(1, 2)
    turned = grad.transpose(0, 1).contiguous().transpose(0, 1)
    found = with_gradient(rotary_attention, scattered, turned, rotation, offsets, 30)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


if __name__ == "__main__":
    interpret()
