"""RADD: masked diffusion that knows no time (Ou et al., 2025), the baseline of the paper.

Tokens are replaced by MASK instead of being deleted, so texts keep their length: they are chunks of
one length, or documents followed by padding, which has to be learnt and written like any token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from didlm._inputs import BoolArray, IntArray
from didlm.data.corpus import Corpus, Documents
from didlm.data.tokenizer import Tokenizer
from didlm.deletion import delete_alike, delete_exactly, delete_independently
from didlm.generate.draft import Edit, replace_marks
from didlm.generate.marks import with_marks
from didlm.generate.samplers import SAMPLERS, Sampler
from didlm.generate.template import CLOSED, Start
from didlm.given import GivenText, nothing_given
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.methods.visits import visited
from didlm.model.config import Heads
from didlm.objectives.noise import Noise, evenly, exact, integral, stratified
from didlm.packed import pack
from didlm.schedule import SCHEDULES, LogLinear

FORMS = ("t", "lambda", "k")


@dataclass(frozen=True)
class RADD(Method):
    """The method: which tokens to mask, and how much they count (Eq. masked-bound).

    Args:
        bos: the id of BOS, which is never masked.
        mask: the id of MASK, which comes after the vocabulary.
        form: how the number of masked tokens is drawn: 't' draws a time and masks independently,
            'lambda' the probability of masking, 'k' the number itself, which has the lowest
            variance. All have the same mean.
        weighting: 'bound' trains on the bound itself, 'simple' counts every state once.
        schedule: of the form 't'.
        padded: whether texts are documents with separators after them, up to the fixed length,
            instead of chunks of that length.
    """

    name: ClassVar[str] = "radd"
    writes_separators: ClassVar[bool] = True
    keeps_length: ClassVar[bool] = True

    bos: int
    mask: int
    separator: int
    fixed_length: int
    form: str = "k"
    weighting: str = "bound"
    schedule: str = "log-linear"
    padded: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("form", self.form, FORMS),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if value not in known:
                raise ValueError(f"the {name} must be one of {', '.join(known)}: got '{value}'")

    @classmethod
    def build(
        cls,
        tokenizer: Tokenizer,
        weighting: str = "bound",
        form: str = "k",
        fixed_length: int = 1024,
        padding: int = 0,
        **_: Any,
    ) -> Self:
        """For chunks of `fixed_length` tokens, or documents padded to `padding` if it is not 0."""
        return cls(
            bos=tokenizer.bos,
            mask=tokenizer.vocabulary,
            separator=tokenizer.separator,
            fixed_length=padding or fixed_length,
            form=form,
            weighting=weighting,
            padded=padding > 0,
        )

    @classmethod
    def cuts_chunks(cls, padding: int = 0, **_: Any) -> bool:
        """Unless documents are padded."""
        return not padding

    @property
    def heads(self) -> Heads:
        """Tokens alone: where they are missing can be seen."""
        return Heads(rates=False, timed=False, flags=False, marks=1)

    @property
    def length(self) -> int | None:
        """How many tokens every text has, padding included."""
        return self.fixed_length

    @property
    def variable_length(self) -> bool:
        """Whether texts are documents, whose padding says where they end."""
        return self.padded

    @property
    def edit(self) -> Edit:
        """A token takes the place of a mark."""
        return replace_marks

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """Every token comes with the same probability, whatever the network says."""
        return {"tau-leaping": SAMPLERS["tau-leaping"]}

    def lay_out(self, documents: Documents, longest: int) -> Corpus:
        """Chunks of all documents, or each document with padding."""
        if self.padded:
            return documents.padded(self.fixed_length)
        return documents.chunks(self.fixed_length)

    def start(self, start: Start, length: int | None) -> Start:
        """MASK in every blank: how many tokens come there must be known beforehand.

        Raises:
            ValueError: if it is not.
        """
        length = self.fixed_length if length is None else length
        if not (self.padded and start.blank[-1] == CLOSED):
            return with_marks(start, self.mask, length)
        # The text ends with given tokens: all that follows is padding.
        if (start.least != start.most).any():
            raise ValueError(
                "this method must know how many tokens come into blanks with text after them: "
                "write [...5-5] for a blank of 5 tokens"
            )
        marked = with_marks(start, self.mask, len(start.tokens) + int(start.least.sum()))
        rest = length - len(marked.tokens)
        if rest < 0:
            raise ValueError(
                f"with its blanks filled the template has {len(marked.tokens)} tokens: "
                f"the model writes at most {length}"
            )
        padding = np.full(rest, self.separator)
        return replace(
            marked,
            tokens=np.append(marked.tokens, padding),
            given=np.append(marked.given, np.full(rest, marked.given.max(initial=0) + 1)),
            blank=np.append(marked.blank, np.full(rest, CLOSED)),
            spaced=np.append(marked.spaced, np.zeros(rest, dtype=np.bool_)),
        )

    def whole(self, tokens: IntArray, given: GivenText | None) -> tuple[IntArray, GivenText | None]:
        """A document with its padding, which is given if the end of the document is."""
        rest = self.fixed_length - len(tokens) if self.padded else 0
        if given is not None:
            number = given.spans.max(initial=0) + 1 if given.ends_closed else 0
            given = replace(given, spans=np.append(given.spans, np.full(rest, number)))
        return np.append(tokens, np.full(rest, self.separator)), given

    def finish(self, tokens: IntArray) -> int:
        """With padding a text ends where its padding begins."""
        padding = (tokens == self.separator) & self.padded
        return int(padding.argmax()) if padding.any() else len(tokens)

    def training_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        givens: Sequence[GivenText | None] | None = None,
    ) -> Examples:
        """One masked state of each text; the masks depend on (seed, number) alone."""
        rngs = [np.random.default_rng((seed, number)) for number in numbers]
        wishes = givens or [None] * len(texts)
        chosen = [g or nothing_given(len(text)) for g, text in zip(wishes, texts, strict=True)]
        noises = [
            self._training_noise(int((given.spans == 0).sum()), evenly(seed, number), rng)
            for given, number, rng in zip(chosen, numbers, rngs, strict=True)
        ]
        return self.corrupt(texts, chosen, noises, rngs, np.asarray(numbers))

    def evaluation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """Several states of each text, whose costs sum to an unbiased estimate of its bound."""
        visits = visited(
            texts, numbers, seed, givens, lambda free, rng: stratified(free, draws, rng)
        )
        return self.corrupt(*visits, delete=delete_alike)

    def corrupt(
        self,
        texts: Sequence[np.ndarray],
        givens: Sequence[GivenText],
        noises: Sequence[Noise],
        rngs: Sequence[np.random.Generator],
        numbers: np.ndarray,
        delete: Callable[..., BoolArray] = delete_exactly,
    ) -> Examples:
        """Mask as each noise says; every masked token is a target at its own row."""
        x0 = pack(texts, self.bos)
        tokens, offsets = x0.tokens.numpy(), x0.offsets.numpy()
        masked = np.zeros(x0.rows, dtype=np.bool_)
        for text, given, noise, rng, start in zip(
            texts, givens, noises, rngs, offsets[:-1].tolist(), strict=True
        ):
            if noise.count is None:
                keep = delete_independently(len(text), 1 - noise.deleted, rng, given.spans)
            else:
                keep = delete(len(text), noise.count, rng, given.spans)
            masked[start + 1 : start + 1 + len(text)] = ~keep
        weight = np.repeat([noise.weight for noise in noises], np.diff(offsets))
        nothing = np.zeros(len(texts))
        return Examples(
            tokens=np.where(masked, self.mask, tokens),
            given=np.zeros(x0.rows, dtype=np.bool_),  # that a token is there says it all
            open=np.zeros(x0.rows, dtype=np.bool_),
            count=np.zeros(x0.rows),
            count_weight=np.zeros(x0.rows),
            deleted=np.array([noise.deleted for noise in noises]),
            constant=nothing,
            complete=nothing,
            complete_weight=nothing,
            number=numbers,
            offsets=offsets,
            row=np.flatnonzero(masked),
            token=tokens[masked],
            target=weight[masked],
        )

    def _training_noise(self, length: int, place: float, rng: np.random.Generator) -> Noise:
        """A draw for one example; consecutive examples have their places spread evenly."""
        if not length:
            return Noise(1.0, 0, 0.0)
        if self.form == "k":
            noise = exact(length, rng, 1 + int(place * length))
        elif self.form == "lambda":
            noise = integral(LogLinear(), rng, 1 - place)  # whose time is that probability
        else:
            noise = integral(SCHEDULES[self.schedule], rng, 1 - place)
        return noise if self.weighting == "bound" else replace(noise, weight=1.0)
