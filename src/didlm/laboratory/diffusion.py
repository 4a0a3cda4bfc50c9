"""The deletion process of a known data distribution, in closed form.

Time enters as u, the probability of deletion (1 - survival); for the log-linear schedule u = t. All
functions take a vector of B values of u and work in float64.
"""

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from didlm.alignment import count_occurrences
from didlm.laboratory.states import State, free_length, insert, subsequences
from didlm.schedule import Schedule

# A model: insertion scores [B, G, V] of a state with G gaps at B values of u.
Scores = Callable[[State, Tensor], Tensor]


class ExactDiffusion:
    """Marginals, scores and rates of deletion from a finite data distribution.

    Args:
        data: the probability of each text. All texts carry the same given labels in the same order.
        vocabulary: tokens are 0 .. vocabulary - 1.
        closed: given labels after which nothing may be inserted, the insides of spans.
    """

    def __init__(
        self, data: Mapping[State, float], vocabulary: int, closed: Collection[int] = ()
    ) -> None:
        if not data or min(data.values()) <= 0 or abs(sum(data.values()) - 1) > 1e-12:
            raise ValueError("the data need positive probabilities that sum to one")
        if any(label >= vocabulary for text in data for label in text):
            raise ValueError(f"a token lies outside the vocabulary of {vocabulary}")
        if len({tuple(label for label in text if label < 0) for text in data}) > 1:
            raise ValueError("all texts must carry the same given tokens in the same order")
        self.data = dict(data)
        self.vocabulary = vocabulary
        self.closed = frozenset(closed)
        found = {x for text in data for x in subsequences(text)}
        self.states = sorted(found, key=lambda x: (len(x), x))
        # N(x, x_0), for the pairs where it is not zero.
        self._occurrences = {
            x: {text: n for text in data if (n := count_occurrences(x, text))} for x in self.states
        }

    def marginal(self, x_t: State, u: Tensor) -> Tensor:
        """p_u(x_t), the data distribution carried forward (Eq. marginal)."""
        texts = self._texts_with(x_t)
        return torch.stack([self.data[y] * transition(x_t, y, u) for y in texts]).sum(0)

    def concrete_score(self, x_t: State, y: State, u: Tensor) -> Tensor:
        """p_u(y) / p_u(x_t) (Eq. concrete-score)."""
        return self.marginal(y, u) / self.marginal(x_t, u)

    def insertion_score(self, x_t: State, u: Tensor) -> Tensor:
        """The exact insertion scores [B, G, V] (Eq. insertion-score)."""
        weight = self._weight(x_t, u)
        scores = torch.zeros(*u.shape, len(x_t) + 1, self.vocabulary, dtype=torch.float64)
        for gap in range(len(x_t) + 1):
            for token in range(self.vocabulary):
                y = insert(x_t, gap, token)
                if y in self._occurrences:
                    scores[..., gap, token] = self._weight(y, u) / weight
        return scores

    def reverse_rate(self, x_t: State, y: State, schedule: Schedule, t: float) -> float:
        """The rate at which x_t turns into y as time falls (Eq. concrete-score)."""
        u = torch.tensor([float(schedule.deleted(t))], dtype=torch.float64)
        forward = deletion_rate(y, x_t, float(schedule.rate(t)))
        return forward * float(self.concrete_score(x_t, y, u)) if forward else 0.0

    def _weight(self, x: State, u: Tensor) -> Tensor:
        """E[u^|x_0| N(x, x_0)] over the data."""
        terms = [self.data[y] * n * u ** free_length(y) for y, n in self._texts_with(x).items()]
        return torch.stack(terms).sum(0)

    def _texts_with(self, x: State) -> dict[State, int]:
        if x not in self._occurrences:
            raise ValueError(f"{x} is contained in no text of the data: it has no score")
        return self._occurrences[x]


def transition(x_t: State, x_0: State, u: Tensor) -> Tensor:
    """p(x_t | x_0), each token deleted with probability u (Eq. transition-probability)."""
    kept, total = free_length(x_t), free_length(x_0)
    return count_occurrences(x_t, x_0) * u ** (total - kept) * (1 - u) ** kept


def deletion_rate(y: State, x: State, sigma: float) -> float:
    """Q(y, x): the rate at which the forward process turns y into x (Eq. transition-rate)."""
    return sigma * count_occurrences(x, y) if len(y) == len(x) + 1 else 0.0


def same_result(x: State, y: State) -> list[tuple[int, int]]:
    """All insertions (gap, token) that turn x into y: the set I(x, y) with its token."""
    return [
        (gap, y[gap])
        for gap in range(len(x) + 1)
        if len(y) == len(x) + 1 and y[gap] >= 0 and insert(x, gap, y[gap]) == y
    ]


def open_gaps_of(state: State, closed: Collection[int]) -> Tensor:
    """Which gaps of a state may receive tokens [G]."""
    return torch.tensor([True, *(label not in closed for label in state)])
