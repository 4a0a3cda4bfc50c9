"""What is written down about a run: its settings, its surroundings, and the card of its model."""

import json
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import nn

import didlm
from didlm.card import front_matter, usage
from didlm.evaluate.bound import byte_label
from didlm.files import write_text
from didlm.model.transformer import non_embedding_parameters
from didlm.train.prepare import Prepared
from didlm.train.resume import MAY_CHANGE
from didlm.train.settings import Settings

TITLES = {
    "did": "A deletion-insertion diffusion language model",
    "did-fixed": "A deletion-insertion diffusion language model",
    "radd": "A masked diffusion language model",
    "ilm": "An insertion language model",
    "ar": "An autoregressive language model",
}
TAGS = {
    "did": ("diffusion", "insertion"),
    "did-fixed": ("diffusion", "insertion"),
    "radd": ("diffusion",),
    "ilm": ("insertion",),
}
ASKED_FOR = {"method", "preset", "steps", "batch", "optimiser", "learning_rate", "schedule", "seed"}
NOT_TOLD = MAY_CHANGE - {"seconds"} | {"data"}  # about the machine, or told elsewhere
FILES = {"valid", "tokenizer", "init"}
LIMITS = (
    "The model knows its training data and nothing else. It writes text that looks like them, true "
    "or not, with whatever faults and biases they have; nothing was done to make it safe or "
    "truthful. Use it to study the method, not to inform people."
)


def record_run(folder: Path, settings: Settings, network: nn.Module, prepared: Prepared) -> None:
    """Write run.json: everything needed to do the same again, and to know where it was done."""
    (folder / "samples").mkdir(exist_ok=True)
    run = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in network.parameters()),
        "data": {
            "training_documents": len(prepared.train),
            "training_documents_cut": prepared.cut,
            "training_tokens": prepared.train.tokens,
            "validation_documents": len(prepared.valid),
            "vocabulary": prepared.tokenizer.vocabulary,
            "tokenizer": prepared.tokenizer.fingerprint(),
            "fingerprint": prepared.fingerprint,
            "tokenizer_lossless": prepared.lossless,
        },
        **surroundings(),
    }
    write_text(folder / "run.json", json.dumps(run, indent=2) + "\n")


def surroundings() -> dict[str, dict[str, Any]]:
    """With what, and on what, something is done."""
    return {
        "versions": {
            "didlm": didlm.__version__,
            "commit": _commit(),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("torch", "numpy", "numba", "tokenizers")},
        },
        "hardware": {
            "machine": platform.platform(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def record_resumption(folder: Path, settings: Settings, step: int, processes: int) -> None:
    """Add to run.json that the run went on, with what settings now, from where and where."""
    file = folder / "run.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    run["settings"] = asdict(settings)
    run.setdefault("resumed", []).append(
        {
            "step": step,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "processes": processes,
            "threads": torch.get_num_threads(),
        }
    )
    write_text(file, json.dumps(run, indent=2) + "\n")


def model_card(
    settings: Settings,
    prepared: Prepared,
    metrics: dict[str, float] | None,
    network: nn.Module | None = None,
) -> str:
    """The README.md of a model folder: data, method, size, settings, figures, use and limits.

    Files are called by their names alone: where they were is nobody's business.

    Args:
        settings: of the run.
        prepared: its data.
        metrics: of the validation that the model was chosen by, if there was one.
        network: to say how large it is.
    """
    method, tokenizer = prepared.method, prepared.tokenizer
    lines = front_matter([method.name, *TAGS.get(method.name, ())])
    lines += [
        f"# {TITLES.get(method.name, 'A language model')}",
        "",
        f"Trained by didlm {didlm.__version__} with the method `{method.name}`.",
        "",
        *_table("data", _data(settings, prepared)),
    ]
    model = {"vocabulary": f"{tokenizer.vocabulary:,} tokens", "texts": _texts(settings, prepared)}
    if network is not None:
        total = sum(p.numel() for p in network.parameters())
        inner = non_embedding_parameters(network)
        model["parameters"] = f"{total:,}; {inner:,} without those of single tokens"
    size = f"that of {_name(settings.init)}" if settings.init else f"`{settings.preset}`"
    lines += _table("model", {"size": size, **model})
    if metrics:
        lines += _figures(prepared, metrics)
    lines += usage()
    lines += ["## Settings", "", "```", *_settings(settings), "```", ""]
    lines += [f"All others are the defaults of didlm {didlm.__version__}.", ""]
    lines += ["## Limits", "", LIMITS]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: dict[str, str]) -> list[str]:
    return [f"| {title} | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items()), ""]


def _data(settings: Settings, prepared: Prepared) -> dict[str, str]:
    tokenizer = "byte-level BPE of the data" if prepared.learnt else "that of the token store"
    if settings.init or settings.tokenizer:
        tokenizer = _name(settings.init or settings.tokenizer)
    back = "gives" if prepared.lossless else "does not give"
    return {
        "name": ", ".join(prepared.sources),
        "training": f"{len(prepared.train):,} texts, {prepared.train.tokens:,} tokens",
        "validation": f"{len(prepared.valid):,} texts, {prepared.valid.tokens:,} tokens",
        "tokenizer": f"{tokenizer}; it {back} the text back exactly",
    }


def _texts(settings: Settings, prepared: Prepared) -> str:
    if not prepared.method.variable_length:
        return f"chunks of {prepared.method.length} tokens"
    return f"whole documents of at most {prepared.method.length or settings.max_length:,} tokens"


def _figures(prepared: Prepared, metrics: dict[str, float]) -> list[str]:
    method = prepared.method
    what = "-log p, exact," if method.exact else "bound" if method.bounded else "loss"
    error = metrics["stderr"]
    rows = {"nats per text": f"{metrics['nats_per_document']:.3f} ± {error:.3f}"}
    if "nats_per_token" in metrics:
        rows["nats per token"] = f"{metrics['nats_per_token']:.4f}"
    if "bits_per_byte" in metrics:
        rows[byte_label(prepared.lossless)] = f"{metrics['bits_per_byte']:.4f}"
    if "conditional_nats_per_token" in metrics:
        half = metrics["conditional_nats_per_token"]
        rows["nats per token of second halves, given the first"] = f"{half:.4f}"
    meaning = {
        "bound": "A bound is an upper bound on -log p: the truth is below it. ",
        "loss": "The method has no likelihood: the loss compares with its own kind only. ",
    }.get(what, "")
    error_of = "± is one standard error, from the choice of the texts. The model was chosen by the"
    return [
        *_table(f"{what} on unseen documents", rows),
        f"{meaning}{error_of} first of these figures.",
        "",
    ]


def _settings(settings: Settings) -> list[str]:
    """Those that a reader asks for, and those that are not as usual; none about the machine."""
    lines = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in FILES:
            value = _name(value)
        if field.name == "preset" and settings.init:
            continue
        if field.name in ASKED_FOR or (value != field.default and field.name not in NOT_TOLD):
            lines.append(f"{field.name} = {value!r}")
    return lines


def _name(path: str) -> str:
    return PurePath(path).name or path


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "didlm" if name == "__main__.py" else name  # python -m didlm, as torchrun does


def _commit() -> str:
    """The commit of the checkout that didlm runs from, if it does."""

    def git(*arguments: str) -> str:
        call = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is somebody else's commit
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if git("status", "-s", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
