"""How many tokens each gap lacks, as far as lengths alone can tell: where the rates start."""

import torch
from torch import Tensor

from didlm.packed import Packed


def log_rate_prior(x_t: Packed, deleted: Tensor, mean: float, dispersion: float) -> Tensor:
    """The same log rate for all open gaps of a sequence [S] (Eq. rate-prior).

    Args:
        x_t: what is left of the texts.
        deleted: the probability of deletion u of each sequence [S].
        mean: of the lengths of the data.
        dispersion: of the lengths: (variance - mean) / mean^2, which is 0 for Poisson lengths and 1
            for geometric ones.
    """
    given = _per_sequence(x_t, x_t.given != 0).to(deleted.dtype)
    gaps = _per_sequence(x_t, x_t.open).to(deleted.dtype).clamp(min=1)
    kept = x_t.lengths - given
    mean_rest, dispersion_rest = _beyond(given, mean, dispersion)
    kept_of_mean = mean_rest * (1 - deleted)
    missing = mean_rest * deleted * (1 + dispersion_rest * kept)
    return missing.log() - (1 + dispersion_rest * kept_of_mean).log() - gaps.log()


def missing_dispersion(x_t: Packed, mean: float, dispersion: float) -> Tensor:
    """How uncertain the number of missing tokens is [S]: the less, the more are there already.

    Given ones are not counted, but the rest is what lies beyond them (Eq. first-arrival).
    """
    given = _per_sequence(x_t, x_t.given != 0).double()
    _, dispersion_rest = _beyond(given, mean, dispersion)
    return dispersion_rest / (1 + dispersion_rest * (x_t.lengths - given))


def _beyond(given: Tensor, mean: float, dispersion: float) -> tuple[Tensor, Tensor]:
    """Mean and dispersion of a text's length beyond what is given of it (Eq. length-beyond).

    They are those of all texts where nothing is given.
    """
    variance = mean + dispersion * mean**2
    short = mean - given
    rest = (short + (short**2 + 4 * given * variance / mean).sqrt()) / 2
    return rest, ((variance - rest) / rest**2).clamp(0, max(1.0, dispersion))


def _per_sequence(x_t: Packed, rows: Tensor) -> Tensor:
    counts = torch.zeros_like(x_t.offsets[1:])
    return counts.index_add_(0, x_t.sequence, rows.to(counts.dtype))
