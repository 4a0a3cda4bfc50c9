"""What a network looks like: its configuration, and the named sizes."""

from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from didlm.model.dialect import Dialect


@dataclass(frozen=True)
class Heads:
    """What a method needs its network to say; all else is the same for all methods."""

    rates: bool = True  # how many tokens are missing in each gap
    normalised: bool = False  # only relative to the other open gaps of a sequence
    timed: bool = True  # the network is told the time
    causal: bool = False  # a row sees only the rows before it
    stop: bool = False  # whether a sequence is complete
    flags: bool = True  # the network is told what is given and which gaps are open
    marks: int = 0  # ids after the vocabulary that are read but never written, such as MASK


@dataclass(frozen=True)
class ModelConfig:
    """Everything that fixes the shape and the meaning of a network's weights."""

    vocabulary: int  # ids run from 0 to vocabulary - 1
    layers: int
    width: int
    heads: int
    feed_forward: int
    condition: int | None = None  # width of the time condition; None if the network knows no time
    norm: str = "layer"  # or "rms"
    gated: bool = False  # whether the feed-forward has a gate
    dropout: float = 0.0
    rates: bool = True  # see `Heads`
    normalised: bool = False
    causal: bool = False
    stop: bool = False
    flags: bool = True
    marks: int = 0
    mean_length: float = 100.0  # of the training texts: the scale of the rates at the start
    length_dispersion: float = 1.0  # of the same: (variance - mean) / mean^2, not below 0
    dialect: Dialect = field(default_factory=Dialect)  # of weights that were trained elsewhere

    def __post_init__(self) -> None:
        if isinstance(self.dialect, dict):  # as it comes from JSON
            object.__setattr__(self, "dialect", Dialect(**self.dialect))
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} cannot be split into {self.heads} heads of even size"
            )
        if self.norm not in ("layer", "rms"):
            raise ValueError(f"the norm must be 'layer' or 'rms': got '{self.norm}'")
        if not 0 < self.mean_length < float("inf"):
            raise ValueError(f"the mean length of texts must be positive: got {self.mean_length}")
        if not 0 <= self.length_dispersion < float("inf"):
            raise ValueError(
                f"the dispersion of lengths must not be negative: got {self.length_dispersion}"
            )
        if self.vocabulary < 1:
            raise ValueError(f"a vocabulary of {self.vocabulary} has no tokens")
        self._check_dialect()

    def _check_dialect(self) -> None:
        leading = self.dialect.leading
        if self.dialect.biases and self.norm != "layer":
            raise ValueError(f"only the layer norm can have a bias: the norm is '{self.norm}'")
        if leading is not None and (self.causal or self.flags):
            raise ValueError("rows in the place of BOS go with neither causal rows nor flags")
        if leading is not None and self.stop and not leading:
            raise ValueError("without any row before the text there is none to tell when to stop")

    @property
    def padded_vocabulary(self) -> int:
        """The vocabulary rounded up to a multiple of 128: several times faster on a GPU."""
        return _padded(self.vocabulary)

    @property
    def symbols(self) -> int:
        """Rows of the table of embeddings: the vocabulary and what is only read, rounded up."""
        return _padded(self.vocabulary + self.marks)


@dataclass(frozen=True)
class Preset:
    """A named size. The paper narrows the feed-forward where there is time, to keep the count."""

    layers: int
    width: int
    heads: int
    feed_forward: int  # without time
    feed_forward_timed: int
    norm: str = "layer"
    gated: bool = False

    def config(self, vocabulary: int, heads: Heads) -> ModelConfig:
        """The network of this size for a method."""
        return ModelConfig(
            vocabulary=vocabulary,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            feed_forward=self.feed_forward_timed if heads.timed else self.feed_forward,
            condition=self.width // 6 if heads.timed else None,
            norm=self.norm,
            gated=self.gated,
            rates=heads.rates,
            normalised=heads.normalised,
            causal=heads.causal,
            stop=heads.stop,
            flags=heads.flags,
            marks=heads.marks,
        )


PRESETS = {
    "tiny": Preset(3, 128, 4, 512, 448),
    "mini": Preset(6, 256, 8, 1024, 896),
    "small": Preset(12, 768, 12, 3072, 2688),
    "medium": Preset(24, 1024, 16, 4096, 3584),
    "large": Preset(36, 1280, 20, 5120, 4480),
    "xl": Preset(20, 1792, 14, 7168, 6656, norm="rms", gated=True),
}


def preset(
    name: str, vocabulary: int, heads: Heads | None = None, dropout: float = 0.0
) -> ModelConfig:
    """The configuration of a named size, for a method's heads.

    Raises:
        ValueError: for an unknown name, with the nearest known one.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(PRESETS)}"
        raise ValueError(f"there is no preset '{name}': {hint}")
    return replace(PRESETS[name].config(vocabulary, heads or Heads()), dropout=dropout)


def _padded(size: int) -> int:
    return -(-size // 128) * 128
