"""What comes out of generation: a finished sample, and the frames on the way to it."""

from dataclasses import dataclass, field

from didlm._inputs import IntArray


@dataclass(frozen=True, eq=False)
class Frame:
    """One text after one step of the sampler."""

    step: int  # 0 is what the text started from
    time: float  # the probability of deletion: from 1, nothing written, to 0, all there
    tokens: IntArray  # [n] without BOS
    born: IntArray  # [n] the step at which each token came, 0 if it was given
    number: int = 0  # which sample it is


@dataclass(frozen=True, eq=False)
class Sample:
    """One text that a model has written."""

    text: str
    tokens: list[int]
    born: list[int]  # the step at which each token came, 0 if it was given
    nfe: int  # network calls that this text took part in
    steps: int  # of the sampler: calls, and steps at which nothing had to be evaluated again
    seconds: float  # its share of the time of its batch, without that of those who look on
    seed: int
    number: int  # which sample of the seed it is
    exact: bool = True  # False if the given text is there only up to the tokenizer's spelling
    network_seconds: float = 0.0  # of its seconds, those in which the network answered
    frames: list[Frame] = field(default_factory=list, repr=False)  # with trace=True

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def line(self) -> dict[str, object]:
        """What is written of it as a line of JSON."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "length": len(self.tokens),
            "steps": self.steps,
            "nfe": self.nfe,
            "seconds": round(self.seconds, 4),
            "network_seconds": round(self.network_seconds, 4),
            "born": self.born,
            "exact": self.exact,
            "seed": self.seed,
            "sample": self.number,
        }
