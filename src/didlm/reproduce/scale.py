"""Scales: the same experiments with smaller models, less data and fewer steps."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

PAPER = "paper"
LEAST_STEPS, LEAST_BATCH, LEAST_TOKENS = 4, 4, 16
RISE = 0.05  # of the steps, at least: a warm-up of a few steps would be none
LENGTHS = ("max_length", "fixed_length", "padding")


@dataclass(frozen=True)
class Scale:
    """How large everything is; shares are of what the paper has.

    Args:
        name: of the scale.
        what: for people.
        presets: sizes in place of the paper's.
        context: share of the tokens of a text.
        steps: share of the training steps, warm-up and epochs.
        steps_of: the same of recipes for which it is another.
        batch: share of the texts of a step.
        flops: share of the operations, where these are the budget.
        vocabulary: of tokenizers that are learnt, where none is named.
        texts: to learn from, at most; 0 for all.
        documents: to be asked about, at most; 0 for all.
        samples: that are written; 0 for as many as in the paper.
        prompts: that are gone on with; 0 for as many as in the paper.
        draws: noised states of each text of a bound.
        judge: of samples; without, an autoregressive model is trained on the same texts.
        settings: of all training.
    """

    name: str
    what: str
    presets: Mapping[str, str] = field(default_factory=dict)
    context: float = 1.0
    steps: float = 1.0
    steps_of: Mapping[str, float] = field(default_factory=dict)
    batch: float = 1.0
    flops: float = 1.0
    vocabulary: int = 0
    texts: int = 0
    documents: int = 0
    samples: int = 0
    prompts: int = 0
    draws: int = 32
    judge: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def comparable(self) -> bool:
        """Whether figures may be compared with the paper's."""
        return self.name == PAPER

    def tokens(self, count: int) -> int:
        """A number of tokens, such as that of a prompt."""
        return max(1, round(count * self.context))

    def steps_share(self, recipe: str) -> float:
        """How many of the steps of a recipe are taken."""
        return self.steps_of.get(recipe, self.steps)

    def applied(self, settings: Mapping[str, Any], recipe: str = "") -> dict[str, Any]:
        """The settings of a training run of a recipe at this scale."""
        if self.comparable:
            return dict(settings)
        scaled, share = dict(settings), self.steps_share(recipe)
        scaled["preset"] = self.presets.get(scaled["preset"], scaled["preset"])
        for name in LENGTHS:
            if scaled.get(name):
                scaled[name] = max(LEAST_TOKENS, self.tokens(scaled[name]))
        scaled["steps"] = max(LEAST_STEPS, round(scaled.get("steps", 0) * share))
        scaled["warmup"] = round(max(scaled["warmup"] * share, scaled["steps"] * RISE))
        scaled["validate_every"] = max(1, scaled["steps"] // 10)
        scaled["batch"] = max(LEAST_BATCH, round(scaled["batch"] * self.batch))
        scaled["flops"] = scaled.get("flops", 0.0) * self.flops
        # An average over more steps than there are would be one of the weights at the start.
        scaled["average"] = max(0.5, 1 - (1 - scaled["average"]) / share)
        return scaled | {"vocabulary": self.vocabulary} | dict(self.settings)


def scales() -> dict[str, Scale]:
    """All scales by name, the paper's first."""
    text = (resources.files("didlm.reproduce") / "scales.toml").read_text(encoding="utf-8")
    return {name: Scale(name=name, **values) for name, values in tomllib.loads(text).items()}


def find_scale(name: str) -> Scale:
    """The scale of a name.

    Raises:
        ValueError: if there is none.
    """
    known = scales()
    if name not in known:
        raise ValueError(f"there is no scale '{name}': known are {', '.join(known)}")
    return known[name]
