"""Where experiments are done: a folder of runs and figures, in which nothing is done twice."""

import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.judge import Judge, find_judge
from didlm.files import write_text
from didlm.pretrained import Model, check_device, load
from didlm.reproduce.origins import Origin, now, read_figure, write_figure
from didlm.reproduce.pairs import as_pairs, read_questions
from didlm.reproduce.scale import LENGTHS, Scale
from didlm.reproduce.sources import Sources, as_lines
from didlm.train.loop import Interrupted, snapshot_folder, train
from didlm.train.record import surroundings
from didlm.train.settings import Settings, recipe

QUARTERS = 4  # of a run, after which its model is kept
OF_QUESTIONS = 128  # tokens that a question and its answer have at any scale
OWN = ("recipe", "data", "tokenizer", "start", "epochs")  # of a run, that are no settings


def all_runs() -> dict[str, dict[str, Any]]:
    """Every training run of the paper."""
    text = (resources.files("didlm.reproduce") / "runs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def judge_of(run: str) -> str:
    """The run that judges the samples of another at small scales."""
    return f"{all_runs()[run]['data']}-judge"


def _nothing() -> None:
    """What is done before something is kept, unless more is asked for."""


@dataclass
class Workshop:
    """What experiments share: data, trained models, judges, and figures that are known already.

    Args:
        folder: for all that is left behind.
        scale: how large everything is.
        sources: of data.
        models: in the place of runs.
        changes: to the settings of all runs.
        judge_name: of samples; without, what the scale says.
        say: told what is going on.
        on_device: whether what is measured needs the device.
        keeping: called before anything is kept that depends on what was asked for.
    """

    folder: Path
    scale: Scale
    sources: Sources
    models: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    judge_name: str | None = None
    say: Callable[[str], None] = print
    on_device: bool = True
    keeping: Callable[[], None] = _nothing
    origins: dict[str, Origin] = field(default_factory=dict)  # of the figures so far, by name
    _loaded: dict[tuple[str, int, str], Model] = field(default_factory=dict)
    _judges: dict[tuple[str, str], Judge] = field(default_factory=dict)

    def once(self, name: str, figures: Callable[[], Any]) -> Any:
        """What is known under a name in the folder; else it is found out, and written there."""
        if not self._file(name).is_file():
            if self.on_device:
                self.check_device()
            made = self._surroundings  # now: until it is found, the commit may have changed
            found = figures()
            self.keeping()
            write_figure(self._file(name), found, {"date": now()} | made)
        found, self.origins[name] = read_figure(self._file(name))
        return found

    def _file(self, name: str) -> Path:
        return self.folder / "figures" / f"{name}.json"

    @cached_property
    def _surroundings(self) -> Origin:
        return surroundings()

    @cached_property
    def device(self) -> str:
        """Where everything runs."""
        chosen = {"device": "cuda", **self.scale.settings, **self.changes}
        return str(chosen["device"])

    def check_device(self) -> None:
        """Make sure that it is there, before anything is written or trained for it.

        Raises:
            ValueError: if this machine has none of that name.
        """
        try:
            check_device(self.device)
        except ValueError as problem:
            raise ValueError(f"{problem}: name another with --device") from None

    def planned(self, run: str) -> Settings:
        """Those settings of a run at this scale that do not depend on data.

        Raises:
            ValueError: if a run cannot have them.
        """
        spec = all_runs()[run]
        values = {name: value for name, value in spec.items() if name not in OWN}
        values = asdict(Settings().changed(recipe(spec["recipe"]) | values))
        values |= {"snapshots": QUARTERS, "samples": 0, "keep_checkpoints": 1}
        lengths = {name: min(values[name], OF_QUESTIONS) for name in LENGTHS}
        values = self.scale.applied(values, spec["recipe"])
        planned = Settings().changed(values | {"seed": 0} | dict(self.changes))
        if "start" not in spec:
            return planned
        return planned.changed(
            {name: max(getattr(planned, name), n) for name, n in lengths.items()}
        )

    def settings(self, run: str) -> Settings:
        """Those of a run at this scale, with its data at hand.

        Raises:
            ValueError: if data is missing, naming the option.
        """
        spec, values = all_runs()[run], asdict(self.planned(run))
        if "start" in spec:
            data, count = self._questions(spec["data"])
            values |= {"data": data, "init": str(self.model_folder(spec["start"]))}
            if "steps" not in self.changes:
                epochs = max(1, round(spec["epochs"] * self.scale.steps_share(spec["recipe"])))
                values["steps"] = max(1, -(-epochs * count // values["batch"]))
        else:
            values |= self._texts(spec["data"])
            if spec["tokenizer"] in self.sources.local or self.scale.comparable:
                values["tokenizer"] = self.sources.tokenizer(spec["tokenizer"])
        return Settings().changed(values)

    def _texts(self, name: str) -> dict[str, str]:
        """What to train on: all there is at the scale of the paper, else the first documents."""
        if self.scale.comparable:
            data, column = self.sources.training(name)
            return {"data": data, "column": column}
        file = self.folder / "data" / f"{name}.jsonl"
        if not file.is_file():
            texts = as_lines(self.sources.texts(name, self.scale.texts))
            self.keeping()
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, texts)
        return {"data": str(file), "column": "text"}

    def _questions(self, name: str) -> tuple[str, int]:
        """A file of prompts and responses to train on, and how many there are."""
        questions = read_questions(self.sources, name, self.scale.texts)
        file = self.folder / "data" / f"{name}.jsonl"
        self.keeping()
        file.parent.mkdir(parents=True, exist_ok=True)
        content = as_pairs(questions)
        if not file.is_file() or file.read_text(encoding="utf-8") != content:
            write_text(file, content)
        return str(file), len(questions)

    def run_folder(self, run: str) -> Path:
        """Where a run is, trained if need be; what was begun is gone on with."""
        folder = self.folder / "runs" / run
        self.once(f"trained-{run}", lambda: self._train(run, folder))
        if not self.scale.comparable:  # nobody goes on with it, and checkpoints are large
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return folder

    def _train(self, run: str, folder: Path) -> dict[str, Any]:
        settings = self.settings(run)
        self.say(f"training {run}")
        try:
            with self.sources.advising(all_runs()[run]["data"]):
                train(settings, folder, resume=True)
        except Interrupted:
            raise Interrupted(
                f"stopped while training {run}, as asked; the same command goes on from there"
            ) from None
        finally:
            if (folder / "run.json").is_file():  # begun, and so with data that was found
                self.keeping()
        return asdict(settings)

    def trained(self, runs: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The settings of those runs that were trained here."""
        found = {}
        for run in runs:
            name = f"trained-{run}"
            if self._file(name).is_file() and run not in self.models:
                found[run], self.origins[name] = read_figure(self._file(name))
        return found

    def model_folder(self, run: str, part: int = QUARTERS) -> Path:
        """The model of a run after so many quarters, or the one that takes its place."""
        if run not in self.models:
            return snapshot_folder(self.run_folder(run), part, QUARTERS)
        kept = snapshot_folder(Path(self.models[run]), part, QUARTERS)
        return kept if kept.is_dir() else Path(self.models[run])

    def model(self, run: str, part: int = QUARTERS, dtype: str = "fp32") -> Model:
        """The same, loaded; one at a time is kept."""
        key = run, part, dtype
        if key not in self._loaded:
            self._loaded.clear()
            self._loaded[key] = load(self.model_folder(run, part), self.device, dtype)
        return self._loaded[key]

    def writer(self, run: str) -> Model:
        """The model of a run to sample from: in 16 bits where that is what is fast.

        What it suggests counts for nothing.
        """
        return self.model(run, dtype="bf16" if self.device.startswith("cuda") else "fp32").plain()

    def judge(self, run: str) -> Judge:
        """Who judges the samples of a run.

        Raises:
            ValueError: if there is no such judge.
        """
        name = self.judge_name or self.scale.judge
        if not name:
            name = str(self.model_folder(judge_of(run)))
        elif run not in self.models and not self.trained([run]):
            self._find_judge(name, None)  # to know now that it is there, not after days of training
        tokenizer = Tokenizer.load(self.model_folder(run))
        key = name, tokenizer.fingerprint()
        if key not in self._judges:
            self._judges[key] = self._find_judge(name, tokenizer)
        return self._judges[key]

    def _find_judge(self, name: str, tokenizer: Tokenizer | None) -> Judge:
        self.check_device()
        try:
            return find_judge(name, tokenizer, self.device)
        except ValueError as problem:
            raise ValueError(f"{problem}; name another with --judge") from None
