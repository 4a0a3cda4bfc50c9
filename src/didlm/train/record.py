"""What is written down about a run: its settings, its surroundings, and the card of its model."""

import json
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch
from torch import nn

import didlm
from didlm.files import write_text
from didlm.train.prepare import Prepared
from didlm.train.settings import Settings

TITLES = {
    "did": "A deletion-insertion diffusion language model",
    "did-fixed": "A deletion-insertion diffusion language model",
    "radd": "A masked diffusion language model",
    "ilm": "An insertion language model",
    "ar": "An autoregressive language model",
}


def record_run(folder: Path, settings: Settings, network: nn.Module, prepared: Prepared) -> None:
    """Write run.json: everything needed to do the same again, and to know where it was done."""
    (folder / "samples").mkdir(exist_ok=True)
    run = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
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
        },
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
    write_text(folder / "run.json", json.dumps(run, indent=2) + "\n")


def record_resumption(folder: Path, step: int, processes: int) -> None:
    """Add to run.json that the run went on, from where and where."""
    file = folder / "run.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    run.setdefault("resumed", []).append(
        {
            "step": step,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "processes": processes,
            "threads": torch.get_num_threads(),
        }
    )
    write_text(file, json.dumps(run, indent=2) + "\n")


def model_card(settings: Settings, prepared: Prepared, metrics: dict[str, float] | None) -> str:
    """The README.md of a model folder."""
    data = Path(settings.data).name if settings.data else "the stories embedded in didlm"
    lines = [
        "---",
        "library_name: didlm",
        "tags: [diffusion, insertion, text-generation]",
        "---",
        "",
        f"# {TITLES.get(prepared.method.name, 'A language model')}",
        "",
        f"Trained by didlm {didlm.__version__} on {data}: {len(prepared.train):,} documents, "
        f"{prepared.train.tokens:,} tokens, vocabulary {prepared.tokenizer.vocabulary:,}.",
        "",
    ]
    if metrics:
        method = prepared.method
        what = "-log p, exact," if method.exact else "bound" if method.bounded else "loss"
        lines += [
            f"| {what} on unseen documents | |",
            "|---|---|",
            f"| nats per document | {metrics['nats_per_document']:.3f} ± {metrics['stderr']:.3f} |",
        ]
        for name in ("nats_per_token", "bits_per_byte"):
            if name in metrics:
                lines.append(f"| {name.replace('_', ' ')} | {metrics[name]:.4f} |")
        lines.append("")
    lines += [
        "```python",
        "import didlm",
        "",
        "didlm.load('PATH').generate(num_samples=4)",
        "```",
        "",
    ]
    lines += ["## Settings", "", "```"]
    lines += [f"{name} = {value!r}" for name, value in asdict(settings).items() if name != "data"]
    lines += ["```"]
    return "\n".join(lines) + "\n"


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
