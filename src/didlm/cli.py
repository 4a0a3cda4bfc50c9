"""The command `didlm`: thin, everything it does is in the package."""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import didlm

EXIT_INTERRUPTED = 75  # of a run that was asked to stop: try again later, with --resume
_MODEL = "A folder, a shipped name, or a hub id."
_STORIES = "stories"  # the model that writes where none is named

app = typer.Typer(
    help="Deletion-insertion diffusion language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"didlm {didlm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what it makes.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Training steps; fewer are quicker.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Watch a model write and fill in a story, then train a tiny one from nothing."""
    from rich.console import Console

    from didlm.demo import free_folder, show_demo
    from didlm.train.settings import Settings, recipe

    settings = Settings().changed(recipe("demo") | {"seed": seed})
    if steps is not None:
        settings = settings.changed({"steps": steps, "validate_every": steps})
    show_demo(Console(highlight=False), settings, free_folder(out))


@app.command()
def explain(seed: Annotated[int, typer.Option(min=0, help="Seed of the deletions.")] = 0) -> None:
    """See the exact core at work on a sentence."""
    from rich.console import Console

    from didlm.explain import show_core

    show_core(Console(highlight=False), seed)


@app.command()
def align(
    text: Annotated[str, typer.Argument(help="The complete text x_0, words apart by spaces.")],
    left: Annotated[str, typer.Argument(help="What is left of it, x_t; may be empty.")],
) -> None:
    """Show which words are missing from a text, and where, with their exact targets."""
    from rich.console import Console

    from didlm.explain import show_targets

    show_targets(Console(highlight=False), text.split(), left.split())


@app.command()
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
    with _training():
        run(settings, out, resume)


@contextmanager
def _training() -> Iterator[None]:
    """Training that cannot go on ends in one sentence and an exit code of its own."""
    from didlm.train.loop import Interrupted, TrainingStopped

    try:
        yield
    except (Interrupted, TrainingStopped) as error:
        print(f"didlm: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED if isinstance(error, Interrupted) else 1) from None


@app.command()
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


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="Folder of a store, a run or a model.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a store with its hashes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Say what a folder is: a token store, a run, a model."""
    from didlm.info import show_info

    show_info(path, verify, json)


def _writing(
    model: Annotated[str, typer.Option(help=_MODEL)] = _STORIES,
    num: Annotated[int, typer.Option(help="How many texts.")] = 1,
    steps: Annotated[int, typer.Option(help="Of the time grid: more are better and slower.")] = 64,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed writes the same texts; random if none is given."),
    ] = None,
    top_p: Annotated[
        float,
        typer.Option(help="Draw from the likeliest tokens that together have this probability."),
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from so many of the likeliest tokens.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Below 1: likelier tokens; above 1: more varied ones.")
    ] = 1.0,
    position_temperature: Annotated[
        float, typer.Option(help="Below 1: tokens come first where the model is surest.")
    ] = 1.0,
    rate_scale: Annotated[
        float, typer.Option(help="Below 1: shorter texts; above 1: longer ones.")
    ] = 1.0,
    sampler: Annotated[
        str | None, typer.Option(help="adaptive, tau-leaping, counted, jump-chain.")
    ] = None,
    grid: Annotated[str, typer.Option(help="Of times: uniform or cosine.")] = "uniform",
    caution: Annotated[
        float, typer.Option(help="Tokens a gap may expect per step: less is better and slower.")
    ] = 0.25,
    length: Annotated[int | None, typer.Option(help="Tokens each text is to have.")] = None,
    min_length: Annotated[int, typer.Option(help="The fewest tokens of a text.")] = 0,
    max_length: Annotated[int | None, typer.Option(help="The most tokens of a text.")] = None,
    ban: Annotated[
        list[str] | None, typer.Option(help="A token never to insert, as ' dog'; repeatable.")
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option(help="A text that must occur, as ' dog'; repeatable.")
    ] = None,
    correct: Annotated[float, typer.Option(help="Share of the tokens to take back and redo.")] = 0,
    corrections: Annotated[int, typer.Option(help="How often to do so.")] = 1,
    correction_steps: Annotated[int, typer.Option(help="Steps in which they come back.")] = 8,
    batch_size: Annotated[int | None, typer.Option(help="Texts written together.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    json: Annotated[
        Path | None, typer.Option(help="Write one JSON object a line to this file.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the texts growing.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write how they grew to FILE.html or FILE.gif.")
    ] = None,
) -> None:
    """The options that `generate` and `infill` share."""


def _with_writing_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `_writing` in the place of its `**options`."""
    own = list(inspect.signature(command).parameters.values())[:-1]
    shared = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(_writing).parameters.values()
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        command(**arguments)

    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return run


@app.command()
@_with_writing_options
def generate(
    prompt: Annotated[str, typer.Option(help="How every text begins.")] = "",
    suffix: Annotated[str, typer.Option(help="How every text ends.")] = "",
    **options: Any,
) -> None:
    """Let a model write, from nothing or around a prompt and a suffix."""
    from didlm.generate.command import write_for_user
    from didlm.generate.template import Blank

    write_for_user([prompt, Blank(), suffix], **options)


@app.command()
@_with_writing_options
def infill(
    template: Annotated[
        str, typer.Argument(help="Text with blanks: [...], [...5], [...2-5] or [_].")
    ],
    **options: Any,
) -> None:
    """Fill the blanks of a text; what stands around them is kept."""
    from didlm.generate.command import write_for_user
    from didlm.generate.template import parse

    write_for_user(parse(template), **options)


@app.command()
def evaluate(
    context: typer.Context,
    model: Annotated[str, typer.Option(help=_MODEL)],
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
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Measure what it writes instead.")
    ] = False,
    num: Annotated[int, typer.Option(help="--samples: how many texts.")] = 64,
    steps: Annotated[int, typer.Option(help="--samples: of the time grid.")] = 64,
    top_p: Annotated[float, typer.Option(help="--samples: as for generate.")] = 1.0,
    temperature: Annotated[float, typer.Option(help="--samples: as for generate.")] = 1.0,
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


@app.command()
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
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
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


@app.command()
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
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
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


@app.command(name="lm-eval")
def lm_eval(
    model: Annotated[str, typer.Option(help=_MODEL)],
    tasks: Annotated[str, typer.Option(help="Of the harness, with commas between them.")],
    include: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own, as .yaml files.")
    ] = None,
    shots: Annotated[int | None, typer.Option(help="Examples in each prompt.")] = None,
    limit: Annotated[int | None, typer.Option(help="Documents of each task.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Noised states of a continuation.")] = 32,
    steps: Annotated[int, typer.Option(help="Of generation, as for generate.")] = 64,
    top_p: Annotated[float, typer.Option(help="Of generation, as for generate.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of noise and samples.")] = 0,
    batch_size: Annotated[int | None, typer.Option(help="Texts written together.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
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


@app.command()
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

    with _training():
        reproduce_for_user(name, scale, data or [], model or [], judge, set_ or [], device, out)


@app.command()
def push(
    repo: Annotated[str, typer.Argument(help="Where to on the hub: owner/name.")],
    model: Annotated[str, typer.Option(help=_MODEL)],
    private: Annotated[bool, typer.Option("--private", help="Others must not see it.")] = False,
) -> None:
    """Put a model on the Hugging Face hub."""
    from didlm.pretrained import load

    print(load(model).push_to_hub(repo, private))


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="A .safetensors, .pt, .pth, .bin or .ckpt file, or its folder.")
    ],
    tokenizer: Annotated[
        Path, typer.Option(help="The tokenizer of the weights: a file, or its folder.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    kind: Annotated[
        str | None, typer.Option(help="radd, ilm, did or did-fixed; else as the names tell.")
    ] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Take the moving averages that a checkpoint holds.")
    ] = False,
    heads: Annotated[
        int | None, typer.Option(help="Of attention, if the weights do not tell.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a text, if config.json does not tell (1024).")
    ] = None,
) -> None:
    """Make a model folder of the weights of public research code."""
    from didlm.convert.command import convert_for_user

    convert_for_user(source, kind, tokenizer, out, ema, heads, length)


@app.command()
def serve(
    model: Annotated[str, typer.Option(help=_MODEL)] = _STORIES,
    host: Annotated[
        str, typer.Option(help="Any but this machine's own needs DIDLM_TOKEN in the environment.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any.")] = 8000,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    batch: Annotated[
        int | None, typer.Option(help="Texts written at once; 16, or 64 on a GPU.")
    ] = None,
    waiting: Annotated[
        int | None, typer.Option(help="Texts that may wait for that; twice as many.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Until a request is given up.")] = 300,
) -> None:
    """Serve a model over HTTP, with a page to watch it write."""
    from didlm.serve.command import serve_for_user
    from didlm.serve.limits import Limits

    # More at once than keep a processor busy would only make everybody wait longer.
    batch = batch if batch is not None else 16 if device == "cpu" else 64
    waiting = 2 * batch if waiting is None else waiting
    limits = Limits(batch=batch, waiting=waiting, seconds=seconds)
    serve_for_user(model, host, port, device, dtype, limits)


def _interrupt(number: int, frame: object) -> None:
    print("didlm: interrupted", file=sys.stderr)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; bad input ends in one sentence and exit code 2, Ctrl-C and SIGTERM in 130.

    DIDLM_DEBUG=1 in the environment shows where the sentence comes from.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)  # so that what is half done is cleared away
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("DIDLM_DEBUG"):
            raise
        said = isinstance(error, OSError) and error.filename
        sentence = f"{error.filename}: {error.strerror}" if said else error  # type: ignore[union-attr]
        print(f"didlm: {sentence}", file=sys.stderr)
        sys.exit(2)
