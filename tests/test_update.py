"""What a GPU does with gradients, against torch's optimisers."""

import copy
import math

import pytest
import torch

from didlm.kernels.adamw import Constants, Knobs, Learnt, adamw_, adamw_plain_
from didlm.model.config import preset
from didlm.model.transformer import Network
from didlm.train.optimiser import MovingAverage, make_optimisers
from didlm.train.settings import Settings
from didlm.train.update import Update
from interpreter import needs_triton, runs_as_main

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CONSTANTS = Constants(0.9, 0.95, 1e-8, 0.1, 0.99)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("clip", [0.1, 1e9])
def test_the_same_as_torch_with_clipping_skipping_and_averaging(device, optimiser, clip) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    settings = Settings(optimiser=optimiser, clip=clip, weight_decay=0.1, average=0.9)
    torch.manual_seed(0)
    ours = Network(preset("tiny", 100)).to(device)
    theirs = copy.deepcopy(ours)
    averages = MovingAverage(ours, settings.average), MovingAverage(theirs, settings.average)
    mine, torchs = make_optimisers(ours, settings), make_optimisers(theirs, settings)
    update = Update(ours, averages[0], mine, settings)
    bad = {2, 3}
    for step in range(6):
        torch.manual_seed(step)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.grad = torch.randn_like(other)
            one.grad = other.grad.clone()
        update.prepare(1e-2 / (1 + step), step)
        if step in bad:
            next(ours.parameters()).grad.view(-1)[3] = math.nan
        update.apply(torch.tensor(1.5, device=device))
        if step not in bad:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
            for each in torchs:
                each.param_groups[0]["lr"] = 1e-2 / (1 + step)
                each.step()
            averages[1].update(theirs)
    _, _, skipped, in_a_row = update.report.tolist()
    assert (skipped, in_a_row) == (2, 0)
    update.settle(4)
    # Newton and Schulz iterate in 16 bits.
    bound = 2e-3 if optimiser == "muon" else 1e-5
    for one, other in (
        *zip(ours.parameters(), theirs.parameters(), strict=True),
        *zip(*(a.network.parameters() for a in averages), strict=True),
    ):
        assert (one - other).norm() <= bound * other.norm()
    for each, other in zip(mine, torchs, strict=True):
        states = each.state_dict()["state"], other.state_dict()["state"]
        assert states[0].keys() == states[1].keys()
        for number, state in states[0].items():
            assert state.keys() == states[1][number].keys()
            for name, value in state.items():
                right = states[1][number][name]
                assert (value - right).norm() <= 1e-5 * right.norm(), name


def test_bad_steps_in_a_row_are_counted() -> None:
    network = torch.nn.Linear(2, 2)
    settings = Settings(optimiser="adamw")
    average = MovingAverage(network, 0.9)
    update = Update(network, average, make_optimisers(network, settings), settings)
    update.restart(skipped=7, bad=1)
    before = copy.deepcopy(network.state_dict())
    for expected in ((8, 2), (9, 3)):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        update.prepare(0.1, 20)
        update.apply(torch.tensor(math.inf))
        assert tuple(update.report.tolist()[2:]) == expected
    assert all(torch.equal(x, before[name]) for name, x in network.state_dict().items())


def tensors(device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    values = [torch.randn(3000, device=device) for _ in range(5)]
    values[3].abs_()  # the second moment
    return values


def knobs(device: str, take: float) -> Knobs:
    return Knobs(*(torch.tensor(x, device=device) for x in (1e-2, 0.7, 3.0, take)))


def compare(step, device: str) -> None:
    for take in (1.0, 0.0):
        (gradient, *one), (_, *other) = tensors(device), tensors(device)
        twin, right = one[0].half(), [x.double() for x in other]
        step(Learnt(*one, twin), gradient, knobs(device, take), CONSTANTS)
        adamw_plain_(Learnt(*right), gradient.double(), knobs(device, take), CONSTANTS)
        assert torch.equal(twin, one[0].half())
        for found, expected in zip(one, right, strict=True):
            assert (found - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_kernel_is_right() -> None:
    compare(adamw_, "cuda")


@needs_triton
def test_the_kernel_is_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


if __name__ == "__main__":
    from didlm.kernels import adamw_triton

    compare(adamw_triton.step, "cpu")
