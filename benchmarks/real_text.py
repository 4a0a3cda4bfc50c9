"""All methods on real text, on one GPU: trained for equal times, measured, and put on one page.

On any machine, from a folder with stories/, novels/ and eval/ (some minutes on two cores;
runs/real-text/data, 25 MiB, is then all that has to travel):

    python benchmarks/real_text.py prepare RAW

On the GPU, in calls of less than ten minutes. A call that has no time for all of it says what is
left, ends with 1, and the same command goes on:

    python benchmarks/real_text.py train      # 16 minutes in all: 11 runs of 60 s
    python benchmarks/real_text.py measure    # about 12 minutes in all

(`benchmarks/real_text.sh HOME 1`, then 2 and 3, do the same in three calls, with side by side what
may be.)
Models are in runs/real-text/trained, records in runs/real-text/records. What has a record is never
done again, and what is asked for later is added: `measure --steps 32`, say. Samples come in the
order of their steps, and before their variants: with top-p, and at a temperature that leads towards
the entropy of the data. Nothing but `--kinds samples` has seconds that count: the other kinds may
run side by side, in processes of their own that share out the runs with `--only`. Models are
written at each validation: a home in memory (`--home /dev/shm/real-text`) spares that time.
With the records copied to benchmarks/results/real_text, on any machine (seconds):

    python benchmarks/real_text.py page       # docs/results.md and docs/results/

Runs and their settings are in real_text_runs.py.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from didlm.compare.gather import metrics
from didlm.model.transformer import non_embedding_parameters
from didlm.train.loop import train
from real_text_data import make_chunks, prepare, read_facts
from real_text_figures import FEW, KINDS, Amounts, Measurer
from real_text_page import write_page
from real_text_records import Records, Task, work_through
from real_text_runs import Run, chosen, training_settings
from recording import RESULTS

DOCS = Path(__file__).parents[1] / "docs"
START = 25  # seconds that a run takes beside its training: workers, kernels, validations


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one step of the four; 1 if something is left to be done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    home: Path = options.home
    if options.step == "page":
        for path in write_page(options.records, options.docs):
            print(f"written: {path}")
        return 0
    if options.step == "prepare":
        facts = prepare(options.raw, home / "data", options.context, options.vocabulary)
        size = sum(path.stat().st_size for path in (home / "data").rglob("*") if path.is_file())
        print(f"{facts}\n{size / 2**20:.1f} MiB in {home / 'data'}")
        return 0
    records = Records(home / "records", options.device, words)
    runs = chosen(options.only)
    make_chunks(home / "data")
    if options.step == "train":
        changes = dict(word.split("=", 1) for word in options.set)
        tasks = training_tasks(runs, home, records, options.seconds, changes)
    else:
        amounts = Amounts(
            size=options.size,
            samples=options.samples,
            fewer_samples=options.fewer_samples,
            chunk_samples=options.chunk_samples,
            repeats=options.repeats,
            steps=options.steps,
            temperatures=tuple(options.temperatures),
            middles=options.middles,
            middle_steps=options.middle_steps,
            draws=options.draws,
            batch_size=options.batch_size,
        )
        places = (home / "data", home / "trained", records, options.device)
        tasks = [t for t in Measurer(*places, amounts).tasks(runs) if t.kind in options.kinds]
    return 0 if work_through(tasks, options.budget) else 1


def training_tasks(
    runs: Sequence[Run], home: Path, records: Records, seconds: float, changes: dict[str, str]
) -> list[Task]:
    """The runs that have no record yet."""
    context = read_facts(home / "data")["context"]

    def trained(run: Run) -> None:
        folder = home / "trained" / run.name
        settings = training_settings(run, home / "data", context, seconds, records.device, changes)
        if torch.cuda.is_available():  # nothing of the run before is counted
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        model = train(settings, folder, resume=True)
        kept = vars(settings) | dict.fromkeys(("data", "valid", "tokenizer"), run.setting)
        course = metrics(folder)
        figures = {
            "run": run.name,
            "settings": kept,
            "parameters": sum(p.numel() for p in model.network.parameters()),
            "inner_parameters": non_embedding_parameters(model.network),
            "exact": model.method.exact,
            "data": read_facts(home / "data")[run.setting],
            "curve": [line for line in course if line["kind"] == "valid"],
        }
        records.write(f"run-{run.name}", figures | pace(course, home / "data", run, settings.batch))

    missing = [run for run in runs if records.read(f"run-{run.name}") is None]
    return [Task(f"train {run.name}", seconds + START, partial(trained, run)) for run in missing]


def pace(course: list[dict[str, Any]], data: Path, run: Run, batch: int) -> dict[str, float]:
    """How fast a run went: tokens of text and passes over it, whatever the network reads of it."""
    last = [line for line in course if line["kind"] == "valid"][-1]
    known = read_facts(data)[run.setting]
    texts = last["step"] * batch
    lines = [line for line in course if line["kind"] == "train"]
    return {
        "steps": last["step"],
        "seconds": last["seconds"],
        "flops": last["flops"],
        "text_tokens_per_second": texts * known["tokens_of_a_text"] / last["seconds"],
        "rows_per_second": median([line["tokens_per_second"] for line in lines] or [0.0]),
        "waiting": median([line["waiting"] for line in lines] or [0.0]),
        "memory_mib": max([line["memory_mib"] for line in lines] or [0.0]),
        "epochs": texts * known["tokens_of_a_text"] / known["tokens"],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, default=Path("runs/real-text"))
    steps = parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("prepare")
    first.add_argument("raw", type=Path)
    first.add_argument("--context", type=int, default=1024, help="tokens of the longest text")
    first.add_argument("--vocabulary", type=int, help="by default that of each setting")
    second, third = steps.add_parser("train"), steps.add_parser("measure")
    for each in (second, third):
        each.add_argument("--only", nargs="*", help="names of runs; all by default")
        each.add_argument("--budget", type=float, default=570.0, help="seconds of this call")
        each.add_argument("--device", default="cuda")
    second.add_argument("--seconds", type=float, default=60.0, help="of training, of each run")
    second.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    third.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    third.add_argument("--size", type=int, default=300_000, help="bytes of a set")
    third.add_argument("--samples", type=int, default=128, help="whole documents")
    third.add_argument("--fewer-samples", type=int, default=48, help=f"above {FEW} steps")
    third.add_argument("--chunk-samples", type=int, default=32)
    third.add_argument("--repeats", type=int, default=3, help="at most, to measure seconds")
    third.add_argument("--steps", type=int, nargs="+", default=[16, 64, 256, 1024])
    third.add_argument("--temperatures", type=float, nargs=2, default=[0.8, 1.15])
    third.add_argument("--middles", type=int, default=128)
    third.add_argument("--middle-steps", type=int, default=64)
    third.add_argument("--draws", type=int, default=8, help="of the bound of a middle")
    third.add_argument("--batch-size", type=int, default=64)
    fourth = steps.add_parser("page")
    fourth.add_argument("--records", type=Path, default=RESULTS / "real_text")
    fourth.add_argument("--docs", type=Path, default=DOCS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
