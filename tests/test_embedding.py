"""Embeddings of tokens and flags in one pass, against torch's."""

import pytest
import torch

from didlm.kernels.embedding import embed, embed_plain
from interpreter import needs_triton, runs_as_main

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def inputs(flags: bool, device="cpu", rows=70, width=48):
    torch.manual_seed(0)
    tables = torch.randn(11, width, device=device), torch.randn(4, width, device=device)
    tokens, kinds = torch.randint(0, 11, (rows,)), torch.randint(0, 4, (rows,))
    kinds[:40] = 1  # many of one kind
    gradient = torch.randn(rows, width).half().to(device)
    chosen = (kinds.to(device), tables[1]) if flags else (None, None)
    return [tokens.to(device), tables[0], *chosen], gradient


def run(function, given, gradient):
    tokens, table, flags, flag_table = given
    leaves = [x.detach().requires_grad_() for x in (table, flag_table) if x is not None]
    rows = function(tokens, leaves[0], flags, leaves[1] if flags is not None else None)
    return [rows.detach(), *torch.autograd.grad(rows, leaves, gradient.to(rows.dtype))]


def check(function, device: str) -> None:
    for flags in (False, True):
        given, gradient = inputs(flags, device)
        truth = run(embed_plain, given, gradient)
        found = run(function, given, gradient)
        assert found[0].dtype == torch.float16
        torch.testing.assert_close(found[0].float(), truth[0], rtol=1e-3, atol=1e-3)
        for one, right in zip(found[1:], truth[1:], strict=True):
            torch.testing.assert_close(one, right, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@on_gpu
def test_the_kernels_are_right() -> None:
    def fast(*arguments):
        with torch.autocast("cuda", torch.float16):
            return embed(*arguments)

    check(fast, "cuda")


@pytest.mark.gpu
@on_gpu
def test_a_token_that_does_not_exist_harms_nothing() -> None:
    given, gradient = inputs(True, "cuda")
    given[0] = given[0].clone()
    given[0][3] = 99
    with torch.autocast("cuda", torch.float16):
        rows, of_tokens, _ = run(embed, given, gradient)
    assert rows[3].isnan().all()
    assert of_tokens.isfinite().all()


@needs_triton
def test_the_kernels_are_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


if __name__ == "__main__":
    from didlm.kernels.embedding import _Embed

    check(lambda *given: _Embed.apply(*given, torch.float16), "cpu")
