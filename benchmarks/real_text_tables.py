"""The tables of docs/results.md, from records alone; what was not measured is left empty."""

from collections.abc import Sequence

from performance_tables import markdown
from real_text_book import Book, Group, title
from real_text_curves import AGAINST, budgets, fit, reached
from real_text_paper import MEAN_LENGTH, ZERO_SHOT, Sampled, beside
from real_text_records import Figures
from real_text_runs import RUNS, SETTINGS, TOP_P, Run

SETS = {"chunks": "chunks that its judge reads"}


def measured(book: Book) -> str:
    """When, where and of what."""
    records = [*book.runs.values(), *book.likelihood.values(), *book.middles.values()]
    records += [
        *book.reference.values(),
        *(row for r in book.samples.values() for row in r["rows"]),
    ]
    if not records:
        return ""
    dates = sorted({str(record["date"])[:10] for record in records})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    parts = [
        ", ".join(sorted({str(record[key]) for record in records})) for key in ("device", "commit")
    ]
    versions = ", ".join(sorted({str(record["torch"]) for record in records}))
    return f"{parts[0]}, torch {versions}, {span}, commit {parts[1]}."


def data(book: Book) -> str:
    """What is learnt from."""
    head = ["", "documents", "bytes", "tokens", "vocabulary", "tokens of a text", "documents cut"]
    found = {RUNS[name].setting: own["data"] for name, own in book.runs.items()}
    whole = ("documents", "bytes", "tokens", "vocabulary")
    cells = [
        [
            setting,
            *(f"{own[key]:,}" for key in whole),
            f"{own['tokens_of_a_text']:.0f}",
            f"{own['cut']:,}",
        ]
        for setting, own in found.items()
    ]
    return markdown(head, cells)


def runs(book: Book) -> str:
    """What each run did with its time."""
    head = ["run", "method", "parameters", "without embeddings", "batch", "steps", "seconds"]
    head += ["tokens of text a second", "rows a second", "passes over the text", "FLOPs"]
    head += ["the GPU waited", "memory"]
    cells = []
    for run in RUNS.values():
        if (own := book.runs.get(run.name)) is None:
            continue
        cells.append(
            [
                f"`{run.name}`",
                _method(run),
                f"{own['parameters'] / 1e6:.1f} M",
                f"{own['inner_parameters'] / 1e6:.1f} M",
                str(own["settings"]["batch"]),
                f"{own['steps']:,}",
                f"{own['seconds']:.0f}",
                f"{own['text_tokens_per_second'] / 1e6:.3f} M",
                f"{own['rows_per_second'] / 1e6:.3f} M",
                f"{own['epochs']:.1f}",
                f"{own['flops']:.2e}",
                f"{own['waiting']:.1%}",
                f"{own['memory_mib'] / 1024:.1f} GiB",
            ]
        )
    return markdown(head, cells)


def equal(book: Book, group: Group) -> str:
    """Bounds at equal seconds and at equal FLOPs."""
    curves = book.curves(group)
    named = [run for run in book.of(group) if run.bounded]
    head = ["with no more than", *(f"`{run.name}`{_exact(book, run)}" for run in named)]
    cells = []
    for against in AGAINST:
        for budget in budgets(curves, against):
            said = f"{budget:g} s" if against == "seconds" else f"{budget:.2e} FLOPs"
            values = [reached(curves[run.name], against, budget) for run in named]
            cells.append([said, *(_number(value, ".4f") for value in values)])
    return markdown(head, cells)


def overfitting(book: Book) -> str:
    """The best validation of each run, whose model is kept, and the last."""
    head = ["run", "best, bits per byte", "after", "last", "after", "lost since the best"]
    cells = []
    for name, own in book.runs.items():
        if (found := fit(own["curve"])) is not None:
            best, last = f"{found.best:.4f}", f"{found.last:.4f}"
            when = [f"{found.at_seconds:.0f} s", f"{found.seconds:.0f} s"]
            cells.append([f"`{name}`", best, when[0], last, when[1], f"{found.rise:.4f}"])
    return markdown(head, cells)


def likelihoods(book: Book, group: Group) -> str:
    """Bits per byte of unseen text, in the setting and elsewhere."""
    named = [run for run in book.of(group) if book.bits(run)]
    sets = list(dict.fromkeys(name for run in named for name in book.bits(run)))
    head = ["bits per byte", *(f"`{run.name}`{_exact(book, run)}" for run in named)]
    dise = any(book.bits(run).get(s, {}).get("bits_per_byte_dse") for run in named for s in sets)
    if SETTINGS[group[0]].chunks:
        head.append("the paper's perplexities: RADD, DICE, DISE")
    cells = []
    for name in sets:
        row = [SETS.get(name, name), *(_bits(book.bits(run).get(name), dise) for run in named)]
        if SETTINGS[group[0]].chunks:
            row.append(", ".join(f"{value:.2f}" for value in ZERO_SHOT.get(name, ())))
        cells.append(row)
    return markdown(head, cells)


def samples(book: Book, group: Group) -> str:
    """What is written: quality and time, with and without top-p."""
    head = ["run", "steps", "network calls", "seconds a text", "entropy, bits", "perplexity"]
    head += ["perplexity at the data's entropy, by temperature", "by top-p"]
    head += [
        f"with top-p {TOP_P}: entropy",
        "perplexity",
        "the paper: perplexity, with top-p, seconds",
    ]
    cells = []
    for run, row, nucleus, theirs in _written(book, group):
        steps = row["steps_asked"]
        cell = [f"`{run.name}`" + " (its own judge)" * row["own_judge"], f"{steps:,}" * (steps > 0)]
        cell += [f"{row['nfe']:.0f}", f"{row['seconds']:.4f}", f"{row['entropy_bits']:.3f}"]
        cell += [_perplexity(row), _number(book.at_data_entropy(run, steps), ".2f")]
        cell += [_number(book.at_data_entropy_by_nucleus(run, steps), ".2f")]
        cell += [_of(nucleus, "entropy_bits", ".3f"), _of(nucleus, "generative_perplexity", ".2f")]
        star = "*" if theirs and theirs.outliers_left_out else ""
        said = f"{theirs.perplexity:.4g}{star}, {theirs.nucleus:.4g}{star}, " if theirs else ""
        cells.append([*cell, said + (f"{theirs.seconds:.3g}" if theirs else "")])
    if cells and (data := book.reference.get(group[0])):
        perplexity = _number(data["texts"]["generative_perplexity"], ".2f")
        cell = ["unseen texts", *[""] * 3, f"{data['texts']['entropy_bits']:.3f}", perplexity]
        cells.append([*cell, *[""] * 5])
    return markdown(head, cells)


def lengths(book: Book, group: Group) -> str:
    """Mean lengths, and how far their distribution is from that of the data."""
    if SETTINGS[group[0]].chunks:
        return ""
    head = ["run", "steps", "mean length", "distance", f"mean length with top-p {TOP_P}"]
    head += ["distance", f"the paper: mean length, of {MEAN_LENGTH:.0f}"]
    cells, written = [], _written(book, group)
    for run, row, nucleus, theirs in written:
        cell = [f"`{run.name}`", f"{row['steps_asked']:,}" * (row["steps_asked"] > 0)]
        for some in (row, nucleus):
            cell += [_of(some, "length_mean", ".0f"), _of(some, "length_ks", ".3f")]
        cells.append([*cell, _number(theirs.length if theirs else None, ".0f")])
    if written:
        mean = written[0][1]["data_length_mean"]  # the same for all
        cells.append(["unseen texts", "", f"{mean:.0f}", *[""] * 4])
    return markdown(head, cells)


def _written(book: Book, group: Group) -> list[tuple[Run, Figures, Figures | None, Sampled | None]]:
    """Samples of a group, the same with top-p, and what the paper has of them."""
    return [
        (
            run,
            row,
            next(iter(book.written(run, row["steps_asked"], top_p=TOP_P)), None),
            beside(run.setting, run.method, dict(run.options), row["steps_asked"]),
        )
        for run in book.of(group)
        for row in book.written(run)
    ]


def middles(book: Book, group: Group) -> str:
    """Middles given both ends, and given the left one alone."""
    head = ["", "given", "bits per byte of the real middle", "tokens of its own middle"]
    head += ["nats per token of the right end after it"]
    cells = []
    for run in book.of(group):
        if (own := book.middles.get(run.name)) is None:
            continue
        given = {"ar": "the left end", "radd": "both ends and the length"}.get(
            run.method, "both ends"
        )
        bits = ""
        if "bits_per_byte" in own:
            bits = f"{own['bits_per_byte']:.3f} ± {own['stderr_documents']:.3f}{_exact(book, run)}"
        cells.append([f"`{run.name}`", given, bits, f"{own['tokens']:.1f}", _right(own)])
    data = book.reference.get(group[0], {})
    for what, name in (("the real middles", "real"), ("no middles", "none")):
        if cells and (own := data.get(f"{name}_middles")) is not None:
            some = next(
                book.middles[run.name] for run in book.of(group) if run.name in book.middles
            )
            length = f"{some['real_tokens']:.1f}" if name == "real" else "0"
            cells.append([what, "", "", length, _right(own)])
    return markdown(head, cells)


def by_group(book: Book, table: "Sequence[tuple[Group, str]]") -> str:
    """Tables of groups below each other, each with its title."""
    return "\n\n".join(f"**{title(group)}**\n\n{text}" for group, text in table if text)


def _method(run: Run) -> str:
    objective = run.options.get("objective")
    return f"{run.method}, {str(objective).upper()}" if objective else run.method


def _exact(book: Book, run: Run) -> str:
    return " (exact)" if book.runs[run.name]["exact"] else ""


def _bits(figures: Figures | None, tighter: bool) -> str:
    if figures is None:
        return ""
    said = f"{figures['bits_per_byte']:.4f}"
    if figures["kind"] == "bound":
        said += f" ± {figures['stderr_bits']:.4f}"
    if tighter and "bits_per_byte_dse" in figures:
        said += f" (DSE {figures['bits_per_byte_dse']:.4f})"
    return said


def _right(figures: Figures) -> str:
    return f"{figures['right_nats_per_token']:.4f} ± {figures['right_stderr']:.4f}"


def _perplexity(row: Figures) -> str:
    """With its standard error, as far as that is known."""
    value, error = row["generative_perplexity"], row["log_perplexity_stderr"]
    if value is None or error is None:
        return _number(value, ".2f")
    return f"{value:.2f} ± {value * error:.2f}"


def _of(row: Figures | None, name: str, form: str) -> str:
    return _number(row[name] if row else None, form)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
