"""Adding, normalising and modulating in one pass, against the same step by step."""

import itertools

import pytest
import torch

from didlm.kernels.add_norm import Branch, Layout, Modulation, add_norm, add_norm_plain
from interpreter import needs_triton, runs_as_main

LENGTHS = [[5, 1, 0, 17, 40], [0, 3], [130]]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CASES = [
    # kind, branch, gate, modulation
    ("layer", False, False, False),
    ("layer", True, False, False),
    ("rms", True, False, False),
    ("layer", False, False, True),
    ("layer", True, True, True),
    ("rms", True, True, True),
    ("layer", True, True, False),
]


def inputs(lengths, width, has, device="cpu", dtype=torch.bfloat16):
    """All tensors that take gradients, a layout, and the gradients of both results."""
    torch.manual_seed(0)
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(device)
    rows, count = int(offsets[-1]), len(lengths)
    sequence = torch.arange(count, device=device).repeat_interleave(offsets.diff())
    _, branch, gate, modulation = has
    table = 0.5 * torch.randn(count, 3 * width)
    scale, shift, gates = table.to(device, dtype).chunk(3, -1)
    tensors = {
        "hidden": 3 * torch.randn(rows, width, device=device) + 1,
        "branch": torch.randn(rows, width).to(device, dtype) if branch else None,
        "gate": gates if gate else None,
        "weight": torch.randn(width, device=device),
        "scale": scale if modulation else None,
        "shift": shift if modulation else None,
    }
    gradients = torch.randn(rows, width, device=device), torch.randn(rows, width).to(device, dtype)
    return tensors, Layout(sequence, offsets), gradients


def run(function, tensors, layout, gradients, kind):
    """Both results, and the gradients of everything."""
    leaves = {
        name: None if x is None else x.detach().requires_grad_() for name, x in tensors.items()
    }
    branch = None if leaves["branch"] is None else Branch(leaves["branch"], leaves["gate"])
    modulation = None if leaves["scale"] is None else Modulation(leaves["scale"], leaves["shift"])
    results = function(leaves["hidden"], branch, kind, leaves["weight"], None, modulation, layout)
    wanted = [x for x in leaves.values() if x is not None]
    summed_grad, normed_grad = gradients
    cost = (results[0] * summed_grad).sum() + (results[1] * normed_grad.to(results[1].dtype)).sum()
    return [*(x.detach() for x in results), *torch.autograd.grad(cost, wanted)]


def check(function, lengths, width, has, device, bound) -> None:
    """As near to the truth as rounding to 16 bits allows, and deterministic."""
    tensors, layout, gradients = inputs(lengths, width, has, device)
    wide = {name: None if x is None else x.double() for name, x in tensors.items()}
    truth = run(add_norm_plain, wide, layout, [x.double() for x in gradients], has[0])
    torch.full((1 << 20,), torch.nan, device=device)  # where nothing is written, no number is
    found = run(function, tensors, layout, gradients, has[0])
    again = run(function, tensors, layout, gradients, has[0])
    for one, other, right in zip(found, again, truth, strict=True):
        assert torch.equal(one, other)
        assert (one - right).norm() <= bound * right.norm()


@pytest.mark.parametrize("has", CASES, ids=str)
def test_the_plain_form_is_what_the_formula_says(has) -> None:
    tensors, layout, _ = inputs([3, 0, 2], 8, has, dtype=torch.float64)
    x = {name: None if t is None else t.double() for name, t in tensors.items()}
    branch = None if x["branch"] is None else Branch(x["branch"], x["gate"])
    modulation = None if x["scale"] is None else Modulation(x["scale"], x["shift"])
    summed, normed = add_norm(x["hidden"], branch, has[0], x["weight"], None, modulation, layout)
    for row, s in enumerate(layout.sequence.tolist()):
        total = x["hidden"][row].clone()
        if branch is not None:
            gate = 0 if x["gate"] is None else x["gate"][s]
            total += (1 + gate) * x["branch"][row]
        torch.testing.assert_close(summed[row], total)
        if has[0] == "layer":
            total = total - total.mean()
        unit = total / total.square().mean().add(1e-5 if has[0] == "layer" else 0).sqrt()
        expected = unit * x["weight"]
        if modulation is not None:
            expected = expected * (1 + x["scale"][s]) + x["shift"][s]
        torch.testing.assert_close(normed[row], expected)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_small_rows_are_normed_alike_in_all_dtypes(kind) -> None:
    torch.manual_seed(0)
    rows = (0.02 * torch.randn(50, 64)).bfloat16()
    layout = Layout(torch.zeros(50, dtype=torch.int64), torch.tensor([0, 50]))
    weight = torch.ones(64)
    wide, narrow = (
        add_norm(rows.to(x), None, kind, weight.to(x), None, None, layout)[1].double()
        for x in (torch.float64, torch.bfloat16)
    )
    assert (wide - narrow).norm() <= 1e-2 * wide.norm()


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("has", CASES, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("width", [64, 768, 1280])
def test_the_kernels_are_right(lengths, width, has) -> None:
    def fast(*arguments):
        with torch.autocast("cuda", torch.bfloat16):
            return add_norm(*arguments)

    check(fast, lengths, width, has, "cuda", 4e-3)


@pytest.mark.gpu
@on_gpu
def test_weights_of_16_bits() -> None:
    tensors, layout, _ = inputs([4, 9], 64, CASES[1], "cuda")
    tensors = {name: None if x is None else x.bfloat16() for name, x in tensors.items()}
    given = tensors["hidden"], Branch(tensors["branch"]), "layer", tensors["weight"], None, None
    found = add_norm(*given, layout)
    for one, other in zip(found, add_norm_plain(*given, layout), strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


@needs_triton
def test_the_kernels_are_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


def interpret() -> None:
    """Run the kernels on the CPU, with memory that is not a number where nothing is written."""
    from didlm.kernels.add_norm import _AddNorm

    torch.use_deterministic_algorithms(True)

    def kernels(hidden, branch, kind, weight, bias, modulation, layout):
        return _AddNorm.apply(
            hidden, branch and branch.rows, branch and branch.gate, weight,
            modulation and modulation.scale, modulation and modulation.shift,
            layout, kind, torch.float16,
        )  # fmt: skip

    for has, kind in itertools.product(CASES, (torch.float32, torch.float16)):
        tensors, layout, gradients = inputs([5, 1, 0, 7], 40, has, dtype=torch.float16)
        tensors["hidden"] = tensors["hidden"].to(kind)
        gradients = gradients[0].to(kind), gradients[1]
        wide = {name: None if x is None else x.double() for name, x in tensors.items()}
        truth = run(add_norm_plain, wide, layout, [x.double() for x in gradients], has[0])
        found = run(kernels, tensors, layout, gradients, has[0])
        for one, right in zip(found, truth, strict=True):
            assert (one - right).norm() <= 1e-3 * right.norm(), (has, kind)


if __name__ == "__main__":
    interpret()
