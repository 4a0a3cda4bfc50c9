"""What is compared on real text: the settings of data, and the runs with all of their knobs.

One learning rate and one batch for all methods of a size, tuned for none of them; a constant rate,
so that every point of a run's curve is what a shorter run would have come to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from didlm.methods.registry import find_method
from didlm.train.prepare import joined
from didlm.train.settings import Settings


@dataclass(frozen=True)
class Setting:
    """Text, its tokenizer, and how methods see it."""

    name: str
    vocabulary: int
    chunks: bool  # of one length; else whole documents
    training: tuple[str, ...]
    validation: tuple[str, ...]
    judge: str  # the run that judges samples


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("stories", 4096, False, *2 * (("tinystories", "fables"),), "ar-small"),
        Setting("novels", 8192, True, *2 * (("eltec",),), "ar-chunks-small"),
    )
}
# Of what is never learnt from; those that are parts of others are left out.
ZERO_SHOT = (
    "wikitext2.test",
    "lambada.test",
    "pubmed.test",
    "ag_news.test",
    "ptb.test",
    "openwebtext.sample",
)
LEARNING_RATE = {"tiny": 6e-3, "mini": 4e-3, "small": 2e-3}
BATCH = {"tiny": 32, "mini": 128, "small": 64}
TOP_P = 0.9  # with which texts are written beside those of all tokens
VALIDATIONS = 12  # evenly spread over a run


@dataclass(frozen=True)
class Run:
    """One training run."""

    name: str
    setting: str
    method: str
    preset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    only_judges: bool = False  # is no part of the comparison, for it reads other texts

    @property
    def group(self) -> tuple[str, str]:
        """Runs of one group are compared: the same text, the same size."""
        return self.setting, self.preset

    @property
    def stepwise(self) -> bool:
        """Whether the number of steps of its sampler can be chosen."""
        return self.method not in ("ar", "ilm")

    @property
    def bounded(self) -> bool:
        """Whether it has a likelihood, or a bound on it."""
        return find_method(self.method).bounded


# A quarter of the examples of DID and ILM have given text, without which they could not fill
# middles; RADD learns that anyway, and AR cannot.
GIVEN = {"given_share": 0.25}
RUNS = {
    run.name: run
    for run in (
        Run("did-mini", "stories", "did", "mini", GIVEN),
        Run("radd-mini", "stories", "radd", "mini", {"padding": True}),
        Run("ar-mini", "stories", "ar", "mini"),
        Run("ilm-mini", "stories", "ilm", "mini", GIVEN),
        Run("ar-small", "stories", "ar", "small"),
        Run("did-small", "stories", "did", "small", GIVEN),
        Run("radd-small", "stories", "radd", "small", {"padding": True}),
        Run("did-fixed-small", "novels", "did-fixed", "small", {"objective": "dice"}),
        Run("radd-fixed-small", "novels", "radd", "small"),
        Run("ar-chunks-small", "novels", "ar", "small", {"chunked": True}, only_judges=True),
        Run("did-fixed-dise-small", "novels", "did-fixed", "small", {"objective": "dise"}),
    )
}


def chosen(names: Iterable[str] | None) -> list[Run]:
    """The runs of these names, in the order of the table; all without any.

    Raises:
        ValueError: for an unknown name.
    """
    wanted = set(RUNS if names is None else names)
    if unknown := wanted - set(RUNS):
        raise ValueError(f"there is no run {min(unknown)}: known are {', '.join(RUNS)}")
    return [run for run in RUNS.values() if run.name in wanted]


def training_settings(
    run: Run, data: Path, context: int, seconds: float, device: str, changes: Mapping[str, Any]
) -> Settings:
    """Those of a run.

    Args:
        run: the run.
        data: the folder of prepared data.
        context: tokens of a chunk, and of the longest document; RADD pads to as many.
        seconds: of training.
        device: where.
        changes: to be made at the end.
    """
    options = dict(run.options)
    setting, own = SETTINGS[run.setting], data / run.setting
    chunked, padded = options.pop("chunked", False), options.pop("padding", False)
    sides = {
        side: joined([str(text_file(data, name, side, chunked)) for name in names])
        for side, names in (("train", setting.training), ("valid", setting.validation))
    }
    rest: dict[str, Any] = {
        "method": run.method,
        "preset": run.preset,
        "data": sides["train"],
        "valid": sides["valid"],
        "tokenizer": str(own / "tokenizer"),
        "max_length": context,
        "fixed_length": context,
        "padding": context if padded else 0,
        "given_share": 0.0,
        "steps": 10**9,  # time ends it
        "seconds": seconds,
        "schedule": "constant",
        "average": 0.999,
        "warmup": 50,
        "optimiser": "muon",
        "learning_rate": LEARNING_RATE[run.preset],
        "batch": BATCH[run.preset],
        "weighting": "simple",
        # Twenty megabytes of stories are read many times over, sixty of novels a few times.
        "dropout": 0.0 if setting.chunks else 0.1,
        "precision": "bf16" if device.startswith("cuda") else "fp32",
        "device": device,
        "validate_every": 10**9,
        "validate_seconds": seconds / VALIDATIONS,
        "valid_documents": 200,
        "valid_draws": 4,
        "samples": 0,
        "log_every": 50,
        "checkpoint_seconds": 0.0,
    }
    return Settings().changed(rest | options | dict(changes))


def text_file(data: Path, name: str, side: str, chunked: bool = False) -> Path:
    """Where prepared text lies: of a part of a setting, whole or cut into chunks."""
    (setting,) = (s.name for s in SETTINGS.values() if name in s.training)
    if chunked:  # see `real_text_data.make_chunks`
        return data / setting / "chunks" / f"{name}.{side}.jsonl"
    return data / setting / f"{name}.{side}.jsonl.xz"
