# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The Triton kernel of `uniforms`: imported only where it runs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


def uniforms(keys: Tensor, passes: Tensor, purpose: int, places: Tensor) -> Tensor:
    """As `didlm.generate.uniforms.uniforms`, in one kernel instead of forty."""
    keys, passes, places = (x.contiguous() for x in torch.broadcast_tensors(keys, passes, places))
    draws = torch.empty_like(keys, dtype=torch.float64)
    if draws.numel():
        with torch.cuda.device_of(draws):
            _draw[(triton.cdiv(draws.numel(), BLOCK),)](
                keys, passes, places, draws, purpose, draws.numel(), BLOCK
            )
    return draws


@triton.jit(do_not_specialize=["purpose", "count"])
def _draw(keys, passes, places, draws, purpose, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    key = tl.load(keys + at, mask=inside, other=0).to(tl.uint64, bitcast=True)
    number = tl.load(passes + at, mask=inside, other=0).to(tl.uint64, bitcast=True)
    place = tl.load(places + at, mask=inside, other=0).to(tl.uint64, bitcast=True)
    bits = _hash(_hash(key, number), place * 4 + purpose.to(tl.uint64))
    tl.store(draws + at, (bits >> 11).to(tl.int64).to(tl.float64) * (2.0**-53), mask=inside)


@triton.jit
def _hash(key, value):
    """A new key from a key and a value, as in `didlm.generate.uniforms`, without signs."""
    x = key + (value + 1) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)
