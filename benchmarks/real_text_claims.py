"""Claims of the paper, and our own, held against the records: which hold here, and which do not."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from performance_tables import markdown
from real_text_book import Book, Group
from real_text_curves import AGAINST, budgets, reached
from real_text_paper import MEAN_LENGTH, SAMPLES, TRAINING, ZERO_SHOT
from real_text_runs import SETTINGS, Run


@dataclass(frozen=True)
class Claim:
    """Something that was said, by whom, and what we found."""

    what: str
    paper: str  # its figures; empty if it is not the paper's
    ours: str
    holds: bool | None  # None where the difference is within two standard errors


VERDICTS = {True: "holds", False: "**does not hold**", None: "cannot be told"}


def summary(book: Book) -> str:
    """How many claims hold."""
    found = [claim.holds for group in book.groups for claim in claims(book, group)]
    if not found:
        return ""
    holds, fails, unclear = (found.count(verdict) for verdict in VERDICTS)
    return f"Of {len(found)} claims {holds} hold, {fails} do not, {unclear} cannot be told."


def table(book: Book, group: Group) -> str:
    """All claims about a group of which enough was measured."""
    head = ["claim", "the paper", "here", "verdict"]
    cells = [
        [claim.what, claim.paper, claim.ours, VERDICTS[claim.holds]]
        for claim in claims(book, group)
    ]
    return markdown(head, cells)


def claims(book: Book, group: Group) -> Iterator[Claim]:
    """Those about one group."""
    fixed = SETTINGS[group[0]].chunks
    did = book.find(group, "did-fixed", "dice") if fixed else book.find(group, "did")
    radd, dise = book.find(group, "radd"), book.find(group, "did-fixed", "dise")
    if did and radd:
        yield from _bounds(book, group, did, radd)
        yield from _speeds(book, did, radd)
        yield from _quality(book, did, radd)
    if did and dise:
        yield from _sets(book, "DICE's bounds are below DISE's", did, dise, (1, 2))
    if did and (ilm := book.find(group, "ilm")):
        yield from _perplexities(book, did, ilm, "ILM")
    if did and (ar := book.find(group, "ar")):
        yield from _ar(book, did, ar)
        yield from _middles(book, did, ar)


def _bounds(book: Book, group: Group, did: Run, radd: Run) -> Iterator[Claim]:
    curves = book.curves(group)
    for against in AGAINST:
        for budget in budgets(curves, against)[-1:]:  # the last row of the table
            a, b = (reached(curves[run.name], against, budget) for run in (did, radd))
            if a is not None and b is not None:
                said = "seconds of training" if against == "seconds" else "FLOPs"
                what = f"DID's bound is below RADD's at equal {said}"
                yield Claim(what, "", f"{a:.4f}, RADD {b:.4f} bits per byte", a < b)
    if did.setting == "novels":
        yield from _sets(book, "DID's zero-shot bounds are below RADD's", did, radd, (1, 0))


def _sets(book: Book, what: str, one: Run, other: Run, places: tuple[int, int]) -> Iterator[Claim]:
    """On how many sets a bound is the lower one by more than noise."""
    theirs = [values[places[0]] < values[places[1]] for values in ZERO_SHOT.values()]
    first, second = book.bits(one), book.bits(other)
    sets = [
        name for name in first if name in second and name not in SETTINGS[one.setting].validation
    ]
    if not sets:
        return
    found = [
        below(*(each["bits_per_byte"] for each in pair), *(each["stderr_bits"] for each in pair))
        for pair in ((first[name], second[name]) for name in sets)
    ]
    lower, higher = found.count(True), found.count(False)
    verdict = True if lower > len(sets) / 2 else False if higher >= len(sets) / 2 else None
    paper = f"on {sum(theirs)} of {len(theirs)} of these sets"
    yield Claim(
        f"{what} on most sets",
        paper,
        f"below on {lower}, above on {higher} of {len(sets)}",
        verdict,
    )


def _speeds(book: Book, did: Run, radd: Run) -> Iterator[Claim]:
    a, b = (book.runs[run.name]["text_tokens_per_second"] for run in (did, radd))
    slow, fast = TRAINING[did.setting]
    yield Claim(
        "DID trains faster than RADD", f"{slow / fast:.2f} times", f"{a / b:.2f} times", a > b
    )
    for steps, theirs in SAMPLES[did.setting, did.method].items():
        ours = [next(iter(book.written(run, steps)), None) for run in (did, radd)]
        if ours[0] and ours[1]:
            ratio = ours[1]["seconds"] / ours[0]["seconds"]
            paper = SAMPLES[radd.setting, radd.method][steps].seconds / theirs.seconds
            what = f"DID writes faster than RADD in {steps:,} steps"
            yield Claim(what, f"{paper:.2f} times", f"{ratio:.2f} times", ratio > 1)


def _quality(book: Book, did: Run, radd: Run) -> Iterator[Claim]:
    yield from _perplexities(book, did, radd, "RADD")
    if did.setting != "stories":
        return
    for steps in (64, 256):
        rows = [next(iter(book.written(run, steps)), None) for run in (did, radd)]
        if not (rows[0] and rows[1]):
            continue
        data = rows[0]["data_length_mean"]
        a, b = (abs(row["length_mean"] - data) for row in rows if row)
        noise = [row["length_std"] / math.sqrt(row["samples"]) for row in rows if row]
        theirs = [SAMPLES["stories", method][steps].length for method in ("did", "radd")]
        yield Claim(
            f"DID's texts in {steps} steps have the nearer mean length",
            f"{theirs[0]:.0f}, RADD {theirs[1]:.0f} of {MEAN_LENGTH:.0f}",
            f"{rows[0]['length_mean']:.0f}, RADD {rows[1]['length_mean']:.0f} of {data:.0f}",
            below(a, b, *noise),
        )


def _perplexities(book: Book, did: Run, other: Run, name: str) -> Iterator[Claim]:
    """Perplexities as they come, and at the data's entropy where the sweep reaches it."""
    for steps, theirs in SAMPLES[did.setting, did.method].items():
        anchor = SAMPLES[other.setting, other.method].get(steps)
        ours = [next(iter(book.written(run, steps)), None) for run in (did, other)]
        if not (anchor and ours[0] and ours[1]):
            continue
        if not other.stepwise and steps < max(SAMPLES[other.setting, other.method]):
            continue  # it takes as many steps as it likes, so that one comparison is enough
        a, b = (row["generative_perplexity"] for row in ours if row)
        errors = [row["log_perplexity_stderr"] for row in ours if row]
        if a is None or b is None or None in errors:
            continue
        said = f"{theirs.perplexity:.4g}, {name} {anchor.perplexity:.4g}"
        what = f"DID's samples in {steps:,} steps have a lower perplexity than {name}'s"
        verdict = below(math.log(a), math.log(b), *errors)
        yield Claim(what, said, f"{a:.4g}, {name} {b:.4g}", verdict)
        a, b = (
            book.at_data_entropy(run, row["steps_asked"])
            for run, row in zip((did, other), ours, strict=True)
            if row
        )
        if a is not None and b is not None:
            verdict = below(math.log(a), math.log(b), *errors)
            yield Claim(f"{what}, at the data's entropy", "", f"{a:.4g}, {name} {b:.4g}", verdict)


def _ar(book: Book, did: Run, ar: Run) -> Iterator[Claim]:
    """What the paper does not compare: bounds against an exact likelihood, and samples."""
    bounds, exact = book.bits(did), book.bits(ar)
    own = SETTINGS[did.setting].validation
    sides = {"unseen text of its kind": own, "other text": set(bounds) - set(own)}
    for where, names in sides.items():
        both = [name for name in names if name in bounds and name in exact]
        if both:
            lower = sum(bounds[n]["bits_per_byte"] < exact[n]["bits_per_byte"] for n in both)
            what = f"DID's bound is below AR's exact figure on most sets of {where}"
            said = f"below on {lower} of {len(both)}"
            yield Claim(what, "", said, lower > len(both) / 2)
    written = [row for row in book.written(did) if row["generative_perplexity"]]
    theirs = next(iter(book.written(ar)), None)
    if not written or theirs is None or theirs["generative_perplexity"] is None:
        return
    best = min(written, key=lambda row: row["generative_perplexity"])
    a, b = (row["generative_perplexity"] for row in (best, theirs))
    errors = [row["log_perplexity_stderr"] or 0.0 for row in (best, theirs)]
    verdict = below(math.log(a), math.log(b), *errors)
    what = "DID's samples have a lower perplexity than AR's at the best number of steps"
    yield Claim(what, "", f"{a:.4g}, AR {b:.4g}", verdict)
    for row in written:
        fast, slow = row["seconds"], theirs["seconds"]
        what = f"DID writes faster than AR in {row['steps_asked']:,} steps"
        yield Claim(what, "", f"{slow / fast:.2f} times", fast < slow)


def _middles(book: Book, did: Run, ar: Run) -> Iterator[Claim]:
    a, b = (book.middles.get(run.name) for run in (did, ar))
    if not (a and b):
        return
    pairs = [("bits_per_byte", "stderr_documents"), ("right_nats_per_token", "right_stderr")]
    words = [
        "Middles given both ends cost DID less than they cost AR given the left end",
        "Right ends follow better on DID's middles than on AR's",
    ]
    for what, (name, error) in zip(words, pairs, strict=True):
        # The texts are the same, so that the error of the difference is smaller than this.
        verdict = below(a[name], b[name], a[error], b[error])
        yield Claim(what, "", f"{a[name]:.3f}, AR {b[name]:.3f}", verdict)


def below(one: float, other: float, error: float, error_of_other: float) -> bool | None:
    """Whether one figure is below another; None within two standard errors of the difference."""
    noise = 2 * math.hypot(error, error_of_other)
    return None if abs(other - one) <= noise else one < other
