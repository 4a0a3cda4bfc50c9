"""A small exact laboratory: what the theory says, computed without sampling on tiny alphabets.

`diffusion` has the exact marginals, scores and rates of a known data distribution, `chain` the
exact likelihood of any model, `bounds` its exact objectives. The tests put them side by side.
"""

from didlm.laboratory import bounds
from didlm.laboratory.chain import likelihood, reverse_chain
from didlm.laboratory.diffusion import (
    ExactDiffusion,
    Scores,
    deletion_rate,
    open_gaps_of,
    same_result,
    transition,
)
from didlm.laboratory.quadrature import LogTime
from didlm.laboratory.states import State, free_length, insert, subsequences

__all__ = [
    "ExactDiffusion",
    "LogTime",
    "Scores",
    "State",
    "bounds",
    "deletion_rate",
    "free_length",
    "insert",
    "likelihood",
    "open_gaps_of",
    "reverse_chain",
    "same_result",
    "subsequences",
    "transition",
]
