"""Deletion-insertion diffusion, for texts of any lengths (DISE) and of one length (DICE)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from didlm._inputs import BoolArray
from didlm.alignment import insertion_targets_batch
from didlm.data.corpus import Corpus, Documents
from didlm.data.tokenizer import Tokenizer
from didlm.deletion import delete_alike, delete_exactly
from didlm.generate.samplers import SAMPLERS, Sampler
from didlm.given import GivenText, chosen_given
from didlm.methods.examples import Examples
from didlm.methods.method import Method
from didlm.methods.visits import visited
from didlm.mistakes import with_mistakes
from didlm.model.config import Heads
from didlm.objectives.noise import Noise, evenly, exact, simple, stratified, untouched
from didlm.packed import pack


@dataclass(frozen=True)
class DID(Method):
    """The method: which states of a text to visit, and the exact targets there.

    Args:
        bos: the id of BOS.
        fixed_length: how many tokens all texts have, if they have as many: rates are normalised
            then, and the network knows no time.
        given_share: share of the training examples in which part of the text is given.
        weighting: 'bound' trains on the bound itself, 'simple' counts every state once.
        untouched_share: share of the training examples with nothing deleted, for 'bound'.
        mistaken_share: share of the training examples in which some of what is left is wrong.
    """

    name: ClassVar[str] = "did"
    corrects: ClassVar[bool] = True
    aligned: ClassVar[bool] = True

    bos: int
    fixed_length: int | None = None
    given_share: float = 0.0
    weighting: str = "bound"
    untouched_share: float = 0.1
    mistaken_share: float = 0.0

    @classmethod
    def build(
        cls,
        tokenizer: Tokenizer,
        given_share: float = 0.0,
        weighting: str = "bound",
        mistaken_share: float = 0.0,
        **_: Any,
    ) -> Self:
        """For texts of any lengths."""
        return cls(
            tokenizer.bos,
            given_share=given_share,
            weighting=weighting,
            mistaken_share=mistaken_share,
        )

    @property
    def heads(self) -> Heads:
        """Rates and tokens; with one length, rates relative to each other and no time.

        Where no text is ever given in training, what is given has no mark that could be learnt.
        """
        normalised = self.normalised
        return Heads(timed=not normalised, normalised=normalised, flags=self.given_share > 0)

    @property
    def normalised(self) -> bool:
        """Whether the rates of a text sum to the number of its missing tokens (Eq. dice)."""
        return self.fixed_length is not None

    @property
    def length(self) -> int | None:
        """How many tokens every text has, if all have as many."""
        return self.fixed_length

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """All that insert anywhere; with one length the default is the one that keeps to it."""
        names = ["adaptive", "tau-leaping", "counted", "jump-chain"]
        if self.fixed_length is not None:
            names = ["counted", "jump-chain", "adaptive", "tau-leaping"]
        return {name: SAMPLERS[name] for name in names}

    def training_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        givens: Sequence[GivenText | None] | None = None,
    ) -> Examples:
        """One noised state of each text; the noise depends on (seed, number) alone."""
        chosen, noises, rngs = [], [], []
        for text, number, wish in zip(texts, numbers, givens or [None] * len(texts), strict=True):
            rng = np.random.default_rng((seed, number))
            given = chosen_given(len(text), wish, self.given_share, rng)
            chosen.append(given)
            noises.append(self._training_noise(int((given.spans == 0).sum()), number, seed, rng))
            rngs.append(rng)
        examples = self.corrupt(texts, chosen, noises, rngs, np.asarray(numbers))
        return self._mistaken(examples, texts, rngs) if self.mistaken_share else examples

    def evaluation_examples(
        self,
        texts: Sequence[np.ndarray],
        numbers: Sequence[int],
        seed: int,
        draws: int,
        givens: Sequence[GivenText] | None = None,
    ) -> Examples:
        """Several states of each text, whose costs sum to an unbiased estimate of its bound.

        The number deleted is spread evenly over 1..length, one state in each of `draws` strata, and
        one more state has nothing deleted.
        """
        visits = visited(
            texts, numbers, seed, givens, lambda free, rng: self._evaluation_noise(free, draws, rng)
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
        """Delete as each noise says; align; weigh the targets (Eq. factored-dise, Eq. dice)."""
        x0 = pack(texts, self.bos, [given.spans for given in givens])
        keep = np.ones(x0.rows, dtype=np.bool_)
        for text, given, noise, rng, start in zip(
            texts, givens, noises, rngs, x0.offsets[:-1].tolist(), strict=True
        ):
            assert noise.count is not None
            mask = delete(len(text), noise.count, rng, given.spans)
            keep[start + 1 : start + 1 + len(text)] = mask
        targets = insertion_targets_batch(x0, keep)
        x_t = x0.delete(keep)
        offsets, opened = x_t.offsets.numpy(), x_t.open.numpy().copy()
        opened[offsets[:-1][[given.starts_closed for given in givens]]] = False
        opened[offsets[1:][[given.ends_closed for given in givens]] - 1] = False

        lengths = np.diff(offsets)
        weight = np.array([noise.weight for noise in noises])
        sequence = np.repeat(np.arange(len(texts)), lengths)
        target = targets.ratio * weight[sequence[targets.gap]]
        return Examples(
            tokens=x_t.tokens.numpy(),
            given=x_t.given.numpy() != 0,
            open=opened,
            count=np.bincount(targets.gap, target, minlength=len(sequence)),
            count_weight=np.where(opened, weight[sequence], 0.0),
            deleted=np.array([noise.deleted for noise in noises]),
            constant=weight * self._constant(targets.gap, targets.ratio, sequence, len(texts)),
            complete=np.zeros(len(texts)),
            complete_weight=np.zeros(len(texts)),
            number=numbers,
            offsets=offsets,
            row=targets.gap,
            token=targets.token,
            target=target,
        )

    def _mistaken(
        self,
        examples: Examples,
        texts: Sequence[np.ndarray],
        rngs: Sequence[np.random.Generator],
    ) -> Examples:
        """The same examples, in some of which tokens are wrong."""
        free = ~examples.given
        free[examples.offsets[:-1]] = False
        starts = examples.offsets[1:-1]
        columns = (np.split(examples.tokens, starts), np.split(free, starts), texts, rngs)
        tokens = [
            with_mistakes(left, may_err, text, self.mistaken_share, rng)
            for left, may_err, text, rng in zip(*columns, strict=True)
        ]
        return replace(examples, tokens=np.concatenate(tokens))

    def _constant(
        self, gap: np.ndarray, ratio: np.ndarray, sequence: np.ndarray, size: int
    ) -> np.ndarray:
        """Per sequence: sum of r log r, less r (Poisson) or less k log k (normalised)."""
        entropy = ratio * np.log(np.where(ratio > 0, ratio, 1.0))
        total = np.bincount(sequence[gap], entropy, minlength=size)
        missing = np.bincount(sequence[gap], ratio, minlength=size)
        if self.normalised:
            return total - missing * np.log(np.where(missing > 0, missing, 1.0))
        return total - missing

    def _training_noise(
        self, length: int, number: int, seed: int, rng: np.random.Generator
    ) -> Noise:
        """A draw for one example; consecutive examples spread the numbers deleted evenly."""
        place = evenly(seed, number)
        if self.weighting == "simple" and not (self.normalised and length):
            return simple(length, rng, int(place * (length + 1)))
        if self.weighting == "simple":  # with nothing deleted, normalised rates cost nothing
            return replace(exact(length, rng, 1 + int(place * length)), weight=1.0)
        share = 0.0 if self.normalised else self.untouched_share
        if length == 0 or place < share:
            noise = untouched(length, rng)
            # A text of which nothing can be deleted has no other states.
            return noise if length == 0 else replace(noise, weight=noise.weight / share)
        count = 1 + int((place - share) / (1 - share) * length)
        noise = exact(length, rng, count)
        return replace(noise, weight=noise.weight / (1 - share))

    def _evaluation_noise(self, length: int, draws: int, rng: np.random.Generator) -> list[Noise]:
        noises = stratified(length, draws, rng)
        return noises if self.normalised else [*noises, untouched(length, rng)]


@dataclass(frozen=True)
class FixedDID(DID):
    """The same for texts of one length: chunks of all documents, laid end to end.

    Args:
        separator: the id of what stands between documents.
        objective: 'dice', or 'dise', which makes nothing of it that the length is known.
    """

    name: ClassVar[str] = "did-fixed"
    writes_separators: ClassVar[bool] = True

    separator: int = 0
    objective: str = "dice"

    def __post_init__(self) -> None:
        if self.objective not in ("dice", "dise"):
            raise ValueError(f"objective must be dice or dise: got '{self.objective}'")

    @classmethod
    def build(
        cls,
        tokenizer: Tokenizer,
        given_share: float = 0.0,
        weighting: str = "bound",
        mistaken_share: float = 0.0,
        fixed_length: int = 1024,
        objective: str = "dice",
        **_: Any,
    ) -> Self:
        """For chunks of `fixed_length` tokens."""
        return cls(
            bos=tokenizer.bos,
            fixed_length=fixed_length,
            given_share=given_share,
            weighting=weighting,
            mistaken_share=mistaken_share,
            separator=tokenizer.separator,
            objective=objective,
        )

    @property
    def normalised(self) -> bool:
        """Whether the rates of a text sum to the number of its missing tokens (Eq. dice)."""
        return self.objective == "dice"

    @classmethod
    def cuts_chunks(cls, **_: Any) -> bool:
        """Always."""
        return True

    def lay_out(self, documents: Documents, longest: int) -> Corpus:
        """Chunks; what is left over at the end is dropped."""
        assert self.fixed_length is not None
        return documents.chunks(self.fixed_length)
