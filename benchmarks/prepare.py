"""How fast text becomes a token store, and in how much memory.

    python benchmarks/prepare.py
    python benchmarks/prepare.py --megabytes 100 --workers 1

The text is made up: words of a Zipf distribution, as jsonl. `didlm prepare` runs as a user runs it,
learns its tokenizer, and is watched from outside. Memory must not grow with the text.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recording import record

WORDS = 50_000
MADE = 20  # megabytes of text that differ; more repeat them under other numbers


@dataclass(frozen=True)
class Row:
    """One measurement."""

    megabytes: int  # of the file
    workers: int
    vocabulary: int
    documents: int
    tokens: int
    seconds: float  # in all, with learning the tokenizer
    megabytes_per_second: float
    tokens_per_second: float
    main_mib: float  # resident at its peak
    worker_mib: float  # the same, of the largest worker


def documents(rng: np.random.Generator) -> Iterator[str]:
    """Texts of 20 to 400 words, about as frequent as those of a language are."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    lengths = rng.integers(2, 11, WORDS)
    words = np.array(["".join(rng.choice(letters[: 8 + n], n)) for n in lengths])
    while True:
        ranks = rng.zipf(1.2, int(rng.integers(20, 400))) % WORDS
        text = " ".join(words[ranks].tolist())
        yield text.capitalize() + "."


def write_text(path: Path, megabytes: int) -> None:
    """Write a .jsonl file of about so many megabytes."""
    made: list[str] = []
    size = 0
    for text in documents(np.random.default_rng(0)):
        made.append(json.dumps(text)[1:-1])
        size += len(text)
        if size > MADE * 10**6:
            break
    copy = 0
    with path.open("w") as file:
        while file.tell() < megabytes * 10**6:
            for text in made:
                file.write(f'{{"text": "{copy} {text}"}}\n')
                if file.tell() >= megabytes * 10**6:
                    break
            copy += 1


def measure(path: Path, out: Path, megabytes: int, workers: int, vocabulary: int) -> Row:
    """Prepare a file in a process of its own, and watch it."""
    command = [sys.executable, "-c", "from didlm.cli import main; main()", "prepare", str(path)]
    command += ["--out", str(out), "--workers", str(workers), "--vocabulary", str(vocabulary)]
    started = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    peaks: dict[int, float] = {}
    while process.poll() is None:
        for number in _group(process.pid):
            peaks[number] = max(peaks.get(number, 0.0), _peak_mib(number))
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(process.returncode)
    counts = json.loads((out / "manifest.json").read_text())["counts"]
    return Row(
        megabytes=megabytes,
        workers=workers,
        vocabulary=vocabulary,
        documents=counts["documents"],
        tokens=counts["tokens"],
        seconds=seconds,
        megabytes_per_second=path.stat().st_size / 1e6 / seconds,
        tokens_per_second=counts["tokens"] / seconds,
        main_mib=peaks.pop(process.pid, float("nan")),
        worker_mib=max(peaks.values(), default=0.0),
    )


def _group(leader: int) -> list[int]:
    """The processes that a process started, and itself; none outside Linux."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            group = int(path.read_text().rpartition(")")[2].split()[2])
        except OSError:
            continue
        if group == leader:
            found.append(int(path.parent.name))
    return found


def _peak_mib(process: int) -> float:
    try:
        _, _, rest = Path(f"/proc/{process}/status").read_text().partition("VmHWM:")
    except OSError:
        return 0.0
    return int(rest.split()[0]) / 1024 if rest else 0.0


def main() -> None:
    """Measure, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=4096)
    arguments = parser.parse_args()
    rows = []
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.jsonl"
            write_text(path, megabytes)
            out = Path(folder) / "store"
            row = measure(path, out, megabytes, arguments.workers, arguments.vocabulary)
        rows.append(row)
        print(
            f"{row.megabytes:5} MB  {row.seconds:7.1f} s  {row.megabytes_per_second:5.1f} MB/s  "
            f"{row.tokens_per_second:9,.0f} tokens/s  main {row.main_mib:.0f} MiB  "
            f"worker {row.worker_mib:.0f} MiB"
        )
    command = shlex.join(["python", "benchmarks/prepare.py", *sys.argv[1:]])
    record("prepare", rows, command, ["tokenizers", "numpy", "pyarrow"])


if __name__ == "__main__":
    main()
