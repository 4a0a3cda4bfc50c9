"""How many texts does a service write, batched and one at a time, and how busy is the machine?

    python benchmarks/serving.py [--model NAME] [--batches 16 1] [--clients 64] [--seconds 60]
        [--device cuda --dtype bf16] [--engine]

Starts `didlm serve` on a free port of 127.0.0.1 and lets many clients ask it for completions of one
prompt at the same time, each with a seed of its own, and again as soon as they are answered. With
`--engine` they are threads that ask the engine of such a service in this process, without HTTP and
its libraries. After a warm-up, takes what the service itself counts within the given seconds:
finished texts, inserted tokens, and rows of texts that the network has read. Latencies are those of
the clients, from the request to the whole answer, waiting included; who is turned away (429) asks
again after a second.

The ceiling is what the network alone reads on this machine in a loop (on a GPU, where the engine
records what it does, as a recording): rows per second in batches of as many texts of the mean
length, without sampling, HTTP, or anybody waiting. On a machine that others use as well, set
OMP_WAIT_POLICY=passive: threads that wait for each other otherwise spin.

Prints a table and appends its rows to benchmarks/results/serving.csv.
"""

import argparse
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import didlm
from didlm.generate.scorer import NetworkScorer, scorer_of
from didlm.packed import pack
from didlm.pretrained import Model
from gpu import replayed
from load import load
from recording import record
from served import engine, service


@dataclass(frozen=True)
class Row:
    """What a service did with a batch size."""

    model: str
    through: str  # http, or the engine alone
    device: str
    dtype: str
    threads: int
    parameters: int
    batch: int
    clients: int
    steps: int
    seconds: float
    texts: int  # finished within the seconds
    turned_away: int  # 429s, of all requests
    failed: int  # of all requests
    texts_per_s: float
    tokens_per_s: float
    mean_batch: float  # texts in a pass
    rows_per_s: float
    ceiling_rows_per_s: float  # of the network alone
    of_ceiling: float
    s_50: float  # latencies
    s_90: float
    s_99: float
    mib_begin: float  # resident memory of the service, when counting begins
    mib_end: float


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="stories")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--engine", action="store_true", help="without HTTP, in this process")
    parser.add_argument("--no-record", action="store_true", help="only print")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for batch in arguments.batches:
        print(f"measuring batches of {batch}", flush=True)
        rows.append(measure(arguments, batch))
    show(rows)
    if not arguments.no_record:
        policy = os.environ.get("OMP_WAIT_POLICY")
        command = " ".join(["python benchmarks/serving.py", *sys.argv[1:]])
        command = f"OMP_WAIT_POLICY={policy} {command}" if policy else command
        packages = ["torch"] if arguments.engine else ["torch", "fastapi", "uvicorn"]
        record("serving", rows, command, packages)


def measure(arguments: argparse.Namespace, batch: int) -> Row:
    """One batch size under load."""
    counted: list[dict[str, float]] = []
    with (engine if arguments.engine else service)(arguments, batch) as served:

        def count() -> None:
            for pause in (arguments.warm_up, arguments.seconds):
                time.sleep(pause)
                counted.append({**served.count(), "at": time.time()})

        counting = threading.Thread(target=count, daemon=True)
        counting.start()
        seen = load(served.connect, arguments.clients, arguments.warm_up + arguments.seconds)
        counting.join()
    began, ended = counted
    change = {name: ended[name] - began[name] for name in ended}
    seconds = change["at"]
    passes = max(1.0, change["didlm_passes_total"])
    texts = change["didlm_text_passes_total"] / passes
    rows = change["didlm_rows_total"]
    model = didlm.load(arguments.model, arguments.device, arguments.dtype)
    limit = ceiling(
        model, max(1, round(texts)), rows / max(1.0, passes * texts), min(5.0, arguments.seconds)
    )
    late = np.quantile(seen.latencies or [float("nan")], [0.5, 0.9, 0.99]).tolist()
    for problem in seen.failed[:5]:
        print(f"failed: {problem}")
    return Row(
        model=Path(arguments.model).name,
        through="engine" if arguments.engine else "http",
        device=torch.cuda.get_device_name() if "cuda" in arguments.device else "cpu",
        dtype=arguments.dtype,
        threads=arguments.threads,
        parameters=sum(p.numel() for p in model.network.parameters()),
        batch=batch,
        clients=arguments.clients,
        steps=arguments.steps,
        seconds=seconds,
        texts=int(change["didlm_texts_total"]),
        turned_away=seen.turned_away,
        failed=len(seen.failed),
        texts_per_s=change["didlm_texts_total"] / seconds,
        tokens_per_s=change["didlm_tokens_total"] / seconds,
        mean_batch=texts,
        rows_per_s=rows / seconds,
        ceiling_rows_per_s=limit,
        of_ceiling=rows / seconds / limit,
        s_50=late[0],
        s_90=late[1],
        s_99=late[2],
        mib_begin=began["mib"],
        mib_end=ended["mib"],
    )


@torch.no_grad()
def ceiling(model: Model, texts: int, rows: float, seconds: float) -> float:
    """Rows per second of the network alone, in batches of so many texts of so many rows."""
    length = max(1, round(rows) - 1)
    x_t = pack([np.full(length, 1)] * texts, model.tokenizer.bos).to(model.device)
    time_left = torch.full((texts,), 0.5, device=model.device)

    def read() -> None:
        model.network(x_t, time_left, length + 1)

    scorer = scorer_of(model.network, length)
    if isinstance(scorer, NetworkScorer) and scorer.recordable:
        return 1000 * x_t.rows / replayed(read)  # as it reads in the engine too
    read()
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        read()
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        calls += 1
    return calls * x_t.rows / (time.perf_counter() - began)


def show(rows: list[Row]) -> None:
    """Print the table, and how far batches are ahead."""
    first = rows[0]
    table = Table(
        title=f"{first.model} ({first.parameters / 1e6:.1f} M), {first.steps} steps, "
        f"{first.clients} clients, {first.device}, {first.threads} threads"
    )
    names = ("batch", "texts/s", "tokens/s", "in a pass", "rows/s", "of ceiling", "s 50 %", "90 %")
    for name in (*names, "99 %", "429", "failed", "MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.batch),
            f"{row.texts_per_s:.3f}",
            f"{row.tokens_per_s:.1f}",
            f"{row.mean_batch:.1f}",
            f"{row.rows_per_s:,.0f}",
            f"{100 * row.of_ceiling:.0f} %",
            f"{row.s_50:.1f}",
            f"{row.s_90:.1f}",
            f"{row.s_99:.1f}",
            str(row.turned_away),
            str(row.failed),
            f"{row.mib_begin:.0f} - {row.mib_end:.0f}",
        )
    console = Console(width=120)
    console.print(table)
    if rows[-1].batch == 1 and rows[-1].rows_per_s:
        # A text takes as many rows in any batch, and of rows there are enough to count.
        gain = first.rows_per_s / rows[-1].rows_per_s
        texts = first.texts_per_s / max(rows[-1].texts_per_s, 1e-9)
        console.print(
            f"batched against one at a time: {gain:.2f} times the rows per second, "
            f"{texts:.2f} times the texts"
        )


if __name__ == "__main__":
    main()
