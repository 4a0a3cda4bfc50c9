"""How many texts does a service write, batched and one at a time, and how busy is the machine?

    python benchmarks/serving.py [--model NAME] [--batches 16 1] [--clients 64] [--seconds 60]
        [--device cuda --dtype bf16]

Starts `didlm serve` on a free port of 127.0.0.1 and lets many clients ask it for completions of one
prompt at the same time, each with a seed of its own, and again as soon as they are answered. After
a warm-up, takes what the service itself counts within the given seconds: finished texts, inserted
tokens, and rows of texts that the network has read. Latencies are those of the clients, from the
request to the whole answer, waiting included; who is turned away (429) asks again.

The ceiling is what the network alone reads on this machine in a loop: rows per second in batches
of as many texts of the mean length, without sampling, HTTP, or anybody waiting. On a machine that
others use as well, set OMP_WAIT_POLICY=passive: threads that wait for each other otherwise spin.

Prints a table and appends its rows to benchmarks/results/serving.csv.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import didlm
from didlm.packed import pack
from load import load
from recording import record

PROMPT = "Once upon a time"


@dataclass(frozen=True)
class Row:
    """What a service did with a batch size."""

    model: str
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
        record("serving", rows, command, ["torch", "fastapi", "uvicorn"])


def measure(arguments: argparse.Namespace, batch: int) -> Row:
    """One service under load."""
    options = {
        "model": arguments.model,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "port": 0,
        "batch": batch,
        "waiting": 2 * batch,
        "seconds": 3600,  # what is measured here is how long it takes
    }
    command = [sys.executable, "-m", "didlm", "serve"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as service:
        assert service.stderr is not None
        address = service.stderr.readline()
        port = int(address.rsplit(":", 1)[1])
        threading.Thread(target=service.stderr.read, daemon=True).start()  # or it would wait
        wait_for(port)
        counted: list[dict[str, float]] = []

        def count() -> None:
            for pause in (arguments.warm_up, arguments.seconds):
                time.sleep(pause)
                counted.append({**metrics(port), "mib": memory(service.pid), "at": time.time()})

        counting = threading.Thread(target=count, daemon=True)
        counting.start()
        seen = load(
            port,
            arguments.clients,
            arguments.warm_up + arguments.seconds,
            lambda number: (
                "/v1/completions",
                {"prompt": PROMPT, "seed": number, "steps": arguments.steps},
            ),
        )
        counting.join()
        service.terminate()
    began, ended = counted
    change = {name: ended[name] - began[name] for name in ended}
    seconds = change["at"]
    passes = max(1.0, change["didlm_passes_total"])
    texts = change["didlm_text_passes_total"] / passes
    rows = change["didlm_rows_total"]
    limit = ceiling(arguments, max(1, round(texts)), rows / max(1.0, passes * texts))
    late = np.quantile(seen.latencies or [float("nan")], [0.5, 0.9, 0.99]).tolist()
    for problem in seen.failed[:5]:
        print(f"failed: {problem}")
    return Row(
        model=Path(arguments.model).name,
        device=torch.cuda.get_device_name() if "cuda" in arguments.device else "cpu",
        dtype=arguments.dtype,
        threads=arguments.threads,
        parameters=sum(p.numel() for p in didlm.load(arguments.model).network.parameters()),
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
def ceiling(arguments: argparse.Namespace, texts: int, rows: float, seconds: float = 5.0) -> float:
    """Rows per second of the network alone, in batches of so many texts of so many rows."""
    model = didlm.load(arguments.model, arguments.device, arguments.dtype)
    length = max(1, round(rows) - 1)
    x_t = pack([np.full(length, 1)] * texts, model.tokenizer.bos).to(model.device)
    time_left = torch.full((texts,), 0.5, device=model.device)

    def read() -> None:
        model.network(x_t, time_left, length + 1)
        if model.device.type == "cuda":
            torch.cuda.synchronize()

    read()
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        read()
        calls += 1
    return calls * x_t.rows / (time.perf_counter() - began)


def wait_for(port: int, seconds: float = 120) -> None:
    """Until the service answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            metrics(port)
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the service does not answer")


def metrics(port: int) -> dict[str, float]:
    """What the service counts, where it has no labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {name: float(n) for name, n in re.findall(r"^(\w+) ([-+.e\d]+)$", text, re.M)}


def memory(process: int) -> float:
    """The resident memory of a process in MiB; not a number outside Linux."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return float("nan")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else float("nan")


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
        console.print(f"batched against one at a time: {gain:.2f} times the rows per second")


if __name__ == "__main__":
    main()
