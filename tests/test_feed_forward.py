"""The feed-forward layer that keeps half as much, against ordinary autograd."""

import pytest
import torch

from didlm.kernels.feed_forward import feed_forward, feed_forward_plain
from interpreter import needs_triton, runs_as_main

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def inputs(activation, rows=50, width=64, inner=96, device="cpu"):
    torch.manual_seed(0)
    twice = 2 if activation == "silu" else 1
    return [
        torch.randn(rows, width, device=device),
        torch.randn(twice * inner, width, device=device) / 4,
        torch.randn(width, inner, device=device) / 4,
        torch.randn(rows, width, device=device),
    ]


def run(function, rows, inward, outward, gradient, activation):
    leaves = [x.detach().requires_grad_() for x in (rows, inward, outward)]
    result = function(*leaves, activation)
    return [result.detach(), *torch.autograd.grad(result, leaves, gradient.to(result.dtype))]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_the_kernels_are_as_exact_as_autocast(activation) -> None:
    given = inputs(activation, rows=500, device="cuda")
    truth = run(feed_forward_plain, *(x.double() for x in given), activation)
    with torch.autocast("cuda", torch.bfloat16):
        plain = run(feed_forward_plain, *given, activation)
        fast = run(feed_forward, *given, activation)
    for one, other, right in zip(fast, plain, truth, strict=True):
        assert (one - right).norm() <= 1.1 * (other - right).norm()


@pytest.mark.gpu
@on_gpu
def test_only_the_gradients_that_are_needed() -> None:
    rows, inward, outward, gradient = inputs("gelu", device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        feed_forward(rows.requires_grad_(), inward, outward, "gelu").backward(gradient.bfloat16())
        assert rows.grad is not None
        assert not feed_forward(rows.detach(), inward, outward, "gelu").requires_grad


@needs_triton
def test_the_kernels_are_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


def interpret() -> None:
    from didlm.kernels.feed_forward import _FeedForward

    for activation in ("gelu", "silu"):
        given = [x.half() for x in inputs(activation, rows=7, width=8, inner=12)]
        truth = run(feed_forward_plain, *(x.double() for x in given), activation)
        found = run(_FeedForward.apply, *given, activation)
        for one, right in zip(found, truth, strict=True):
            assert (one - right).norm() <= 2e-3 * right.norm(), activation


if __name__ == "__main__":
    interpret()
