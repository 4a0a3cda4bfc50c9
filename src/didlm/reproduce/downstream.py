"""Commonsense tasks through the evaluation harness."""

import json
from pathlib import Path
from typing import Any

from didlm.files import write_text
from didlm.harness.running import check_task, run_harness
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.sources import Sources
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop
from didlm.text.documents import read_text

TASKS = {
    "Arc-c": "arc_challenge",
    "Arc-e": "arc_easy",
    "Hellaswag": "hellaswag",
    "Obqa": "openbookqa",
    "Piqa": "piqa",
    "Race": "race",
    "Siqa": "social_iqa",
    "Winogrande": "winogrande",
}
SHOTS = 0  # examples before each question, whatever the tasks say: the paper's
SAID = "the correct answer is"  # how an option of an instruction begins


def downstream(shop: Workshop, experiment: Experiment) -> Outcome:
    """Accuracy for each model and each task."""

    def cell(row: Row, column: str | int) -> Value:
        key = f"tasks-{row.run}-{row.part}"
        return float(shop.once(key, lambda: accuracies(shop, row))[TASKS[str(column)]])

    return Outcome(filled(experiment, cell), local_notes(shop.sources, shop.scale.documents))


def local_notes(sources: Sources, limit: int = 0) -> list[str]:
    """How each task was asked that is not the harness's own.

    Args:
        sources: of the tasks.
        limit: questions of each, at most; 0 for all.
    """
    files = {column: sources.local[task] for column, task in TASKS.items() if task in sources.local}
    return [
        f"{column} is not the harness's task, of which the paper's figures are: "
        + how_asked(file, limit)
        for column, file in files.items()
    ]


def how_asked(path: Path, limit: int = 0) -> str:
    """What a model is given of the questions of a local file."""
    questions = read_choices(path)[: limit or None]
    what = "the question alone, then one of its choices"
    if questions[0]["choices"][0].startswith(SAID):
        what = f"an instruction that names all answers, then '{SAID}' and one of them"
    return f"{len(questions)} questions of {path.name}, asked as {what}."


def accuracies(shop: Workshop, row: Row) -> dict[str, float]:
    """Of all tasks, in percent, by likelihood per byte where the harness has that."""
    local = shop.sources.local
    tasks: dict[str, str | dict[str, Any]] = {
        task: local_task(task, local[task], shop.folder / "data") if task in local else task
        for task in TASKS.values()
    }
    for task in tasks.values():
        if isinstance(task, str):  # known to be there before anything is trained for it
            _check_task(task)
    shop.say(f"{row.run} after {row.part} of 4 quarters: {len(tasks)} tasks of the harness")
    model, limit = shop.model(row.run, row.part), shop.scale.documents or None
    found = run_harness(
        model, list(tasks.values()), shots=SHOTS, limit=limit, draws=shop.scale.draws
    )["results"]
    results = {name: found[task if isinstance(task, str) else task["task"]]
               for name, task in tasks.items()}  # fmt: skip
    return {
        name: 100 * float(metrics.get("acc_norm,none", metrics.get("acc,none")))
        for name, metrics in results.items()
    }


def _check_task(name: str) -> None:
    try:
        check_task(name)
    except ValueError as problem:
        raise ValueError(f"{problem}; or name a file with --data {name}=PATH") from None


def local_task(name: str, path: Path, folder: Path) -> dict[str, Any]:
    """A task of the harness for a local file.

    Args:
        name: of the task.
        path: a .jsonl file of `question`, `choices` and `answer`, the number of the right one
            counted from 0; or a .json list of `instruction` and `answer`, either compressed.
        folder: where to put the file that the harness reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.jsonl"
    records = read_choices(path)
    write_text(file, "".join(json.dumps(record) + "\n" for record in records))
    return {
        "task": f"{name}_local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file.absolute())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }


def read_choices(path: Path) -> list[dict[str, Any]]:
    """The questions of such a file.

    Raises:
        ValueError: naming the first that is broken, or if there are none.
    """
    text = read_text(path)
    try:
        whole = text.lstrip().startswith("[")
        lines = [line for line in text.splitlines() if line.strip()]
        records = json.loads(text) if whole else [json.loads(line) for line in lines]
    except ValueError as problem:
        raise ValueError(f"{path} is not valid JSON: {problem}") from None
    if not records:
        raise ValueError(f"{path} has no questions")
    return [_choice(record, f"question {n} of {path}") for n, record in enumerate(records, 1)]


def _choice(record: Any, place: str) -> dict[str, Any]:
    try:
        if "instruction" in record:
            return _instruction(record)
        answer, choices = int(record["answer"]), [str(text) for text in record["choices"]]
        if not 0 <= answer < len(choices):
            raise ValueError
        return {"question": str(record["question"]), "choices": choices, "answer": answer}
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{place} is neither a question with choices and answer nor an instruction with answer"
        ) from None


def _instruction(record: dict[str, str]) -> dict[str, Any]:
    """`... Answer format: answer1/answer2`, of which `answer` is one."""
    names = record["instruction"].rpartition("format:")[2].strip().split("/")
    choices = [f"{SAID} {name}" for name in names]
    return {
        "question": record["instruction"],
        "choices": choices,
        "answer": names.index(record["answer"]),
    }
