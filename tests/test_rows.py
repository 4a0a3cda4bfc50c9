"""Rows of a table and their gradients, against torch's indexing."""

import pytest
import torch

from didlm.kernels.rows import add_rows_, with_rows
from interpreter import needs_triton, runs_as_main

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("used", ["both", "rows", "table"])
def test_gradients_are_those_of_indexing(device, used) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.manual_seed(0)
    table = torch.randn(9, 5, device=device, requires_grad=True)
    rows = torch.tensor([7, 0, 3, 8, 8], device=device)
    weight = torch.randn(5, 5, device=device)
    weight[3:] = 0  # row 8 is a dummy
    outer = torch.randn(9, 5, device=device)
    same, some = with_rows(table, rows)
    assert torch.equal(same, table)
    assert torch.equal(some, table[rows])
    cost = (some * weight).sum() * (used != "table") + (same * outer).sum() * (used != "rows")
    other = (table[rows] * weight).sum() * (used != "table")
    other = other + (table * outer).sum() * (used != "rows")
    for one, right in zip(
        torch.autograd.grad(cost, table), torch.autograd.grad(other, table), strict=True
    ):
        torch.testing.assert_close(one, right)


@needs_triton
def test_the_kernel_is_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


if __name__ == "__main__":
    from didlm.kernels import rows_triton

    torch.manual_seed(0)
    table, rows, values = torch.randn(6, 5), torch.tensor([4, 0, 2]), torch.randn(3, 5)
    expected = table.clone()
    add_rows_(expected, rows, values)
    rows_triton.add_rows_(table, rows, values)
    torch.testing.assert_close(table, expected)
