"""AR: the autoregressive reference. Every token from those before it; its likelihood is exact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from didlm._inputs import IntArray
from didlm.data.tokenizer import Tokenizer
from didlm.generate.draft import Edit, append
from didlm.generate.samplers import Sampler, one_by_one
from didlm.generate.template import CLOSED, Start
from didlm.given import GivenText
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.model.config import Heads
from didlm.packed import pack


@dataclass(frozen=True)
class AR(Method):
    """The method: there is no noise, and one state of each text is all there is.

    Args:
        bos: the id of BOS, from which the first token follows.
        end: the id of the token that ends a text.
    """

    name: ClassVar[str] = "ar"
    exact: ClassVar[bool] = True

    writes_separators: ClassVar[bool] = True

    bos: int
    end: int

    @classmethod
    def build(cls, tokenizer: Tokenizer, **_: Any) -> Self:
        """For texts of any lengths, which end with the separator of documents."""
        return cls(tokenizer.bos, tokenizer.separator)

    @property
    def heads(self) -> Heads:
        """Tokens alone, from what stands before them."""
        return Heads(rates=False, timed=False, flags=False, causal=True)

    @property
    def edit(self) -> Edit:
        """Tokens come at the end."""
        return append

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """One token a step."""
        return {"one-by-one": one_by_one}

    def start(self, start: Start, length: int | None) -> Start:
        """A beginning, and nothing after the blank.

        Raises:
            ValueError: if something is to be filled in.
        """
        if (start.blank[:-1] != CLOSED).any():
            raise ValueError(
                "an autoregressive model writes from left to right: it takes a prompt, and cannot "
                "fill a blank with text after it"
            )
        return start

    def finish(self, tokens: IntArray) -> int:
        """All but the end."""
        return len(tokens) - int(len(tokens) > 0 and tokens[-1] == self.end)

    def training_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        givens: Sequence[GivenText | None] | None = None,
    ) -> Examples:
        """Every row has the next token as its target, the last row the end."""
        wishes = givens or [None] * len(texts)
        return self._examples(texts, numbers, [_prompt(given) if given else 0 for given in wishes])

    def evaluation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """The same: nothing is drawn, so draws and seed have no effect.

        Raises:
            ValueError: if something else than a beginning is given.
        """
        given = [_prompt(given) for given in givens] if givens else [0] * len(texts)
        return self._examples(texts, numbers, given)

    def _examples(
        self, texts: Sequence[np.ndarray], numbers: Sequence[int], given: Sequence[int]
    ) -> Examples:
        x = pack(texts, self.bos)
        tokens, offsets = x.tokens.numpy(), x.offsets.numpy()
        following = np.append(tokens[1:], self.end)
        following[offsets[1:] - 1] = self.end
        position = np.arange(len(tokens)) - np.repeat(offsets[:-1], np.diff(offsets))
        row = np.flatnonzero(position >= np.repeat(given, np.diff(offsets)))
        nothing, closed = np.zeros(len(texts)), np.zeros(len(tokens), dtype=np.bool_)
        return Examples(
            tokens=tokens,
            given=closed,
            open=closed,
            count=np.zeros(len(tokens)),
            count_weight=np.zeros(len(tokens)),
            deleted=nothing,
            constant=nothing,
            complete=nothing,
            complete_weight=nothing,
            number=np.asarray(numbers),
            offsets=offsets,
            row=row,
            token=following[row],
            target=np.ones(len(row)),
        )


def _prompt(given: GivenText) -> int:
    """How many tokens are given at the beginning.

    Raises:
        ValueError: if any other is.
    """
    is_given = given.spans != 0
    count = int(is_given.argmin()) if not is_given.all() else len(is_given)
    if is_given[count:].any():
        raise ValueError("an autoregressive model can be given a beginning, and nothing else")
    return count
