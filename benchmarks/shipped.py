r"""The model that comes with the package: made of a run, and measured for its card.

    python benchmarks/shipped.py STORIES --texts data/stories   # what to train on, and to validate
    didlm train --recipe shipped --data data/stories/train --out runs/stories \
        --valid data/stories/valid/tinystories.jsonl
    python benchmarks/shipped.py STORIES --run runs/stories     # from a run, in 16 bits
    python benchmarks/shipped.py STORIES                        # measured again

The defaults for generation that config.json names are kept; they were chosen by samples of other
seeds than the one that is measured here.

STORIES is a folder with tinystories.{train,valid}, fables.{train,valid} and childrens_books.train
as .jsonl.xz. Appends a row to benchmarks/results/shipped.csv, and writes its figures into the table
of the model's card, src/didlm/models/stories/README.md.
"""

import argparse
import json
import re
import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from didlm.evaluate.grams import copied_share
from didlm.evaluate.likelihood import Likelihood, evaluate
from didlm.evaluate.quality import data_lengths, ks_distance
from didlm.evaluate.samples import write_samples
from didlm.pretrained import load
from didlm.text.documents import read_documents
from marks import between
from recording import record

HOME = Path(__file__).parents[1] / "src/didlm/models/stories"
CARD = HOME / "README.md"
TRAINING = ("tinystories.train", "fables.train", "childrens_books.train")
VALIDATION = ("tinystories.valid", "fables.valid")
MARK = "<|eot_id|>"  # at the end of some fables
LONGEST_BOOK = 4000  # bytes: longer ones would be cut
USUAL = 5  # times that a word comes in the TinyStories that are learnt from
SIMPLE = 0.92  # share of the words of another text that are usual there
STEPS = 64
REPLICATES = 8  # of a bound
BATCH = 256  # texts written together on a GPU


@dataclass(frozen=True)
class Row:
    """What the card says."""

    device: str  # that wrote the samples
    parameters: int
    mebibytes: float  # of the weights
    tinystories_bits: float  # per byte of unseen TinyStories: an upper bound
    tinystories_error: float  # of its estimate
    tinystories_dse_bits: float  # the tighter bound
    fables_bits: float
    fables_error: float
    simple_fables_bits: float  # those in simple words, as it has learnt from
    simple_fables_error: float
    samples: int
    steps: int
    calls: float  # of the network, a text
    data_mean_length: float  # tokens
    mean_length: float
    mean_length_suited: float  # with the defaults that the model brings
    length_ks: float
    length_ks_suited: float
    copied_unseen: float  # share of runs of 13 tokens of unseen stories that are in training data
    copied: float
    copied_suited: float
    seconds_for_four: float  # stories, on this processor
    threads: int


def main() -> None:
    """Make, measure, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stories", type=Path)
    parser.add_argument("--run", type=Path, help="a run to make the model of")
    parser.add_argument("--texts", type=Path, help="only write the cleaned texts to this folder")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--device", default="cpu", help="for all but the time of four stories")
    parser.add_argument("--threads", type=int, default=2, help="of the processor")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.texts:
        write_texts(options.stories, options.texts)
        return
    if options.run:
        model = load(options.run)
        model.defaults = load(HOME).defaults
        model.save_pretrained(HOME, CARD.read_text(encoding="utf-8"), "fp16")
    row = measured(options.stories, options.samples, options.device)
    print(row)
    words = ["STORIES" if word == str(options.stories) else word for word in sys.argv]
    record("shipped", [row], shlex.join(["python", *words]), ["torch"])
    CARD.write_text(with_figures(CARD.read_text(encoding="utf-8"), row), encoding="utf-8")


def cleaned(stories: Path, name: str) -> list[str]:
    """The texts of a file, less what does not belong into a story."""
    texts = [text.strip() for text in read_documents(stories / f"{name}.jsonl.xz")]
    texts = [text.removesuffix(MARK).rstrip() for text in texts]
    if name.startswith("childrens_books"):
        texts = [text for text in texts if len(text.encode()) <= LONGEST_BOOK]
    return [text for text in texts if "<|" not in text and "##\n##" not in text]


def in_simple_words(stories: Path, name: str) -> list[str]:
    """The same; of other texts than TinyStories those that are told in their words."""
    texts = cleaned(stories, name)
    if name.startswith("tinystories"):
        return texts
    usual = usual_words(stories)
    found = [(text, words_of(text)) for text in texts]
    return [
        text
        for text, words in found
        if sum(word in usual for word in words) >= SIMPLE * max(1, len(words))
    ]


@cache
def usual_words(stories: Path) -> frozenset[str]:
    """Those of TinyStories."""
    counts = Counter(w for text in cleaned(stories, TRAINING[0]) for w in words_of(text))
    return frozenset(word for word, count in counts.items() if count >= USUAL)


def words_of(text: str) -> list[str]:
    """Letters between others, in lower case."""
    return re.findall(r"[a-z']+", text.lower())


def write_texts(stories: Path, folder: Path) -> None:
    """What the model learns from, and what it is validated on, as .jsonl files."""
    for name in TRAINING + VALIDATION:
        kind, side = name.split(".")
        (folder / side).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"text": text}) + "\n" for text in in_simple_words(stories, name)]
        (folder / side / f"{kind}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{name}: {len(lines):,} documents")


def measured(stories: Path, count: int, device: str) -> Row:
    """All figures; those of samples are of so many."""
    slow, model = load(HOME), load(HOME, device)
    started = time.perf_counter()
    slow.generate(num_samples=4, steps=STEPS, seed=0)
    four = time.perf_counter() - started
    print(f"four stories: {four:.1f} s", flush=True)
    unseen = {name: in_simple_words(stories, name) for name in VALIDATION}
    tiny, simple, fables = (
        evaluate(model, texts, draws=2, replicates=REPLICATES)
        for texts in (*unseen.values(), cleaned(stories, VALIDATION[1]))
    )
    print("bounds:", *(bits(each, "nats_per_token") for each in (tiny, simple, fables)), flush=True)
    learnt_from = {name: in_simple_words(stories, name) for name in TRAINING}
    training = [text for texts in learnt_from.values() for text in texts]
    batch = BATCH if model.device.type == "cuda" else None
    plain, suited = (
        write_samples(each, count, 0, batch, steps=STEPS) for each in (model.plain(), model)
    )
    plain_lengths, suited_lengths = (
        np.array([len(sample.tokens) for sample in samples]) for samples in (plain, suited)
    )
    learnt = model.tokenizer.encode_batch(training)
    # As many of each kind as the model has learnt from.
    pairs = list(zip(unseen.values(), learnt_from.values(), strict=False))
    share = min(len(some) / len(whole) for some, whole in pairs)
    real = model.tokenizer.encode_batch(
        [text for some, whole in pairs for text in some[: round(share * len(whole))]]
    )
    expected = data_lengths(model, training)
    return Row(
        device=torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        parameters=sum(p.numel() for p in model.network.parameters()),
        mebibytes=(HOME / "model.safetensors").stat().st_size / 2**20,
        tinystories_bits=bits(tiny, "nats_per_token"),
        tinystories_error=bits(tiny, "stderr"),
        tinystories_dse_bits=bits(tiny, "nats_per_token_dse"),
        fables_bits=bits(fables, "nats_per_token"),
        fables_error=bits(fables, "stderr"),
        simple_fables_bits=bits(simple, "nats_per_token"),
        simple_fables_error=bits(simple, "stderr"),
        samples=count,
        steps=STEPS,
        calls=float(np.mean([sample.nfe for sample in plain])),
        data_mean_length=float(expected.mean()),
        mean_length=float(plain_lengths.mean()),
        mean_length_suited=float(suited_lengths.mean()),
        length_ks=ks_distance(plain_lengths, expected),
        length_ks_suited=ks_distance(suited_lengths, expected),
        copied_unseen=copied_share(real, learnt) or 0.0,
        copied=copied_share([sample.tokens for sample in plain], learnt) or 0.0,
        copied_suited=copied_share([sample.tokens for sample in suited], learnt) or 0.0,
        seconds_for_four=four,
        threads=torch.get_num_threads(),
    )


def bits(result: Likelihood, name: str) -> float:
    """A figure in nats per token, in bits per byte."""
    nats = result.summary()[name]
    assert isinstance(nats, float)
    return nats * result.tokens / result.bytes / np.log(2)


def with_figures(card: str, row: Row) -> str:
    """The card with its table as it follows from the figures."""
    error = row.tinystories_error
    figures = {
        "parameters": f"{row.parameters / 1e6:.2f} million, {row.mebibytes:.1f} MiB",
        "unseen TinyStories, bits per byte, at most": f"{row.tinystories_bits:.3f} ± {error:.3f}",
        "the same by the tighter bound": f"{row.tinystories_dse_bits:.3f}",
        "unseen fables in simple words; all unseen fables": (
            f"{row.simple_fables_bits:.3f} ± {row.simple_fables_error:.3f}; "
            f"{row.fables_bits:.3f} ± {row.fables_error:.3f}"
        ),
        f"mean length of {row.samples} samples in {row.steps} steps; without its defaults": (
            f"{row.mean_length_suited:.0f}; {row.mean_length:.0f} tokens "
            f"(the data: {row.data_mean_length:.0f})"
        ),
        "distance of their lengths from the data's (Kolmogorov-Smirnov)": (
            f"{row.length_ks_suited:.3f}; {row.length_ks:.3f}"
        ),
        "share of their runs of 13 tokens that are in the training data": (
            f"{100 * row.copied_suited:.1f}; {100 * row.copied:.1f} % "
            f"(unseen real stories: {100 * row.copied_unseen:.1f} %)"
        ),
        f"four stories in {row.steps} steps, {row.threads} cores": f"{row.seconds_for_four:.1f} s",
    }
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in figures.items())]
    return between(card, "figures", "\n".join(lines))


if __name__ == "__main__":
    main()
