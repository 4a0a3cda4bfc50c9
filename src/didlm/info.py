"""What a folder is: a token store, a run, a model; in words or as JSON."""

import json
import struct
from pathlib import Path
from typing import Any

from didlm.locate import hint, shipped
from didlm.store.format import Manifest, Store
from didlm.text.sources import is_store

_BAR = 30  # characters of the longest bar


def describe(folder: Path, verify: bool = False) -> dict[str, Any]:
    """What is known about a folder: under "store", "run" and "model", whichever it is.

    Args:
        folder: where it is.
        verify: read a store as a whole and compare it with its hashes.

    Raises:
        ValueError: if it is none of them, or is damaged.
    """
    about: dict[str, Any] = {}
    if is_store(folder):
        store = Store.open(folder)
        if verify:
            store.verify()
        about["store"] = store.manifest.to_json() | {"verified": verify}
    if (folder / "run.json").is_file():
        about["run"] = _run(folder)
    if (folder / "config.json").is_file():
        about["model"] = _model(folder)
    if not about:
        missing = "has none of their files" if folder.is_dir() else "is not there"
        missing = "is a file" if folder.is_file() else missing
        meant = "" if folder.exists() else hint(str(folder))
        raise ValueError(f"{folder} is not a token store, a run or a model: it {missing}{meant}")
    if verify and "store" not in about:
        raise ValueError(f"only a token store can be verified, and {folder} is none")
    return {"path": str(folder), **about}


def in_words(about: dict[str, Any]) -> str:
    """What `describe` found, for people."""
    paragraphs = []
    if "store" in about:
        paragraphs.append(_store_in_words(about["path"], about["store"]))
    if "run" in about:
        paragraphs.append(_rows(f"{about['path']} is a training run", _run_rows(about["run"])))
    if "model" in about:
        paragraphs.append(_rows(f"{about['path']} is a model", _model_rows(about["model"])))
    return "\n\n".join(paragraphs)


def show_info(folder: Path, verify: bool, as_json: bool) -> None:
    """Print what a folder is, or the model of a shipped name."""
    if not folder.exists():
        folder = shipped().get(str(folder), folder)
    about = describe(folder, verify)
    print(json.dumps(about, indent=2, ensure_ascii=False) if as_json else in_words(about))


def _store_in_words(path: str, content: dict[str, Any]) -> str:
    manifest = Manifest.from_json(content)
    counts, lengths = manifest.counts, manifest.lengths
    size = sum(s.tokens.bytes + s.documents.bytes for s in manifest.shards)
    exact = "of all documents"
    if not manifest.lossless:
        exact = f"not of {counts.inexact:,} documents: bits per byte are of normalised text"
    rows = {
        "documents": f"{counts.documents:,}",
        "tokens": f"{counts.tokens:,}",
        "bytes of text": f"{counts.bytes:,}",
        "tokens per document": f"{lengths.mean:,.1f}, at most {lengths.longest:,}",
        "left out": f"{counts.empty:,} empty, {counts.broken:,} broken",
        "duplicates": f"{counts.duplicates:,}, not left out",
        "tokenizer": f"{manifest.vocabulary:,} ids, {manifest.tokenizer[:12]}",
        "gives text back": exact,
        "shards": f"{len(manifest.shards)}, {size / 1e6:,.1f} MB",
        "column": repr(manifest.options.get("column")),
        "made": f"{manifest.created} by didlm {manifest.didlm}, format {manifest.format}",
        "fingerprint": manifest.fingerprint[:12],
    }
    if content.get("verified"):
        rows["verified"] = "every file is as it was written"
    sources = [
        f"  {s.name}: weight {s.weight:g}, {s.documents:,} documents, {s.tokens:,} tokens, "
        f"{s.bytes:,} bytes"
        for s in manifest.sources
    ]
    parts = [_rows(f"{path} is a token store", rows), "\n".join(["sources", *sources])]
    return "\n".join([*parts, "documents by their number of tokens", *_bars(lengths.histogram)])


def _bars(histogram: list[int]) -> list[str]:
    """A line for each power of two, from the first that has documents on."""
    first = next((k for k, count in enumerate(histogram) if count), 0)
    names = [f"{2**k:,} to {2 ** (k + 1) - 1:,}" if k else "1" for k in range(len(histogram))]
    width = max(map(len, names))
    most = max(histogram)
    return [
        f"  {names[k]:>{width}}  {'█' * -(-_BAR * histogram[k] // most):{_BAR}}  {histogram[k]:,}"
        for k in range(first, len(histogram))
    ]


def _run(folder: Path) -> dict[str, Any]:
    run = _json(folder / "run.json")
    settings, data = run.get("settings", {}), run.get("data", {})
    metrics = _metrics(folder)
    validations = [m for m in metrics if "nats_per_document" in m]
    checkpoints = sorted(path.name for path in folder.glob("checkpoints/step-*"))
    return {
        "started": run.get("started"),
        "command": run.get("command"),
        "method": settings.get("method"),
        "size": f"from {settings['init']}" if settings.get("init") else settings.get("preset"),
        "data": settings.get("data") or "the embedded stories",
        "training_documents": data.get("training_documents"),
        "training_tokens": data.get("training_tokens"),
        "steps": settings.get("steps"),
        "step": max((m.get("step", 0) for m in metrics), default=0),
        "validation": validations[-1] if validations else None,
        "checkpoints": checkpoints,
    }


def _run_rows(run: dict[str, Any]) -> dict[str, str]:
    validation = run["validation"]
    figures = "none yet"
    if validation:
        figures = f"{validation['nats_per_document']:.3f} nats per document"
        figures += f" at step {validation.get('step', '?')}"
    documents, tokens = run["training_documents"], run["training_tokens"]
    amount = f": {documents:,} documents, {tokens:,} tokens" if documents and tokens else ""
    return {
        "method": f"{run['method']}, {run['size']}",
        "data": f"{run['data']}{amount}",
        "step": f"{run['step']:,} of {run['steps']:,}" if run["steps"] else f"{run['step']:,}",
        "validation": figures,
        "checkpoints": ", ".join(run["checkpoints"]) or "none",
        "started": str(run["started"]),
        "command": str(run["command"]),
    }


def _model(folder: Path) -> dict[str, Any]:
    config = _json(folder / "config.json")
    weights = folder / "model.safetensors"
    if "method" not in config or "model" not in config:
        raise ValueError(f"{folder} has a config.json, but it is not that of a didlm model")
    return {
        "method": config["method"].get("name"),
        "parameters": _parameters(weights) if weights.is_file() else None,
        "vocabulary": config["model"].get("vocabulary"),
        "longest": config.get("longest"),
        "defaults": _dict(config.get("defaults", {}), f"'defaults' of {folder / 'config.json'}"),
        "bytes": weights.stat().st_size if weights.is_file() else None,
        "format": config.get("format"),
        "didlm": config.get("didlm"),
    }


def _model_rows(model: dict[str, Any]) -> dict[str, str]:
    there, defaults = model["parameters"] is not None, model["defaults"]
    return {
        "method": str(model["method"]),
        "parameters": f"{model['parameters']:,}" if there else "there is no model.safetensors",
        "vocabulary": f"{model['vocabulary']:,}" if model["vocabulary"] else "unknown",
        "longest text": f"{model['longest']:,} tokens" if model["longest"] else "unknown",
        "suggests": ", ".join(f"{name} {value}" for name, value in defaults.items()) or "nothing",
        "size": f"{model['bytes'] / 1e6:,.1f} MB" if there else "0 MB",
        "made": f"by didlm {model['didlm']}, format {model['format']}",
    }


def _parameters(weights: Path) -> int:
    """How many numbers a file of weights has, by its header: no need for torch."""
    try:
        with weights.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, OverflowError, MemoryError):
        raise ValueError(f"{weights} is damaged: it has no readable header") from None
    return sum(_product(shape) for shape in shapes)


def _product(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    metrics = []
    for line in lines:
        try:
            metrics.append(json.loads(line))
        except ValueError:
            continue  # the last line of a run that was killed
    return metrics


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is damaged: {problem}") from None
    return _dict(content, str(path))


def _dict(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{what} is damaged: it is not a JSON object")
    return content


def _rows(title: str, rows: dict[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows.items())])
