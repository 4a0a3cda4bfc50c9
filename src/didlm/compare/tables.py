"""The tables of a comparison, as rows of text: one shape for the terminal and for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from didlm.compare.gather import Entry, Run, perplexity_at_entropy
from didlm.evaluate.bound import byte_label


@dataclass(frozen=True)
class Table:
    """A title, headings and rows; the first column names, the others hold numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def all_tables(entries: Sequence[Entry], data: Run, document_entropy: float | None) -> list[Table]:
    """Likelihoods and samples; whole documents and chunks of one length have tables of their own.

    Args:
        entries: the models.
        data: the same figures of the documents.
        document_entropy: exact, in nats per document, where it is known.
    """
    whole = [entry for entry in entries if entry.variable_length]
    chunks = [entry for entry in entries if not entry.variable_length]
    tables = []
    if whole:
        title = "Likelihood of whole documents, their ends included"
        tables.append(_likelihoods(title, whole, document_entropy))
        tables.append(_samples("What they write", whole, data))
    if chunks:
        tables.append(_likelihoods("Likelihood of chunks of one length", chunks, None))
        tables.append(_samples("What they write in chunks of one length", chunks, None))
    return tables


def _likelihoods(title: str, entries: Sequence[Entry], entropy: float | None) -> Table:
    headings = ["model", "method", "parameters", "training FLOPs", "what", "nats per text"]
    headings += ["times the entropy"] * (entropy is not None)
    # Bytes of texts and bytes of normalised texts are not the same: never in one column.
    lossless = {entry.likelihood.lossless for entry in entries if entry.likelihood} or {True}
    by_byte = [byte_label(exactly) for exactly in sorted(lossless, reverse=True)]
    headings += ["nats per token", "by the documents", "tighter bound", *by_byte]
    headings += ["perplexity", "texts", "tokens"]
    rows = []
    for entry in entries:
        row = [entry.name, entry.method, f"{entry.parameters:,}", _number(entry.flops, ".3g")]
        if entry.likelihood is None:
            rows.append([*row, "has none", *[""] * (len(headings) - 5)])
            continue
        found, figures = entry.likelihood, entry.likelihood.summary()
        per_text = float(found.nats.mean())
        row += [str(figures["kind"]), f"{per_text:.2f}"]
        row += [f"{per_text / entropy:.3f}"] if entropy is not None else []
        error = "" if found.exact else f" ± {found.stderr:.4f}"
        tight = figures.get("nats_per_token_dse")
        row += [f"{found.nats_per_token:.4f}{error}", f"± {found.stderr_documents:.4f}"]
        row += [f"{tight:.4f}" if isinstance(tight, float) else ""]
        own, bits = byte_label(found.lossless), f"{figures['bits_per_byte']:.4f}"
        row += [bits if label == own else "" for label in by_byte]
        rows.append([*row, f"{figures['perplexity']:.4g}", f"{len(found.lengths):,}",
                     f"{found.tokens:,}"])  # fmt: skip
    return Table(title, headings, rows)


def _samples(title: str, entries: Sequence[Entry], data: Run | None) -> Table:
    headings = ["model", "steps asked for", "network calls", "seconds", "of it in the network"]
    headings += ["unigram entropy, bits", "mean length", "length KS", "perplexity to the judge"]
    headings += ["the same at the data's entropy", "distinct 1-grams", "2-grams", "3-grams"]
    headings += ["4-grams", "13-grams copied", "tokens per step", "neighbours together", "valid"]
    rows = []
    for entry in entries:
        for run in entry.by_steps:
            found = run.quality
            written = [f"{found.nfe:.1f}", f"{found.seconds:.4f}"]
            written += [f"{found.network_seconds / max(found.seconds, 1e-12):.0%}"]
            tempered = ""
            if run is entry.best and run.perplexity is not None and data is not None:
                value = perplexity_at_entropy(entry, data.quality.entropy_bits)
                tempered = "outside the sweep" if value is None else f"{value:.4g}"
            asked = str(run.steps) if entry.stepwise else "has none"
            born = [f"{run.order.per_step:.2f}", _number(run.order.together, ".3f")]
            rows.append([entry.name, asked, *written, *_texts(run, tempered, born)])
    if data is not None:
        rows.append(["data", "", "", "", "", *_texts(data, "", ["", ""])])
    return Table(title, headings, rows)


def _texts(run: Run, tempered: str, born: list[str]) -> list[str]:
    found = run.quality
    return [
        f"{found.entropy_bits:.3f}",
        f"{found.lengths.mean():.1f}",
        _number(found.length_ks, ".3f"),
        _number(run.perplexity, ".4g"),
        tempered,
        *(_number(found.distinct.get(n), ".3f") for n in (1, 2, 3, 4)),
        _number(found.copied, ".3f"),
        *born,
        _number(run.valid, ".1%"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
