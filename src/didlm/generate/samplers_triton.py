# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The Triton kernel of the adaptive sampler: imported only where it runs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512  # rows of a text that a program looks at together


def adaptive(
    rate: Tensor,
    uniform: Tensor,
    offsets: Tensor,
    times: tuple[Tensor, Tensor, Tensor],
    dispersion: Tensor,
    caution: float,
    few: float,
    end: float,
) -> tuple[Tensor, Tensor]:
    """As `didlm.generate.samplers.adaptive_plain`, in one kernel instead of sixty.

    Args:
        rate: [T], like all real numbers in float64.
        uniform: [T]
        offsets: [S + 1]
        times: the time, the target and the latest [S].
        dispersion: [S]
        caution: of leaps.
        few: tokens, below which a leap gives way to a single token.
        end: the time from which a step goes straight to 0.
    """
    texts = offsets.numel() - 1
    fires = torch.empty_like(rate, dtype=torch.bool)
    until = torch.empty_like(times[0])
    columns = [x.contiguous() for x in (rate, uniform, offsets, *times, dispersion)]
    if texts:
        with torch.cuda.device_of(rate):
            _adaptive[(texts,)](*columns, fires, until, caution, few, end, BLOCK)
    return fires, until


@triton.jit
def _adaptive(
    rates,
    uniforms,
    offsets,
    times,
    targets,
    latests,
    dispersions,
    fires,
    untils,
    CAUTION: tl.constexpr,
    FEW: tl.constexpr,
    END: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One text in two passes over its rows: what they are like together, and which fire."""
    text = tl.program_id(0)
    begin, end = tl.load(offsets + text), tl.load(offsets + text + 1)
    time, target = tl.load(times + text), tl.load(targets + text)
    latest, dispersion = tl.load(latests + text), tl.load(dispersions + text)
    # Numbers written here would be of 32 bits.
    caution, few = tl.full([], CAUTION, tl.float64), tl.full([], FEW, tl.float64)
    least = tl.full([], 1e-9, tl.float64)

    expected = tl.full([], 0.0, tl.float64)
    highest = tl.full([], 0.0, tl.float64)
    soonest = tl.full([], float("inf"), tl.float64)
    first = end
    for start in range(begin, end, BLOCK):
        row = start + tl.arange(0, BLOCK)
        rate = tl.load(rates + row, mask=row < end, other=0.0)
        uniform = tl.load(uniforms + row, mask=row < end, other=0.0)
        # 1 - uniform is exact, so this is as good as log1p.
        arrival = tl.where(rate > 0, -tl.log(1 - uniform) / rate, float("inf"))
        expected += tl.sum(rate)
        highest = tl.maximum(highest, tl.max(rate))
        here = tl.min(arrival)
        # Of those that come at the same time, the one that stands first.
        first_here = tl.min(tl.where(arrival == here, row, end))
        first = tl.where(here < soonest, first_here, first)
        soonest = tl.minimum(soonest, here)

    reachable = tl.maximum(target, time * (1 - tl.minimum(caution / highest, 1)))
    leap = tl.where((target <= 0) & (time <= END), target, reachable)
    share = tl.where(time > 0, 1 - leap / time, 0)
    alone = (expected * share < few) & (leap > 0)
    wait = tl.where(latest > 0, latest, tl.maximum(leap, time / 2))
    uncertainty = tl.maximum(expected * dispersion, least)
    comes = time * (1 - _expm1(soonest * uncertainty) / uncertainty)  # Eq. first-arrival
    first = tl.where((comes > wait) & (soonest < float("inf")), first, end)  # or none
    tl.store(untils + text, tl.where(alone, tl.maximum(comes, wait), leap))

    for start in range(begin, end, BLOCK):
        row = start + tl.arange(0, BLOCK)
        rate = tl.load(rates + row, mask=row < end, other=0.0)
        uniform = tl.load(uniforms + row, mask=row < end, other=0.0)
        tl.store(fires + row, tl.where(alone, row == first, uniform < rate * share), mask=row < end)


@triton.jit
def _expm1(x):
    """Of a positive number, exact in float64 where exp(x) - 1 is not."""
    power = tl.exp(x)
    exact = tl.where(power == 1, x, (power - 1) * (x / tl.log(power)))
    return tl.where(power < float("inf"), exact, power)
