"""ILM: one insertion at a time, and a classifier that says when to stop (Patel et al., 2025).

Its loss is not a bound on the likelihood: states are drawn as in diffusion, but each is asked only
for the next insertion, and stopping is learnt apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from didlm.data.tokenizer import Tokenizer
from didlm.deletion import delete_exactly
from didlm.generate.samplers import Sampler, one_by_one
from didlm.given import GivenText, chosen_given
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.model.config import Heads
from didlm.objectives.noise import evenly
from didlm.packed import pack


@dataclass(frozen=True)
class ILM(Method):
    """The method: what to drop, and which insertions would undo it (Eq. next-insertion).

    Args:
        bos: the id of BOS.
        given_share: share of the training examples in which part of the text is given.
    """

    name: ClassVar[str] = "ilm"
    bounded: ClassVar[bool] = False

    bos: int
    given_share: float = 0.0

    @classmethod
    def build(cls, tokenizer: Tokenizer, given_share: float = 0.0, **_: Any) -> Self:
        """For texts of any lengths."""
        return cls(tokenizer.bos, given_share)

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """One token a step."""
        return {"one-by-one": one_by_one}

    @property
    def heads(self) -> Heads:
        """Where relative to other gaps, what, and whether at all; it knows no time."""
        return Heads(normalised=True, timed=False, stop=True)

    def training_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        givens: Sequence[GivenText | None] | None = None,
    ) -> Examples:
        """One state of each text: how many tokens it lacks is uniform, none of them included."""
        chosen, keeps = [], []
        for text, number, wish in zip(texts, numbers, givens or [None] * len(texts), strict=True):
            rng = np.random.default_rng((seed, number))
            given = chosen_given(len(text), wish, self.given_share, rng)
            free = int((given.spans == 0).sum())
            count = int(evenly(seed, number) * (free + 1))
            chosen.append(given)
            keeps.append(delete_exactly(len(text), count, rng, given.spans))
        x0 = pack(texts, self.bos, [given.spans for given in chosen])
        keep = np.ones(x0.rows, dtype=np.bool_)
        keep[~x0.is_bos.numpy()] = np.concatenate([np.empty(0, np.bool_), *keeps])
        x_t = x0.delete(keep)
        offsets, opened = x_t.offsets.numpy(), x_t.open.numpy().copy()
        opened[offsets[:-1][[given.starts_closed for given in chosen]]] = False
        opened[offsets[1:][[given.ends_closed for given in chosen]] - 1] = False

        # A dropped token is missing right after the last row before it that was kept.
        row = (np.cumsum(keep) - 1)[~keep]
        dropped = np.array([int((~kept).sum()) for kept in keeps])
        target = 1 / np.repeat(dropped, dropped)  # which of them comes next is all the same
        return Examples(
            tokens=x_t.tokens.numpy(),
            given=x_t.given.numpy() != 0,
            open=opened,
            count=np.bincount(row, target, minlength=x_t.rows),
            count_weight=np.zeros(x_t.rows),  # rates are normalised: they cost nothing themselves
            deleted=np.zeros(len(texts)),
            constant=np.zeros(len(texts)),
            complete=(dropped == 0).astype(np.float64),
            complete_weight=np.ones(len(texts)),
            number=np.asarray(numbers),
            offsets=offsets,
            row=row,
            token=x0.tokens.numpy()[~keep],
            target=target,
        )

    def validation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """Several states of each text, whose costs sum to an estimate of its loss: no bound."""
        repeated = [text for text in texts for _ in range(draws)]
        own = [number * draws + draw for number in numbers for draw in range(draws)]
        given = [given for given in givens for _ in range(draws)] if givens else None
        examples = self.training_examples(repeated, own, seed, given).scaled(1 / draws)
        return replace(examples, number=np.repeat(np.asarray(numbers), draws))
