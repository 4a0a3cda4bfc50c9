"""What is put under load: a service behind HTTP, or its engine alone, in this process.

The engine needs none of the service's libraries, so it can be measured where they are missing.
"""

import argparse
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import didlm
from didlm.generate.template import Blank
from didlm.pretrained import Model
from didlm.serve.engine import Engine, Event, Failed, Full
from didlm.serve.limits import Limits
from didlm.serve.metrics import Metrics
from load import Ask, Connect, over_http

PROMPT = "Once upon a time"
PATIENCE = 3600.0  # seconds until a request is given up: how long it takes is measured


@dataclass(frozen=True)
class Served:
    """Something that writes stories for many clients, each with the seed of its number."""

    connect: Connect
    count: Callable[[], dict[str, float]]  # what it has done so far, and its memory in MiB


@contextmanager
def service(arguments: argparse.Namespace, batch: int) -> Iterator[Served]:
    """`didlm serve` in a process of its own, on a free port."""
    options = {
        "model": arguments.model,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "port": 0,
        "batch": batch,
        "waiting": 2 * batch,
        "seconds": PATIENCE,
    }
    command = [sys.executable, "-m", "didlm", "serve"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}

    def asked(number: int) -> tuple[str, dict[str, object]]:
        return "/v1/completions", {"prompt": PROMPT, "seed": number, "steps": arguments.steps}

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            port = int(process.stderr.readline().rsplit(":", 1)[1])
            threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would wait
            _wait_for(port)
            yield Served(
                over_http(port, asked), lambda: _counted(_metrics(port)) | _memory(process.pid)
            )
        finally:
            process.terminate()


@contextmanager
def engine(arguments: argparse.Namespace, batch: int) -> Iterator[Served]:
    """The engine of such a service, whose clients are threads."""
    model = didlm.load(arguments.model, arguments.device, arguments.dtype)
    engine = Engine(model, Limits(batch=batch, waiting=2 * batch, seconds=PATIENCE), Metrics())
    ask = _asking(engine, model, arguments.steps)
    engine.start()
    try:
        yield Served(
            lambda: nullcontext(ask),
            lambda: _counted(engine.metrics.text()) | _memory(os.getpid()),
        )
    finally:
        engine.stop()


def _asking(engine: Engine, model: Model, steps: int) -> Ask:
    def ask(number: int) -> tuple[int, str]:
        told = queue.SimpleQueue[Event]()
        task = model.task([[PROMPT, Blank(), ""]], 1, number, {"steps": steps})
        try:
            engine.submit(engine.prepare(task, told.put))
        except Full:
            return 429, ""
        end = told.get()  # the only event, for nobody watches it grow
        return (end.status, end.reason) if isinstance(end, Failed) else (200, "")

    return ask


def _wait_for(port: int, seconds: float = 120) -> None:
    """Until the service answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            _metrics(port)
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the service does not answer")


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def _counted(metrics: str) -> dict[str, float]:
    """Figures that have no labels."""
    return {name: float(n) for name, n in re.findall(r"^(\w+) ([-+.e\d]+)$", metrics, re.M)}


def _memory(process: int) -> dict[str, float]:
    """The resident memory of a process in MiB; not a number outside Linux."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {"mib": float("nan")}
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return {"mib": int(found[1]) / 1024 if found else float("nan")}
