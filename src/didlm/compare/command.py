"""What `didlm compare` does: load, measure each model, and leave a page and its figures."""

import json as json_format
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table as RichTable

from didlm import __version__
from didlm.compare.gather import Plan, entropy_of_data, gather
from didlm.compare.plots import draw_all
from didlm.compare.report import page
from didlm.compare.tables import Table, all_tables
from didlm.data.documents import read_documents
from didlm.evaluate.judge import Judge, find_judge
from didlm.files import write_text
from didlm.pretrained import Model, load

NOTES = [
    "A bound is an upper bound on what the exact figure would be; only methods marked exact know "
    "that. Whole documents and chunks of one length are never in one table: the ends of documents "
    "cost something, and chunks have none.",
    "± is the standard error of the noise of a bound, from 32 replicates with the same documents.",
    "Perplexity is that of the samples under the judge; a model that is its own judge looks good. "
    "Text that repeats itself has a low perplexity too, so it is compared at equal unigram "
    "entropy, which the temperature moves: between measured temperatures its logarithm is "
    "interpolated. A judge that has learnt whole documents does not judge chunks.",
    "Losses of different methods weigh their terms differently: their curves tell of progress, not "
    "of rank.",
]


def compare_for_user(
    folders: Sequence[Path],
    data: Path | None,
    training_data: Path | None,
    documents: int,
    judge: str | None,
    num: int,
    steps: Sequence[int],
    temperatures: Sequence[float],
    draws: int,
    seed: int,
    batch_size: int,
    column: str,
    device: str,
    out: Path,
    command: str,
) -> None:
    """Compare models; print the tables, and write results.json and report.html into a folder."""
    _check(folders, num, steps, temperatures, out)
    models = dict(zip(_names(folders), (load(f, device) for f in folders), strict=True))
    rest = {
        "num": num,
        "steps": steps,
        "temperatures": temperatures,
        "draws": draws,
        "seed": seed,
        "batch_size": batch_size,
    }
    if data is None:
        plan = Plan.embedded(documents, **rest)
    else:
        training = read_documents(training_data, column=column) if training_data else None
        plan = Plan(read_documents(data, column=column)[:documents], training, **rest)  # type: ignore[arg-type]
    console = Console(stderr=True, highlight=False)
    found, judge_name = _judge(judge, models, dict(zip(models, folders, strict=True)), device)
    entries = []
    for (name, model), folder in zip(models.items(), folders, strict=True):
        entries.append(gather(name, folder, model, plan, found, lambda s: console.print(s)))
    first = next(iter(models.values()))
    data_entropy = entropy_of_data(first, plan.documents)
    tables = all_tables(entries, data_entropy, plan.entropy)
    facts = _facts(plan, models, judge_name, data_entropy, device)
    lengths = np.array([len(ids) for ids in first.tokenizer.encode_batch(plan.documents)])
    pictures = draw_all(entries, lengths, data_entropy, plan.entropy)
    examples = {entry.name: entry.best.example for entry in entries}
    notes = NOTES + _differences(models)
    out.mkdir(parents=True, exist_ok=True)
    figures = {"command": command, **facts, "models": [entry.summary() for entry in entries]}
    write_text(out / "results.json", json_format.dumps(figures, indent=1) + "\n")
    write_text(out / "report.html", page(command, facts, tables, pictures, examples, notes))
    terminal = Console(highlight=False)
    for table in tables:
        for part in _for_terminal(table, terminal.width):
            terminal.print(part)
    console.print(f"The report is {out / 'report.html'}, its figures are in results.json.")


def _check(
    folders: Sequence[Path],
    num: int,
    steps: Sequence[int],
    temperatures: Sequence[float],
    out: Path,
) -> None:
    if num < 2:
        raise ValueError(f"a comparison takes at least 2 samples of each model: got {num}")
    if not steps or min(steps) < 1:
        raise ValueError("steps must be at least 1")
    if not temperatures or not all(0 < value < float("inf") for value in temperatures):
        raise ValueError("temperatures must be positive")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: the report goes into a folder")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("one model is named twice")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("the plots need matplotlib: pip install 'didlm[plots]'") from None


def _names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders; with their parents where two are alike."""
    alike = Counter(folder.resolve().name for folder in folders)
    return [
        folder.resolve().name if alike[folder.resolve().name] == 1 else str(folder)
        for folder in folders
    ]


def _judge(
    name: str | None, models: dict[str, Model], folders: dict[str, Path], device: str
) -> tuple[Judge | None, str]:
    """The judge that was asked for, else the first autoregressive model among those compared."""
    tokenizer = next(iter(models.values())).tokenizer
    if name is not None:
        return find_judge(name, tokenizer, device), name
    for own, model in models.items():
        if model.method.name == "ar" and not _differences(models):
            return find_judge(str(folders[own]), tokenizer, device), f"{own}, one of the models"
    return None, "none"


def _differences(models: dict[str, Model]) -> list[str]:
    tokenizers = {model.tokenizer.fingerprint() for model in models.values()}
    if len(tokenizers) == 1:
        return []
    return ["The models have different tokenizers: only bits per byte can be compared."]


def _facts(
    plan: Plan, models: dict[str, Model], judge: str, data_entropy: float, device: str
) -> dict[str, str]:
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "documents": f"{len(plan.documents):,}",
        "samples of each": f"{plan.num:,}",
        "judge": judge,
        "unigram entropy of the data": f"{data_entropy:.3f} bits",
    }
    if plan.entropy is not None:
        facts["exact entropy"] = f"{plan.entropy:.2f} nats a document"
    on_gpu = device.startswith("cuda")
    facts["device"] = torch.cuda.get_device_name(device) if on_gpu else platform.machine()
    facts["threads"] = str(torch.get_num_threads())
    facts["versions"] = f"didlm {__version__}, torch {torch.__version__}"
    return facts


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
