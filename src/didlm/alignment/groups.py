"""Which insertions give the same result: the groups of the exact score entropy (Eq. dse)."""

import numpy as np

from didlm.alignment.targets import InsertionTargets
from didlm.packed import Packed


def result_groups(x_t: Packed, targets: InsertionTargets) -> np.ndarray:
    """A number for each target, the same for two targets of which it makes no difference.

    Inserting v anywhere next to a run of v gives one and the same text. A run never includes a
    given token, nor BOS, whatever its id: those are told apart from what is inserted beside them.
    """
    tokens = x_t.tokens.cpu().numpy()
    free = ((x_t.given == 0) & ~x_t.is_bos).cpu().numpy()
    rows = np.arange(tokens.size)
    joins = np.r_[False, free[1:] & free[:-1] & (tokens[1:] == tokens[:-1])]
    run_start = np.maximum.accumulate(np.where(joins, 0, rows)) if tokens.size else rows
    after_own_kind = free[targets.gap] & (tokens[targets.gap] == targets.token)
    leftmost_gap = np.where(after_own_kind, run_start[targets.gap] - 1, targets.gap)
    places = np.stack([leftmost_gap, targets.token])
    return np.unique(places, axis=1, return_inverse=True)[1].reshape(-1)
