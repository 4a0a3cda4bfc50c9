"""Uniform draws without a state: a hash of (seed, sample, pass, gap).

A draw depends on what it is for and on nothing else, so a sample does not depend on what else is in
the batch, and the same seed gives the same text on every device, up to rounding in the network.
"""

import torch
from torch import Tensor

from didlm.kernels.here import runs_triton

FIRE, TOKEN, DELETE, COUNT = range(4)  # what a draw is for

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: neighbours end up far apart
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the multipliers of SplitMix64


def sample_keys(seed: int, numbers: Tensor) -> Tensor:
    """A key for each sample of a seed [S]."""
    return _hash(torch.full_like(numbers, _signed(_mix(seed & _MASK))), numbers)


def uniforms(keys: Tensor, passes: Tensor, purpose: int, places: Tensor) -> Tensor:
    """Draws from [0, 1) with 53 bits, in float64; on CUDA by a kernel, where Triton is there.

    Args:
        keys: the key of the sample that each draw belongs to.
        passes: its number of passes so far.
        purpose: FIRE, TOKEN, DELETE or COUNT.
        places: the gap, or whatever tells draws of one sample and pass apart.
    """
    if runs_triton(keys):
        from didlm.generate import uniforms_triton

        return uniforms_triton.uniforms(keys, passes, purpose, places)
    return uniforms_plain(keys, passes, purpose, places)


def uniforms_plain(keys: Tensor, passes: Tensor, purpose: int, places: Tensor) -> Tensor:
    """The same, on any device."""
    return _from_zero_to_one(_hash(_hash(keys, passes), places * 4 + purpose))


def once_more(draws: Tensor) -> Tensor:
    """Another draw for each, a hash of the first: as good as independent of it."""
    return _from_zero_to_one(_mix_tensor(draws.view(torch.int64) + _signed(_STEP)))


def _from_zero_to_one(bits: Tensor) -> Tensor:
    return _shifted(bits, 11).double() * 2.0**-53


def _hash(key: Tensor, value: Tensor) -> Tensor:
    """A new key [...] from a key and a value: the value steps along, the mixing scatters."""
    return _mix_tensor(key + (value + 1) * _signed(_STEP))


def _mix_tensor(x: Tensor) -> Tensor:
    """A bijection of 64-bit words in which every bit of the input moves every bit of the output."""
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * _FIRST & _MASK
    x = (x ^ x >> 27) * _SECOND & _MASK
    return x ^ x >> 31


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, with zeros coming in: torch's own shift repeats the sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def _signed(word: int) -> int:
    """The same 64 bits as torch writes them."""
    return word - 2**64 if word >= 2**63 else word
