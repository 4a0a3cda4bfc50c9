"""What is missing, and where: exact insertion targets from aligning x_t with x_0.

`insertion_targets` is the fast one (`windowed`); `insertion_targets_reference` is the paper's
(`reference`); a test holds them together. Each has a form for a packed batch.
"""

from didlm.alignment.counting import count_occurrences, leftmost_occurrence
from didlm.alignment.groups import result_groups
from didlm.alignment.reference import (
    insertion_targets_batch_reference,
    insertion_targets_reference,
)
from didlm.alignment.targets import InsertionTargets
from didlm.alignment.windowed import insertion_targets, insertion_targets_batch

__all__ = [
    "InsertionTargets",
    "count_occurrences",
    "insertion_targets",
    "insertion_targets_batch",
    "insertion_targets_batch_reference",
    "insertion_targets_reference",
    "leftmost_occurrence",
    "result_groups",
]
