"""The kernel of the adaptive sampler decides what its plain twin decides."""

from contextlib import nullcontext

import pytest
import torch

from didlm.generate.samplers import END, FEW, Moment, adaptive_plain
from interpreter import needs_triton, runs_as_main


def moment(device: str, seed: int, caution: float) -> Moment:
    """Texts of many lengths, some empty; gaps of any rates; first, middle and last times."""
    torch.manual_seed(seed)
    lengths = torch.tensor([0, 1, 2, 5, 40, 511, 512, 513, 1300, 0, 3, 7])
    texts, rows = len(lengths), int(lengths.sum())
    sequence = torch.repeat_interleave(lengths)
    # From texts that lack nothing to those that lack hundreds of tokens.
    rate = (torch.randn(rows).double() * 2 - 4 + 5 * torch.rand(texts)[sequence]).exp()
    rate[torch.rand(rows) < 0.3] = 0
    rate[sequence == 4] = 0
    uniform = torch.rand(rows).double()
    uniform[torch.rand(rows) < 0.1] = 0.25  # some come at the same time
    rate[sequence == 3] = 0.125
    time = torch.rand(texts).double()
    time[0], time[1], time[5] = 1.0, 0.0, END / 2
    target = time * (torch.rand(texts) < 0.7) * torch.rand(texts)
    target[7] = time[7]
    latest = target * torch.rand(texts)
    columns = (rate, uniform, sequence, torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
    times = (time, target.double(), latest.double())
    others = (torch.full_like(time, torch.inf), torch.rand(texts).double() ** 8)
    tensors = (x.to(device) for x in (*columns, *times, *others))
    return Moment(*tensors, flips=lambda count, _: count, caution=caution)


def check(device: str, seeds: int) -> None:
    from didlm.generate import samplers_triton

    waited = 0
    for seed in range(seeds):
        now = moment(device, seed, (0.25, 0.1)[seed % 2])
        times = (now.time, now.target, now.latest)
        fires, until = samplers_triton.adaptive(
            now.rate, now.uniform, now.offsets, times, now.dispersion, now.caution, FEW, END
        )
        expected_fires, expected_until = adaptive_plain(now)
        assert torch.equal(fires, expected_fires)
        torch.testing.assert_close(until, expected_until, rtol=1e-12, atol=1e-15)
        count = torch.zeros_like(now.offsets[1:]).index_add_(0, now.sequence, fires.long())
        waited += int((count == 1).sum())
    assert waited > seeds  # for single tokens, not only leaps


@needs_triton
def test_it_is_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_it_is_right() -> None:
    check("cuda", 200)


if __name__ == "__main__":  # in the interpreter of Triton
    torch.cuda.device_of = lambda _: nullcontext()
    check("cpu", 8)
