"""What a method is: how texts become examples, what its network must say, and how it writes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from didlm._inputs import IntArray
from didlm.data.corpus import Corpus, Documents
from didlm.data.tokenizer import Tokenizer
from didlm.generate.draft import Edit, insert
from didlm.generate.samplers import Sampler
from didlm.generate.template import Start
from didlm.given import GivenText
from didlm.methods.examples import Examples
from didlm.model.config import Heads


class Method(ABC):
    """A way to learn to write. Methods write targets, never losses (see `Examples`).

    Every method is a frozen dataclass in a file of its own, whose fields are saved with the model.
    The first half of what follows is about learning, the second about writing.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False  # whether its likelihood is exact, and not a bound
    bounded: ClassVar[bool] = True  # whether it has either
    aligned: ClassVar[bool] = False  # whether targets are insertions of which several may be equal
    bos: int

    @classmethod
    @abstractmethod
    def build(cls, tokenizer: Tokenizer, **options: Any) -> Self:
        """The method for a tokenizer, with those of the settings of a run that concern it."""

    @classmethod
    def cuts_chunks(cls, **options: Any) -> bool:
        """Whether it lays documents end to end and cuts them, so that a single one will do."""
        return False

    @property
    @abstractmethod
    def heads(self) -> Heads:
        """What the network must be able to say."""

    @property
    def length(self) -> int | None:
        """How many tokens every text has, if all have as many."""
        return None

    @property
    def variable_length(self) -> bool:
        """Whether texts are documents of any lengths, and their ends are learnt."""
        return self.length is None

    def lay_out(self, documents: Documents, longest: int) -> Corpus:
        """The texts to learn from; by default the documents, cut to the longest length."""
        return documents.cut(longest)

    @abstractmethod
    def training_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        givens: Sequence[GivenText | None] | None = None,
    ) -> Examples:
        """One noised state of each text; the noise depends on (seed, number) alone.

        Args:
            texts: the texts.
            numbers: of the examples.
            seed: of the noise.
            givens: what is given of each text, such as its prompt; None where the method decides.
        """

    def evaluation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """States of each text whose costs sum to an unbiased estimate of its likelihood bound.

        Raises:
            ValueError: if the method has none.
        """
        raise ValueError(f"the method '{self.name}' has no bound on the likelihood")

    def validation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """States of each text whose costs tell how training goes: by default those of the bound."""
        return self.evaluation_examples(texts, numbers, seed, draws, givens)

    writes_separators: ClassVar[bool] = False  # whether a separator is a token like any other
    keeps_length: ClassVar[bool] = False  # texts have all their rows from the start
    corrects: ClassVar[bool] = False  # whether it can take tokens back and write them again
    end: int | None = None  # a token after which nothing comes

    @property
    def edit(self) -> Edit:
        """What is done with the tokens that are drawn."""
        return insert

    @property
    @abstractmethod
    def samplers(self) -> Mapping[str, Sampler]:
        """The samplers that suit it, by name; the first is the default."""

    def start(self, start: Start, length: int | None) -> Start:
        """What a text starts from, by default what is given of it.

        Args:
            start: the given tokens and the blanks around them.
            length: how many tokens the text is to have, if that is known.

        Raises:
            ValueError: if the method cannot fill such blanks.
        """
        return start

    def whole(self, tokens: IntArray, given: GivenText | None) -> tuple[IntArray, GivenText | None]:
        """A text, and what is given of it, as a whole text that the method could write."""
        return tokens, given

    def finish(self, tokens: IntArray) -> int:
        """How many of the tokens of a finished text belong to it, by default all."""
        return len(tokens)
