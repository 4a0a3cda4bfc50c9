"""Exact scores for the samplers: what a perfect network would answer."""

import torch
from torch import Tensor

from didlm.generate.scorer import Answer, Recall
from didlm.given import alignment_labels
from didlm.laboratory.diffusion import ExactDiffusion
from didlm.packed import Packed


class ExactScorer:
    """A data distribution in place of a network; see `didlm.generate.scorer.Scorer`.

    A text that no data can come from has no exact score: nothing is inserted into it any more.
    """

    timed = True
    normalised = False

    def __init__(self, diffusion: ExactDiffusion) -> None:
        self.diffusion = diffusion
        self.vocabulary = self.outputs = diffusion.vocabulary
        chances = torch.tensor(list(diffusion.data.values()), dtype=torch.float64)
        lengths = torch.tensor([len(text) for text in diffusion.data], dtype=torch.float64)
        self.spread = _dispersion(chances, lengths)
        self._known = set(diffusion.states)

    def read(self, x_t: Packed, deleted: Tensor, recall: Recall | None = None) -> Answer:
        """The exact rates, and as features the exact token distributions."""
        scores = torch.zeros(x_t.rows, self.vocabulary, dtype=torch.float64)
        labels = torch.from_numpy(alignment_labels(x_t.tokens.numpy(), x_t.given.numpy()))
        # Count the given tokens of each sequence on their own.
        before = torch.cumsum(x_t.given != 0, 0)[x_t.offsets[:-1]][x_t.sequence]
        labels = torch.where(x_t.given != 0, labels + before, labels).masked_fill(x_t.is_bos, 0)
        for length in x_t.lengths.unique().tolist():
            sequences = (x_t.lengths == length).nonzero().squeeze(-1)
            rows = x_t.offsets[sequences][:, None] + torch.arange(length + 1)
            texts, which = labels[rows].unique(dim=0, return_inverse=True)
            for number, (_, *text) in enumerate(texts.tolist()):
                same = which == number
                if tuple(text) in self._known:
                    scores[rows[same]] = self.diffusion.insertion_score(
                        tuple(text), deleted[sequences[same]].double()
                    )
        rate = scores.sum(-1)
        return Answer(rate.log(), (scores / rate[:, None]).log().nan_to_num(-torch.inf))

    def logits(self, features: Tensor) -> Tensor:
        """The features themselves."""
        return features.clone()

    def dispersion(self, x_t: Packed) -> Tensor:
        """As if lengths were negative binomial."""
        return self.spread / (1 + self.spread * x_t.lengths.double())


class OneSymbolScorer:
    """Texts of a single symbol, of which only the length is random, of any size."""

    vocabulary = outputs = 1
    timed = True
    normalised = False

    def __init__(self, lengths: Tensor) -> None:
        """Take the probability of each length 0, 1, 2, ..."""
        self.log_p = lengths.double().log()
        self.spread = _dispersion(lengths.double(), torch.arange(len(lengths)).double())
        self.log_factorial = torch.arange(len(lengths) + 2, dtype=torch.float64).add(1).lgamma()

    def read(self, x_t: Packed, deleted: Tensor, recall: Recall | None = None) -> Answer:
        """The same exact score in every gap (Eq. insertion-score)."""
        score = self._log_weight(x_t.lengths + 1, deleted) - self._log_weight(x_t.lengths, deleted)
        log_rate = score.nan_to_num(-torch.inf)[x_t.sequence]
        return Answer(log_rate, torch.zeros(x_t.rows, 1, dtype=torch.float64))

    def logits(self, features: Tensor) -> Tensor:
        """Certainty."""
        return features.clone()

    def dispersion(self, x_t: Packed) -> Tensor:
        """As if lengths were negative binomial."""
        return self.spread / (1 + self.spread * x_t.lengths.double())

    def _log_weight(self, kept: Tensor, deleted: Tensor) -> Tensor:
        """log E[u^length C(length, kept)]."""
        length = torch.arange(len(self.log_p))
        kept = kept.clamp(max=len(self.log_p))[:, None]
        missing, log_factorial = length - kept, self.log_factorial
        terms = self.log_p + log_factorial[length] + length * deleted.double().log()[:, None]
        terms -= log_factorial[missing.clamp(min=0)] + log_factorial[kept]
        return terms.masked_fill(missing < 0, -torch.inf).logsumexp(-1)


def _dispersion(chances: Tensor, lengths: Tensor) -> float:
    """Of the lengths: (variance - mean) / mean^2, at least 0."""
    chances = chances / chances.sum()
    mean = chances @ lengths
    variance = chances @ (lengths - mean) ** 2
    return max(0.0, float((variance - mean) / mean**2)) if mean else 0.0
