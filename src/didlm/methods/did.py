"""Deletion-insertion diffusion, for texts of any lengths (DISE) and of one length (DICE)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from didlm.alignment import insertion_targets_batch
from didlm.deletion import delete_exactly
from didlm.methods.examples import Examples
from didlm.objectives.noise import Noise, exact, simple, untouched
from didlm.packed import pack

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class GivenText:
    """What of a text is given: spans (see `didlm.given`), and whether its ends are closed too."""

    spans: np.ndarray
    starts_closed: bool = False  # nothing may be inserted before the text: a prompt
    ends_closed: bool = False  # nothing may be inserted after it: a suffix


@dataclass(frozen=True)
class DID:
    """The method: which states of a text to visit, and the exact targets there.

    Args:
        bos: the id of BOS.
        fixed_length: all texts have one length; rates are normalised and the network knows no time.
        given_share: share of the training examples in which part of the text is given.
        weighting: 'bound' trains on the bound itself, 'simple' counts every state once.
        untouched_share: share of the training examples with nothing deleted, for 'bound'.
    """

    bos: int
    fixed_length: bool = False
    given_share: float = 0.0
    weighting: str = "bound"
    untouched_share: float = 0.1

    def training_examples(
        self, texts: Sequence[np.ndarray], numbers: Sequence[int], seed: int
    ) -> Examples:
        """One noised state of each text; the noise depends on (seed, number) alone."""
        givens, noises, rngs = [], [], []
        for text, number in zip(texts, numbers, strict=True):
            rng = np.random.default_rng((seed, number))
            wanted = rng.random() < self.given_share and len(text) > 0
            given = random_given(len(text), rng) if wanted else nothing_given(len(text))
            givens.append(given)
            noises.append(self._training_noise(int((given.spans == 0).sum()), number, seed, rng))
            rngs.append(rng)
        return self.corrupt(texts, givens, noises, rngs, np.asarray(numbers))

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
        many = []
        for place, (text, number) in enumerate(zip(texts, numbers, strict=True)):
            rng = np.random.default_rng((seed, number))
            given = givens[place] if givens else nothing_given(len(text))
            for noise in self._evaluation_noise(int((given.spans == 0).sum()), draws, rng):
                many.append((text, given, noise, rng, number))
        states, all_given, noises, rngs, documents = zip(*many, strict=True)
        return self.corrupt(states, all_given, noises, rngs, np.asarray(documents))

    def corrupt(
        self,
        texts: Sequence[np.ndarray],
        givens: Sequence[GivenText],
        noises: Sequence[Noise],
        rngs: Sequence[np.random.Generator],
        numbers: np.ndarray,
    ) -> Examples:
        """Delete as each noise says; align; weigh the targets (Eq. factored-dise, Eq. dice)."""
        x0 = pack(texts, self.bos, [given.spans for given in givens])
        keep = np.ones(x0.rows, dtype=np.bool_)
        for text, given, noise, rng, start in zip(
            texts, givens, noises, rngs, x0.offsets[:-1].tolist(), strict=True
        ):
            assert noise.count is not None
            mask = delete_exactly(len(text), noise.count, rng, given.spans)
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
            number=numbers,
            offsets=offsets,
            row=targets.gap,
            token=targets.token,
            target=target,
        )

    def _constant(
        self, gap: np.ndarray, ratio: np.ndarray, sequence: np.ndarray, size: int
    ) -> np.ndarray:
        """Per sequence: sum of r log r, less r (Poisson) or less k log k (normalised)."""
        entropy = ratio * np.log(np.where(ratio > 0, ratio, 1.0))
        total = np.bincount(sequence[gap], entropy, minlength=size)
        missing = np.bincount(sequence[gap], ratio, minlength=size)
        if self.fixed_length:
            return total - missing * np.log(np.where(missing > 0, missing, 1.0))
        return total - missing

    def _training_noise(
        self, length: int, number: int, seed: int, rng: np.random.Generator
    ) -> Noise:
        """A draw for one example; consecutive examples spread the numbers deleted evenly."""
        # Examples are seeded with pairs: a triple is apart from all of them.
        start = np.random.default_rng((seed, 0, 2)).random()
        evenly = (start + number * GOLDEN) % 1.0
        if self.weighting == "simple" and not (self.fixed_length and length):
            return simple(length, rng, int(evenly * (length + 1)))
        if self.weighting == "simple":  # with nothing deleted, normalised rates cost nothing
            return replace(exact(length, rng, 1 + int(evenly * length)), weight=1.0)
        share = 0.0 if self.fixed_length else self.untouched_share
        if length == 0 or evenly < share:
            noise = untouched(length, rng)
            # A text of which nothing can be deleted has no other states.
            return noise if length == 0 else replace(noise, weight=noise.weight / share)
        count = 1 + int((evenly - share) / (1 - share) * length)
        noise = exact(length, rng, count)
        return replace(noise, weight=noise.weight / (1 - share))

    def _evaluation_noise(self, length: int, draws: int, rng: np.random.Generator) -> list[Noise]:
        noises = [] if self.fixed_length else [untouched(length, rng)]
        if length:
            for stratum in range(draws):
                count = 1 + int((stratum + rng.random()) / draws * length)
                noise = exact(length, rng, min(count, length))
                noises.append(replace(noise, weight=noise.weight / draws))
        return noises


def nothing_given(length: int) -> GivenText:
    """All of a text is free."""
    return GivenText(np.zeros(length, dtype=np.int64))


def given_prefix(length: int, given: int) -> GivenText:
    """The first `given` tokens are a prompt."""
    spans = np.zeros(length, dtype=np.int64)
    spans[:given] = 1
    return GivenText(spans, starts_closed=given > 0)


def given_suffix(length: int, given: int) -> GivenText:
    """The last `given` tokens are a suffix."""
    spans = np.zeros(length, dtype=np.int64)
    spans[length - given :] = 1
    return GivenText(spans, ends_closed=given > 0)


def random_given(length: int, rng: np.random.Generator) -> GivenText:
    """A random prefix, suffix, both, or up to three spans with blanks all around."""
    kind = rng.integers(4)
    if kind == 0:
        return given_prefix(length, int(rng.integers(1, length + 1)))
    if kind == 1:
        return given_suffix(length, int(rng.integers(1, length + 1)))
    spans = np.zeros(length, dtype=np.int64)
    if kind == 2:
        first, last = np.sort(rng.integers(0, length + 1, 2))
        spans[:first], spans[last:] = 1, 2
        return GivenText(spans, starts_closed=first > 0, ends_closed=last < length)
    count = int(rng.integers(1, 4))
    cuts = np.sort(rng.integers(0, length + 1, 2 * count)).reshape(count, 2)
    for number, (first, last) in enumerate(cuts, start=1):
        spans[first:last] = number
    return GivenText(spans)
