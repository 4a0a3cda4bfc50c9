"""The tables of a comparison, as rows of text: one shape for the terminal and for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from didlm.compare.gather import Entry, perplexity_at_entropy


@dataclass(frozen=True)
class Table:
    """A title, headings and rows; the first column names, the others hold numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def all_tables(
    entries: Sequence[Entry], data_entropy: float, document_entropy: float | None
) -> list[Table]:
    """Likelihoods of whole documents, of chunks of one length, and what the models write."""
    variable = [entry for entry in entries if entry.variable_length]
    fixed = [entry for entry in entries if not entry.variable_length]
    tables = []
    if variable:
        title = "Likelihood of whole documents, their ends included"
        tables.append(_likelihoods(title, variable, document_entropy))
    if fixed:
        tables.append(_likelihoods("Likelihood of chunks of one length", fixed, None))
    return [*tables, _samples(entries, data_entropy)]


def _likelihoods(title: str, entries: Sequence[Entry], entropy: float | None) -> Table:
    headings = ["model", "method", "parameters", "training FLOPs", "what", "nats per text"]
    headings += ["times the entropy"] * (entropy is not None)
    headings += ["nats per token", "bits per byte", "perplexity"]
    rows = []
    for entry in entries:
        row = [entry.name, entry.method, f"{entry.parameters:,}", _number(entry.flops, ".3g")]
        if entry.likelihood is None:
            rows.append([*row, "has none", *[""] * (len(headings) - 5)])
            continue
        found = entry.likelihood
        per_text = float(found.nats.mean())
        row += ["exact" if found.exact else "bound", f"{per_text:.2f}"]
        row += [f"{per_text / entropy:.3f}"] if entropy is not None else []
        error = "" if found.exact else f" ± {found.stderr:.4f}"
        figures = found.summary()
        row += [f"{found.nats_per_token:.4f}{error}", f"{figures['bits_per_byte']:.4f}"]
        rows.append([*row, f"{figures['perplexity']:.3f}"])
    return Table(title, headings, rows)


def _samples(entries: Sequence[Entry], data_entropy: float) -> Table:
    headings = ["model", "steps", "calls", "seconds", "in the network", "entropy, bits"]
    headings += ["length", "length KS", "perplexity", "at the data's entropy", "distinct 2-grams"]
    headings += ["copied 13-grams", "valid"]
    rows = []
    for entry in entries:
        for run in entry.by_steps:
            found = run.quality
            tempered = perplexity_at_entropy(entry, data_entropy) if run is entry.best else None
            rows.append(
                [
                    entry.name,
                    str(run.steps) if entry.stepwise else "",
                    f"{found.nfe:.1f}",
                    f"{found.seconds:.4f}",
                    f"{found.network_seconds / max(found.seconds, 1e-12):.0%}",
                    f"{found.entropy_bits:.3f}",
                    f"{found.lengths.mean():.1f}",
                    _number(found.length_ks, ".3f"),
                    _number(run.perplexity, ".3f"),
                    _number(tempered, ".3f"),
                    _number(found.distinct[2], ".3f"),
                    _number(found.copied, ".3f"),
                    _number(run.valid, ".1%"),
                ]
            )
    return Table("What they write", headings, rows)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
