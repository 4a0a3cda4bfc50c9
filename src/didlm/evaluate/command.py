"""What `didlm evaluate` does: read, measure, show, and leave a file."""

import json as json_format
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from didlm.evaluate.bound import byte_label
from didlm.evaluate.judge import find_judge
from didlm.evaluate.likelihood import Likelihood, evaluate
from didlm.evaluate.order import Order, TokenRank, measure_order
from didlm.evaluate.quality import Quality, data_lengths, measure
from didlm.evaluate.samples import write_samples
from didlm.files import check_place, write_text
from didlm.generate.controls import suited
from didlm.pretrained import load
from didlm.text.documents import read_documents, read_pairs


def evaluate_for_user(
    name: str,
    data: Path | None,
    documents: int | None,
    draws: int,
    paths: int,
    seed: int,
    column: str,
    device: str,
    json: Path | None,
) -> None:
    """Score the documents of a file; print the figures, and write them if asked to."""
    if data is None:
        raise ValueError(
            "--data is missing: name a file of unseen documents, or measure what the model writes "
            "with --samples"
        )
    if json is not None:
        check_place(json)
    model = load(name, device)
    pairs = read_pairs(data, column=column)[:documents]
    prompts = [prompt for prompt, _ in pairs] if any(prompt for prompt, _ in pairs) else None
    result = evaluate(model, [text for _, text in pairs], draws, seed, paths, prompts)
    _write(json, result.summary())
    Console(highlight=False).print(table(result))


def measure_for_user(
    name: str,
    data: Path | None,
    documents: int | None,
    training_data: Path | None,
    column: str,
    judge: str | None,
    order: bool,
    num: int,
    steps: int,
    seed: int,
    top_p: float | None,
    temperature: float | None,
    batch_size: int | None,
    device: str,
    json: Path | None,
) -> None:
    """Let a model write and measure the texts; print the figures, and write them if asked to."""
    # Whatever can be wrong is found out before the work, not after it.
    if json is not None:
        check_place(json)
    model = load(name, device)
    texts = read_documents(data, column=column)[:documents] if data else None
    training = read_documents(training_data, column=column) if training_data else None
    if texts is not None:
        data_lengths(model, texts)
    found = find_judge(judge, model.tokenizer, device) if judge is not None else None
    wished = {"top_p": top_p, "temperature": temperature}
    controls = {"steps": steps, **suited(wished, model.defaults)}
    samples = write_samples(model, num, seed, batch_size, **controls)
    quality = measure(model, samples, texts, training, found)
    ordered = measure_order(samples, model.tokenizer) if order else None
    settings = {"num": num, "seed": seed, "batch_size": batch_size, **controls}
    figures = quality.summary() | {"order": ordered.summary() if ordered else None}
    _write(json, figures | {"settings": settings})
    console = Console(highlight=False)
    console.print(quality_table(quality))
    if ordered:
        console.print(order_table(ordered))


def table(result: Likelihood) -> Table:
    """The figures for people."""
    figures = result.summary()
    what = "exact likelihood" if result.exact else "upper bound"
    lengths = "any length" if result.variable_length else "one length"
    error = "" if result.exact else f" ± {result.stderr:.4f}"
    rows = {
        "nats per token": f"{result.nats_per_token:.4f}{error}",
        byte_label(result.lossless): f"{figures['bits_per_byte']:.4f}",
        "perplexity": f"{figures['perplexity']:.3f}",
        "documents": f"{figures['documents']:,}",
        "tokens": f"{result.tokens:,}",
        "bytes": f"{result.bytes:,}",
    }
    if len(result.lengths) > 1:
        rows["standard error from the choice of documents"] = f"{result.stderr_documents:.4f}"
    if "nats_per_token_dse" in figures:
        tight, noise = figures["nats_per_token_dse"], figures["stderr_dse"]
        rows["nats per token, tighter bound"] = f"{tight:.4f} ± {noise:.4f}"
    if "nats_per_token_paths" in figures:
        rows[f"nats per token, bound over {result.paths} paths"] = (
            f"{figures['nats_per_token_paths']:.4f}"
        )
    if result.cut:
        rows["documents cut"] = f"{result.cut:,}"
    return _shown(f"{result.method}: {what}, texts of {lengths}", rows)


def quality_table(quality: Quality) -> Table:
    """The figures of samples for people."""
    lengths, data, verdict = quality.lengths, quality.data_lengths, quality.verdict
    rows = {
        "tokens in a text": f"{lengths.mean():.1f}, standard deviation {lengths.std():.1f}",
        "entropy of the tokens of a text": f"{quality.entropy_bits:.3f} bits",
        "distinct runs of 1, 2, 3, 4 tokens": ", ".join(map(_share, quality.distinct.values())),
        "network calls for a text": f"{quality.nfe:.1f} in {quality.steps:.1f} steps",
        "seconds for a text": f"{quality.seconds:.3f}: {quality.network_seconds:.3f} in the network"
        f", {quality.sampling_seconds:.3f} sampling",
    }
    if data is not None:
        rows["tokens in a text of the data"] = f"{data.mean():.1f}"
        rows["Kolmogorov-Smirnov distance of lengths"] = f"{quality.length_ks:.3f}"
    if quality.copied is not None:
        rows["runs of 13 tokens that are in the training data"] = _share(quality.copied)
    if verdict is not None and verdict.perplexity is not None:
        rows["judge"] = verdict.judge
        rows["perplexity to the judge, mean of texts"] = f"{verdict.perplexity:.3f}"
        rows["nats per token to the judge"] = f"{verdict.nats_per_token:.4f}"
    if verdict is not None and verdict.left_out:
        rows["texts without tokens, not judged"] = f"{verdict.left_out:,}"
    return _shown(f"{quality.method}: {len(lengths):,} texts", rows)


def order_table(order: Order) -> Table:
    """The order of writing for people."""
    tenths = ["-" if mean is None else f"{mean:.2f}" for mean in order.per_step_by_tenth]
    rows = {
        "tokens in one step of a text": f"{order.per_step:.2f}, at most {order.most_per_step}",
        "by tenth of its steps": " ".join(tenths),
        "neighbours that came together": f"{_share(order.together)}, "
        f"{_share(order.together_if_shuffled)} if shuffled",
        "tokens that come first": _names(order.earliest),
        "tokens that come last": _names(order.latest),
    }
    if order.frequency_correlation is not None:
        rows["correlation of frequency and time"] = f"{order.frequency_correlation:+.2f}"
    return _shown("order of writing", rows)


def _names(tokens: list[TokenRank]) -> str:
    return " ".join(repr(token.text) for token in tokens) or "none comes often enough"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def _shown(title: str, rows: dict[str, str]) -> Table:
    shown = Table(title=title, show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    for name, value in rows.items():
        shown.add_row(name, Text(value))  # as it is: a token may look like markup
    return shown


def _write(json: Path | None, figures: dict[str, object]) -> None:
    if json is not None:
        write_text(json, json_format.dumps(figures, indent=2, ensure_ascii=False) + "\n")
