"""What is to be trained, and how much of everything a step has in the mean over the noise."""

import math
from dataclasses import dataclass, replace

from didlm.methods.ar import AR
from didlm.methods.did import DID, FixedDID
from didlm.methods.ilm import ILM
from didlm.methods.method import Method
from didlm.methods.radd import RADD
from didlm.model.config import ModelConfig, preset

METHODS = ("did", "did-fixed", "radd", "ilm", "ar")
OF_CHUNKS, OF_DOCUMENTS = ("did-fixed", "radd", "ar"), ("did", "radd", "ar")  # side by side
UNTOUCHED = 0.1  # share of the examples of did with nothing deleted, as `DID` has it
# Lengths of documents are taken to be gamma distributed with this shape, as those of stories are:
# their mean square is 1 + 1 / SHAPE times the square of their mean.
SHAPE = 5
UNEVEN = 0.4  # texts by which evenly spread numbers of deleted tokens still make batches differ


@dataclass(frozen=True)
class Case:
    """A step of training.

    Args:
        method: what is learnt.
        preset: the size of the network.
        context: tokens of a text; the most of them where lengths vary.
        batch: texts of a step, over all GPUs.
        vocabulary: how many tokens there are.
        gpus: that share the step.
        mean_length: of documents; None if texts are chunks that fill the context.
        accumulate: batches into which the share of a GPU is divided.
        checkpointing: whether activations are made again in the backward pass.
        optimiser: 'adamw' or 'muon'.
    """

    method: str
    preset: str = "small"
    context: int = 1024
    batch: int = 64
    vocabulary: int = 50_257
    gpus: int = 1
    mean_length: float | None = None
    accumulate: int = 1
    checkpointing: bool = False
    optimiser: str = "adamw"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            known = ", ".join(METHODS)
            raise ValueError(f"no plan for the method '{self.method}': known are {known}")
        for name in ("context", "batch", "vocabulary", "gpus", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1: got {getattr(self, name)}")
        if self.batch % (self.gpus * self.accumulate):
            parts = f"{self.gpus} GPUs times {self.accumulate} batches"
            raise ValueError(f"--batch {self.batch} cannot be divided among {parts} equally")
        if self.optimiser not in ("adamw", "muon"):
            raise ValueError(f"--optimiser must be adamw or muon: got '{self.optimiser}'")
        self._check_lengths()

    def _check_lengths(self) -> None:
        mean = self.mean_length
        if mean is None and self.method in ("did", "ilm"):
            raise ValueError(f"{self.method} is for documents: say how long with --mean-length N")
        if mean is not None and self.method == "did-fixed":
            raise ValueError("did-fixed is for chunks of one length: leave out --mean-length")
        if mean is not None and not 1 <= mean <= self.context:
            raise ValueError(
                f"--mean-length must be between 1 and the context of {self.context}: got {mean:g}"
            )

    @property
    def rule(self) -> Method:
        """The method itself."""
        if self.method == "did-fixed":
            return FixedDID(0, self.context)
        if self.method == "radd":
            padded = self.mean_length is not None
            return RADD(0, self.vocabulary, 0, self.context, padded=padded)
        if self.method == "ar":
            return AR(0, 1)
        return DID(0) if self.method == "did" else ILM(0)

    @property
    def config(self) -> ModelConfig:
        """The network."""
        return preset(self.preset, self.vocabulary, self.rule.heads)

    @property
    def captured(self) -> bool:
        """Whether steps are graphs of kernels, as `didlm.train.state` decides it."""
        return self.gpus == 1 and self.accumulate == 1 and not self.checkpointing

    @property
    def tokens(self) -> float:
        """Of text in a step, over all GPUs."""
        return self.batch * (self.mean_length or self.context)

    def at_once(self) -> "Case":
        """What one GPU has before it in one pass."""
        return replace(self, batch=self.batch // (self.gpus * self.accumulate), gpus=1)


@dataclass(frozen=True)
class Load:
    """What one batch holds, in the mean over the noise of the method."""

    sequences: int
    rows: float  # that the network reads
    pairs: float  # sum of the squares of the rows of each sequence
    target_rows: float  # that the token head reads
    spread: float  # standard deviation of the rows


def expected_load(case: Case) -> Load:
    """That of one batch of a case on one GPU.

    Derived, not fitted. The number k of deleted tokens is uniform on 1..m, so the rows m - k + 1
    are, too. Of a text with k tokens deleted, k (m - k + 1) / m rows have some missing right after
    them: a third of all rows. (Equal tokens side by side can be missing in more than one gap, so
    that the exact targets of texts stand in a few percent more.) Rows of a batch vary as
    the lengths m do; numbers deleted are spread evenly over it, and add little.
    """
    sequences = case.at_once().batch
    padded = case.method == "radd"
    mean = case.context if padded else case.mean_length or case.context
    varies = case.mean_length is not None and not padded
    square = mean**2 * (1 + varies / SHAPE)
    whole, whole_square = mean + 1, square + 2 * mean + 1
    half, third = (mean + 1) / 2, (2 * square + 3 * mean + 1) / 6
    targets = (mean + 3 + 2 / mean) / 6
    uneven = UNEVEN * mean
    kept_square = 1 / 3  # of the share 1 - k / m that is read, in the mean
    if case.method == "ar":
        rows, pairs, targets = whole, whole_square, whole
        kept_square, uneven = 1.0, 0.0
    elif case.method == "radd":
        rows, pairs, targets, uneven = whole, whole_square, half, 0.0
    elif case.method == "did-fixed":
        rows, pairs = half, third
    elif case.method == "ilm":  # k is uniform on 0..m
        rows, pairs, targets = half + 0.5, (2 * square + 7 * mean + 6) / 6, (mean + 2) / 6
    else:
        rows = UNTOUCHED * whole + (1 - UNTOUCHED) * half
        pairs = UNTOUCHED * whole_square + (1 - UNTOUCHED) * third
        targets *= 1 - UNTOUCHED
        kept_square = UNTOUCHED + (1 - UNTOUCHED) / 3
    return Load(
        sequences,
        sequences * rows,
        sequences * pairs,
        sequences * targets,
        spread=math.sqrt(sequences * (square - mean**2) * kept_square + uneven**2),
    )
