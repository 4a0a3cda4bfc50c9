"""Commands around training: the text, the plan, the run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from didlm.cli.endings import training_may_stop
from didlm.cli.options import AsJson


def train(
    out: Annotated[Path, typer.Option(help="Folder for the model and the records of the run.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="A store, or text as for prepare, repeatable; else embedded stories."),
    ] = None,
    valid: Annotated[
        str | None, typer.Option(help="The same, or the fraction of the documents to split off.")
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="A model to start from: a folder, or a name.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="tiny, mini, small, medium, large or xl.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="did, did-fixed, radd, ilm or ar.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    flops: Annotated[
        float | None, typer.Option(help="Floating-point operations to spend, in place of steps.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between two checkpoints; by default every 10 minutes.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint, if there is one.")
    ] = False,
    recipe: Annotated[
        str | None, typer.Option(help="A named recipe (stories, openwebtext) or a .toml file.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting: NAME=VALUE, repeatable.")
    ] = None,
) -> None:
    """Train a model on your text, or on the embedded stories."""
    from didlm.train.loop import train as run
    from didlm.train.prepare import joined
    from didlm.train.resume import settings_to_go_on
    from didlm.train.settings import Settings
    from didlm.train.settings import recipe as read_recipe

    named: dict[str, str | float | None] = {"valid": valid, "preset": preset, "init": init}
    named |= {"data": joined(data) if data else None, "checkpoint_every": checkpoint_every}
    named |= {"method": method, "steps": steps, "seed": seed, "device": device, "flops": flops}
    asked: dict[str, Any] = {name: v for name, v in named.items() if v is not None}
    for assignment in set_ or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE: got '{assignment}'")
        asked[name.strip()] = value.strip()
    if init and "preset" in asked:  # of a recipe it may be
        raise ValueError("--preset has no effect with --init: the size is that of the model")
    chosen = (read_recipe(recipe) if recipe else {}) | asked
    if resume and not chosen and not (out / "run.json").exists():
        raise ValueError(f"there is no run in {out}: to begin one, name its data or a recipe")
    settings = settings_to_go_on(out, chosen) if resume else Settings().changed(chosen)
    if steps is not None and settings.flops:
        raise ValueError("--steps has no effect where flops are set: the steps follow from them")
    with training_may_stop():
        run(settings, out, resume)


def prepare(
    sources: Annotated[
        list[str],
        typer.Argument(help="Files, folders, globs, hf:NAME; with a weight as in PATH:2."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the store.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer's file or folder; else one is learnt.")
    ] = None,
    vocabulary: Annotated[int, typer.Option(help="Ids of one that is learnt.")] = 4096,
    column: Annotated[
        str, typer.Option(help="Of .jsonl and .parquet; PROMPT+RESPONSE for two.")
    ] = "text",
    separator: Annotated[
        str, typer.Option(help="Between the documents of .txt files.")
    ] = "<|endoftext|>",
    held_out: Annotated[
        float, typer.Option(help="Share for validation: no tokenizer is learnt from it.")
    ] = 0.05,
    workers: Annotated[
        int | None, typer.Option(help="Processes that tokenize; one per core without.")
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave broken lines out, and count them.")
    ] = False,
) -> None:
    """Make a token store of text, to train on."""
    from didlm.store.command import prepare_for_user

    prepare_for_user(
        sources, out, tokenizer, vocabulary, column, separator, held_out, workers, skip_broken
    )


def plan(
    preset: Annotated[str, typer.Option(help="tiny, mini, small, medium, large or xl.")],
    gpus: Annotated[int, typer.Option(help="That share a step.")] = 1,
    context: Annotated[int, typer.Option(help="Tokens of a text, or of the longest.")] = 1024,
    batch: Annotated[int, typer.Option(help="Texts of a step, over all GPUs.")] = 64,
    vocabulary: Annotated[int, typer.Option(help="How many tokens there are.")] = 50_257,
    method: Annotated[
        str | None, typer.Option(help="did, did-fixed, radd, ilm or ar; else several.")
    ] = None,
    mean_length: Annotated[
        float | None, typer.Option(help="Of documents; chunks of the context without.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Of the whole run.")] = None,
    accumulate: Annotated[int, typer.Option(help="Batches that a GPU takes in turn.")] = 1,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Make activations again to save memory.")
    ] = False,
    optimiser: Annotated[str, typer.Option(help="adamw or muon.")] = "adamw",
    gpu: Annotated[str | None, typer.Option(help="A measured one (h200).")] = None,
    tflops: Annotated[
        float | None, typer.Option(help="Another GPU's dense bf16 TFLOP/s, by its data sheet.")
    ] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Its memory's TB/s.")] = None,
    memory: Annotated[float | None, typer.Option(help="Its memory in GiB.")] = None,
    link: Annotated[float | None, typer.Option(help="GB/s between GPUs; else assumed.")] = None,
    json: AsJson = False,
) -> None:
    """Say what training will take before it is paid for: memory, time, tokens per day."""
    from didlm.plan.command import show_plan

    show_plan(
        method,
        steps,
        gpu,
        tflops,
        bandwidth,
        memory,
        link,
        json,
        preset=preset,
        gpus=gpus,
        context=context,
        batch=batch,
        vocabulary=vocabulary,
        mean_length=mean_length,
        accumulate=accumulate,
        checkpointing=checkpointing,
        optimiser=optimiser,
    )
