r"""Texts that an autoregressive teacher writes, for the shipped model to learn from.

    python benchmarks/teacher.py TEACHER TEXTS data/taught.jsonl --count 5000 --top-p 0.65

What is written from left to right with a narrow nucleus has fewer ways to go on than real texts,
and a model that inserts, a small one above all, learns it better. TEACHER is a model of `--method
ar` that has learnt from nothing but texts that the shipped model may learn from; what it writes
begins as the documents of TEXTS do. All of it in one: taught.sh.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from didlm.files import write_text
from didlm.generate.template import Blank
from didlm.pretrained import Model, load
from didlm.text.documents import read_documents

WORDS = 3  # that are taken from the beginning of a real text
LONGEST = 450  # tokens: what has not ended by then is left out


def main() -> None:
    """Write, and leave a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("teacher")
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--top-p", type=float, default=0.65)
    parser.add_argument("--batch", type=int, default=64, help="texts written together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of the processor")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = "bf16" if options.device.startswith("cuda") else "fp32"
    teacher = load(options.teacher, options.device, dtype)
    starts = beginnings(options.texts)
    found = written(teacher, starts, options.top_p, options.seed, options.batch)
    texts = list(islice(found, options.count))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(options.out, "".join(json.dumps({"text": text}) + "\n" for text in texts))
    print(f"{len(texts):,} texts in {options.out}")


def beginnings(texts: Path) -> Counter[str]:
    """The first words of documents, and how often they come."""
    return Counter(" ".join(text.split()[:WORDS]) for text in read_documents(texts))


def written(
    teacher: Model, starts: Counter[str], top_p: float, seed: int, batch: int
) -> Iterator[str]:
    """Texts that begin so, as often as that; those that do not end are left out."""
    rng = np.random.default_rng(seed)
    names, counts = list(starts), np.array(list(starts.values()), dtype=float)
    while True:
        drawn = rng.choice(len(names), batch, p=counts / counts.sum())
        samples = teacher.infill_each(
            [[names[place], Blank()] for place in drawn],
            seed=int(rng.integers(2**31)),
            batch_size=batch,
            top_p=top_p,
            max_length=LONGEST,
        )
        yield from (sample.text for sample in samples if len(sample.tokens) < LONGEST)


if __name__ == "__main__":
    main()
