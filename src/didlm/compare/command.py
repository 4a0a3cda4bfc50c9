"""What `didlm compare` does: load, measure each model, and leave a page and its figures."""

import json as json_format
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table as RichTable

from didlm import __version__
from didlm.compare.gather import Entry, Plan, Run, gather, of_data
from didlm.compare.plots import draw_all
from didlm.compare.report import page
from didlm.compare.tables import Table, all_tables
from didlm.evaluate.judge import Judge, find_judge
from didlm.evaluate.quality import data_lengths
from didlm.files import check_folder, write_text
from didlm.locate import locate
from didlm.pretrained import Model, load
from didlm.text.documents import read_documents

NOTES = [
    "A bound is an upper bound on what the exact figure would be; only methods marked exact know "
    "that, so a bound that is worse than an exact figure does not show that the model is worse. "
    "Whole documents and chunks of one length are never in one table: the ends of documents cost "
    "something, and chunks have none.",
    "± after nats per token is the standard error of the noise of a bound, from 32 replicates "
    "with the same documents; by the documents is that from their choice.",
    "Steps that are asked for are not network calls: the adaptive sampler of DID takes as many "
    "more as the rates ask for, and ILM and AR write one token a call.",
    "Perplexity is that of the samples under the judge; a model that is its own judge looks good. "
    "Text that repeats itself has a low perplexity too, so it is compared at equal unigram "
    "entropy, which the temperature moves: between measured temperatures its logarithm is "
    "interpolated, and outside of them nothing is claimed. Longer texts have a higher entropy by "
    "themselves. A judge that has learnt whole documents does not judge chunks.",
    "Losses of different methods weigh their terms differently: their curves tell of progress, not "
    "of rank.",
]


@dataclass(frozen=True)
class Request:
    """What a user asks for; see `didlm compare --help`."""

    models: Sequence[str]
    data: Path | None
    training_data: Path | None
    documents: int
    judge: str | None
    num: int
    steps: Sequence[int]
    temperatures: Sequence[float]
    draws: int
    seed: int
    batch_size: int
    column: str
    device: str
    out: Path
    command: str

    def __post_init__(self) -> None:
        if self.num < 2:
            raise ValueError(f"a comparison takes at least 2 samples of each model: got {self.num}")
        if not self.steps or min(self.steps) < 1:
            raise ValueError("steps must be at least 1")
        if not all(0 < value < float("inf") for value in self.temperatures):
            raise ValueError("temperatures must be positive")
        if self.data is None and self.training_data is not None:
            raise ValueError("--training-data goes with --data: that of the stories is known")
        check_folder(self.out)
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise ValueError("the plots need matplotlib: pip install 'didlm[plots]'") from None

    def plan(self) -> Plan:
        """What is measured of every model."""
        rest = {
            "num": self.num,
            "steps": self.steps,
            "temperatures": self.temperatures,
            "draws": self.draws,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }
        if self.data is None:
            return Plan.embedded(self.documents, **rest)
        documents = read_documents(self.data, column=self.column)[: self.documents]
        training = None
        if self.training_data is not None:
            training = read_documents(self.training_data, column=self.column)
        return Plan(documents, training, **rest)  # type: ignore[arg-type]

    def settings(self) -> dict[str, object]:
        """As they are written down."""
        return {
            "data": str(self.data) if self.data else "the embedded stories",
            "training_data": str(self.training_data) if self.training_data else None,
            "documents": self.documents,
            "num": self.num,
            "steps": list(self.steps),
            "temperatures": list(self.temperatures),
            "draws": self.draws,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }


def compare_for_user(request: Request) -> None:
    """Compare models; print the tables, and write results.json and report.html into a folder."""
    folders = _folders(request.models)
    models = {name: load(folder, request.device) for name, folder in folders.items()}
    plan = request.plan()
    for model in models.values():  # whatever can be wrong is found out before the work
        data_lengths(model, plan.documents)
    judge, judge_name = _judge(request.judge, models, folders, request.device)
    console = Console(stderr=True, highlight=False)
    entries = [
        gather(name, folders[name], model, plan, judge, lambda line: console.print(line))
        for name, model in models.items()
    ]
    first = next((m for m in models.values() if m.method.variable_length), None)
    data = of_data(first or next(iter(models.values())), plan, judge)
    tables = all_tables(entries, data, plan.entropy)
    facts = _facts(plan, judge_name, data, request.device)
    pictures = draw_all(entries, data.quality.entropy_bits, plan.entropy)
    examples = {entry.name: entry.best.example for entry in entries}
    notes = NOTES + _differences(models) + _bytes(entries)
    figures = {
        "command": request.command,
        "settings": request.settings(),
        "facts": facts,
        "models": [entry.summary() for entry in entries],
        "data": data.summary(),
    }
    request.out.mkdir(parents=True, exist_ok=True)
    html = page(request.command, facts, tables, pictures, examples, notes)
    write_text(request.out / "results.json", json_format.dumps(figures) + "\n")
    write_text(request.out / "report.html", html)
    terminal = Console(highlight=False)
    for table in tables:
        for part in _for_terminal(table, terminal.width):
            terminal.print(part)
    console.print(f"The report is {request.out / 'report.html'}, its figures are in results.json.")


def _folders(models: Sequence[str]) -> dict[str, Path]:
    """Where the models are, by what to call them: folders by their names, unless two are alike."""
    folders = [locate(model) for model in models]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("one model is named twice")
    short = [Path(model).resolve().name if Path(model).is_dir() else model for model in models]
    alike = Counter(short)
    names = [name if alike[name] == 1 else model for name, model in zip(short, models, strict=True)]
    return dict(zip(names, folders, strict=True))


def _judge(
    name: str | None, models: dict[str, Model], folders: dict[str, Path], device: str
) -> tuple[Judge | None, str]:
    """The judge that was asked for, else the first autoregressive model among those compared."""
    if name is not None:
        judges = [find_judge(name, model.tokenizer, device) for model in models.values()]
        return judges[0], name
    for own, model in models.items():
        if model.method.exact and not _differences(models):
            judge = find_judge(str(folders[own]), model.tokenizer, device)
            return judge, f"{own}, which is one of the models"
    return None, "none"


def _differences(models: dict[str, Model]) -> list[str]:
    tokenizers = {model.tokenizer.fingerprint() for model in models.values()}
    if len(tokenizers) == 1:
        return []
    return [
        "The models have different tokenizers: of all figures only bits per byte, seconds and "
        "the judge's perplexity can be compared; the data's are in the tokens of the first."
    ]


def _bytes(entries: Sequence[Entry]) -> list[str]:
    if all(entry.likelihood is None or entry.likelihood.lossless for entry in entries):
        return []
    return [
        "Bits per byte of normalised text: the tokenizer does not give texts back exactly, so the "
        "bytes are those of what it gives back, and less is paid for than by models of the text "
        "itself. The two cannot be compared."
    ]


def _facts(plan: Plan, judge: str, data: Run, device: str) -> dict[str, str]:
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "unseen documents": f"{len(plan.documents):,}",
        "samples of each": f"{plan.num:,}",
        "judge": judge,
        "unigram entropy of the data": f"{data.quality.entropy_bits:.3f} bits",
    }
    if plan.entropy is not None:
        facts["exact entropy"] = f"{plan.entropy:.2f} nats a document"
    on_gpu = device.startswith("cuda")
    facts["device"] = torch.cuda.get_device_name(device) if on_gpu else _processor()
    facts["threads"] = str(torch.get_num_threads())
    facts["versions"] = f"didlm {__version__}, torch {torch.__version__}"
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _for_terminal(table: Table, width: int) -> Iterator[RichTable]:
    """The table on its side, in parts that fit: figures below each other, a column for each row."""
    names = max(map(len, table.headings))
    size = max(len(cell) for row in table.rows for cell in row)
    at_once = max(1, (width - names - 4) // (size + 3))
    for first in range(0, len(table.rows), at_once):
        part = table.rows[first : first + at_once]
        shown = RichTable(title=table.title if first == 0 else None, show_header=False)
        shown.add_column(no_wrap=True)
        for _ in part:
            shown.add_column(justify="right", no_wrap=True)
        for number, heading in enumerate(table.headings):
            shown.add_row(heading, *(row[number] for row in part), end_section=number == 0)
        yield shown
