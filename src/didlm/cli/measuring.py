"""Commands that measure models."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from didlm.cli.endings import training_may_stop
from didlm.cli.options import SUGGESTED, Device, ModelName


def evaluate(
    context: typer.Context,
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option(help="A .txt or .jsonl file with unseen documents.")
    ] = None,
    documents: Annotated[
        int | None, typer.Option(min=1, help="At most so many of them, from the first on.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="States of each document, in each of 32 replicates.")
    ] = 1,
    paths: Annotated[
        int, typer.Option(min=0, help="did-fixed: insertion paths, for a tighter bound.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    column: Annotated[str, typer.Option(help="Of .jsonl files.")] = "text",
    device: Device = "cpu",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Measure what it writes instead.")
    ] = False,
    num: Annotated[int, typer.Option(help="--samples: how many texts.")] = 64,
    steps: Annotated[int, typer.Option(help="--samples: of the time grid.")] = 64,
    top_p: Annotated[
        float | None, typer.Option(help="--samples: as for generate.", show_default=SUGGESTED)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="--samples: as for generate.", show_default=SUGGESTED)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="--samples: texts written together.")
    ] = None,
    training_data: Annotated[
        Path | None, typer.Option(help="--samples: documents that may have been copied.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="--samples: as --model, or a causal model on Hugging Face."),
    ] = None,
    order: Annotated[
        bool, typer.Option("--order", help="--samples: which tokens come first, which together.")
    ] = False,
) -> None:
    """Measure how well a model predicts unseen documents, or what it writes."""
    from didlm.evaluate.command import evaluate_for_user, measure_for_user

    _refuse(
        context, ["draws", "paths"] if samples else _OF_SAMPLES, "with" if samples else "without"
    )
    if not samples:
        evaluate_for_user(model, data, documents, draws, paths, seed, column, device, json)
        return
    measure_for_user(
        name=model,
        data=data,
        documents=documents,
        training_data=training_data,
        column=column,
        judge=judge,
        order=order,
        num=num,
        steps=steps,
        seed=seed,
        top_p=top_p,
        temperature=temperature,
        batch_size=batch_size,
        device=device,
        json=json,
    )


_OF_SAMPLES = [
    "num", "steps", "top_p", "temperature", "batch_size", "training_data", "judge", "order",
]  # fmt: skip


def _refuse(context: typer.Context, names: list[str], when: str) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise ValueError(f"--{name.replace('_', '-')} has no effect {when} --samples")


def compare(
    models: Annotated[
        list[str], typer.Argument(help="Folders, shipped names, or hub ids of models.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="A .txt or .jsonl file; the embedded stories without.")
    ] = None,
    training_data: Annotated[
        Path | None, typer.Option(help="What they learnt from, to find what they copy.")
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="At most so many unseen ones.")] = 500,
    judge: Annotated[
        str | None, typer.Option(help="As for evaluate; else one of the models.")
    ] = None,
    num: Annotated[int, typer.Option(help="Samples of each model and each choice.")] = 200,
    steps: Annotated[
        list[int] | None, typer.Option(help="Of the time grid; repeatable (16, 64).")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Of the sweep; repeatable (0.4, 0.7, 1).")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="States of each document, of bounds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of noise and samples.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts written together.")] = 64,
    column: Annotated[str, typer.Option(help="Of .jsonl files.")] = "text",
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("comparison"),
) -> None:
    """Measure models side by side: tables, plots and one self-contained page."""
    import shlex

    from didlm.compare.command import Request, compare_for_user

    request = Request(
        models=models,
        data=data,
        training_data=training_data,
        documents=documents,
        judge=judge,
        num=num,
        steps=steps or [16, 64],
        temperatures=temperature or [0.4, 0.7, 1.0],
        draws=draws,
        seed=seed,
        batch_size=batch_size,
        column=column,
        device=device,
        out=out,
        command=shlex.join(["didlm", *sys.argv[1:]]),
    )
    compare_for_user(request)


def lm_eval(
    model: ModelName,
    tasks: Annotated[str, typer.Option(help="Of the harness, with commas between them.")],
    include: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own, as .yaml files.")
    ] = None,
    shots: Annotated[int | None, typer.Option(help="Examples in each prompt.")] = None,
    limit: Annotated[int | None, typer.Option(help="Documents of each task.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Noised states of a continuation.")] = 32,
    steps: Annotated[int, typer.Option(help="Of generation, as for generate.")] = 64,
    top_p: Annotated[
        float | None, typer.Option(help="Of generation, as for generate.", show_default=SUGGESTED)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of noise and samples.")] = 0,
    batch_size: Annotated[int | None, typer.Option(help="Texts written together.")] = None,
    device: Device = "cpu",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Run tasks of EleutherAI's evaluation harness on a model."""
    from didlm.harness.command import harness_for_user

    harness_for_user(
        model,
        tasks,
        include,
        shots,
        limit,
        device,
        json,
        draws=draws,
        steps=steps,
        top_p=top_p,
        seed=seed,
        batch_size=batch_size,
    )


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure of the paper; all are listed without.")
    ] = None,
    scale: Annotated[str, typer.Option(help="paper, minutes or smallest.")] = "paper",
    data: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: a file in place of a dataset; repeatable.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="RUN=MODEL: a model in place of a run; repeatable.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="As for evaluate; gpt2-large at the scale of the paper.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of all training: NAME=VALUE.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    out: Annotated[Path, typer.Option(help="Folder of runs, figures and tables.")] = Path(
        "reproduction"
    ),
) -> None:
    """Do again what the paper did: train, measure, and print its tables with ours beside them."""
    from didlm.reproduce.command import reproduce_for_user

    with training_may_stop():
        reproduce_for_user(name, scale, data or [], model or [], judge, set_ or [], device, out)
