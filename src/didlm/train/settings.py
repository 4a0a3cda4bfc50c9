"""All settings of a training run, in one place, from recipes and the command line."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from didlm.methods.registry import find_method

PRECISIONS = ("fp32", "bf16", "fp16")
WEIGHTINGS = ("bound", "simple")


@dataclass(frozen=True)
class Settings:
    """A training run. Every field can be set by a recipe and by `--set name=value`."""

    # what
    method: str = "did"  # or did-fixed, radd, ilm, ar, or one that another package brings
    preset: str = "tiny"
    data: str = ""  # a store, or text as for `didlm prepare`; empty for the embedded stories
    valid: str = "0.05"  # the same, or the fraction of the documents to split off
    init: str = ""  # a model to start from; it brings its tokenizer and its size
    freeze_embeddings: bool = False  # leave the two tables over the vocabulary as they are
    tokenizer: str = ""  # a file or folder; empty to train a byte-level BPE on the data
    vocabulary: int = 4096  # of a tokenizer trained here
    column: str = "text"  # of .jsonl and .parquet files; or prompt+response, the first given
    separator: str = "<|endoftext|>"  # between the documents of .txt files
    max_length: int = 1024  # documents are cut to so many tokens
    fixed_length: int = 1024  # tokens in each chunk, for did-fixed and radd
    padding: int = 0  # for radd: pad documents to so many tokens instead of cutting chunks
    form: str = "k"  # of radd's loss: t, lambda or k
    objective: str = "dice"  # for did-fixed: or dise, which makes no use of the known length
    # how
    steps: int = 1000
    flops: float = 0.0  # floating-point operations to spend, in place of a number of steps
    seconds: float = 0.0  # of training, after which a run ends before its steps have been taken
    batch: int = 64  # documents per optimiser step
    accumulate: int = 1  # batches into which such a step is divided
    optimiser: str = "muon"  # for the matrices inside; or adamw for all
    learning_rate: float = 3e-3
    warmup: int = 100
    schedule: str = "wsd"  # constant, cosine or wsd
    decay: float = 0.3  # share of the steps in which wsd falls
    beta_1: float = 0.9
    beta_2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.999  # decay of the moving average of the weights
    dropout: float = 0.0
    given_share: float = 0.333  # of the examples, in which part of the text is given
    mistaken_share: float = 0.0  # of DID's examples, in which some of what is left is wrong
    weighting: str = "simple"  # every state counts once; or bound, which has a higher variance
    precision: str = "fp32"
    compile: bool = False
    checkpointing: bool = False  # recompute activations to save memory
    capture: bool = True  # on a GPU in bf16: take steps as captured graphs of kernels
    # where and when
    seed: int = 0
    device: str = "cpu"
    distribution: str = "ddp"  # with torchrun: every process has the network; or fsdp, a part
    workers: int = -1  # processes that make batches; -1 for as many as the machine has use for
    validate_every: int = 500  # steps
    validate_seconds: float = 0.0  # of training, after so many as well; 0 for none by time
    valid_documents: int = 200  # at most
    valid_draws: int = 4
    samples: int = 4  # written at each validation
    sample_steps: int = 64
    log_every: int = 10
    bad_steps: int = 5  # non-finite steps in a row that end the run
    checkpoint_every: int = 0  # steps; 0 for none by steps
    checkpoint_seconds: float = 600.0  # after so many; 0 for none by time
    keep_checkpoints: int = 2
    snapshots: int = 0  # models to keep on the way, evenly spread, the last one at the end

    def __post_init__(self) -> None:
        find_method(self.method)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("weighting", self.weighting, WEIGHTINGS)
        _one_of("optimiser", self.optimiser, ("adamw", "muon"))
        _one_of("schedule", self.schedule, ("constant", "cosine", "wsd"))
        _one_of("distribution", self.distribution, ("ddp", "fsdp"))
        if self.distribution == "fsdp" and self.precision == "fp16":
            raise ValueError("fsdp does not scale losses as fp16 needs it: use bf16")
        for name in (
            "steps",
            "batch",
            "accumulate",
            "vocabulary",
            "max_length",
            "fixed_length",
            "validate_every",
            "valid_documents",
            "valid_draws",
            "log_every",
            "bad_steps",
            "sample_steps",
            "keep_checkpoints",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1: got {getattr(self, name)}")
        for name in (
            "samples",
            "warmup",
            "seed",
            "weight_decay",
            "padding",
            "flops",
            "seconds",
            "validate_seconds",
            "checkpoint_every",
            "checkpoint_seconds",
            "snapshots",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: got {getattr(self, name)}")
        if self.workers < -1:
            raise ValueError(f"workers must be a number, or -1 to choose it: got {self.workers}")
        for name in ("dropout", "given_share", "mistaken_share", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1: got {getattr(self, name)}")
        for name in ("average", "beta_1", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 0 and below 1: got {getattr(self, name)}"
                )
        for name in ("learning_rate", "clip", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive: got {getattr(self, name)}")
        if self.seconds and self.schedule != "constant":
            raise ValueError(
                f"the schedule {self.schedule} must know how many steps there will be, which "
                "seconds do not tell: use constant"
            )
        if self.seconds and self.snapshots:
            raise ValueError("snapshots are spread over steps, whose number seconds do not tell")
        if self.batch % self.accumulate:
            raise ValueError(
                f"batch {self.batch} cannot be divided into {self.accumulate} equal parts"
            )

    def changed(self, values: Mapping[str, Any]) -> "Settings":
        """The settings with some replaced; text is read as the field's type.

        Raises:
            ValueError: for an unknown name, with the nearest known one, or a value of another type.
        """
        types = {field.name: type(field.default) for field in fields(self)}
        read = {}
        for name, value in values.items():
            if name not in types:
                near = get_close_matches(name, types, 1)
                hint = f": did you mean '{near[0]}'?" if near else ""
                raise ValueError(f"there is no setting '{name}'{hint}")
            read[name] = _read(name, value, types[name])
        return replace(self, **read)


def recipe(name: str) -> dict[str, Any]:
    """The settings in a recipe: the name of a shipped one, or a .toml file.

    Raises:
        ValueError: if there is no such recipe, or the file is no TOML.
    """
    shipped = {
        file.name.removesuffix(".toml"): file
        for file in resources.files("didlm.recipes").iterdir()
        if file.name.endswith(".toml")
    }
    try:
        text = (shipped[name] if name in shipped else Path(name)).read_text(encoding="utf-8")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(sorted(shipped))
        raise ValueError(f"'{name}' is neither a recipe ({known}) nor a file") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the recipe {name} is not TOML: {error}") from None


def _read(name: str, value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false: got '{value}'")
        return value.lower() == "true"
    if kind is str:
        return str(value)
    try:
        if kind is not bool and isinstance(value, bool):
            raise TypeError
        read = kind(value)
        if isinstance(value, float) and read != value:
            raise ValueError
    except (TypeError, ValueError):
        words = {int: "a whole number", float: "a number", bool: "true or false"}
        raise ValueError(f"{name} must be {words[kind]}: got '{value}'") from None
    return read


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}: got '{value}'")
