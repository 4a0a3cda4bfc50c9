"""Training in processes of their own, which tests may kill.

They are forked, so that they start at once: importing everything anew would take seconds.
"""

import os
import pickle
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from didlm.train.loop import Interrupted, TrainingStopped, train
from didlm.train.settings import Settings


@dataclass
class Child:
    """A process that calls a function, and what became of it."""

    process: Any
    outcome: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def end(self) -> Any:
        """What the function has returned; an exception in its own words."""
        self.process.join(300)
        if self.process.is_alive():
            self.kill()
            raise AssertionError("a process did not end")
        return pickle.loads(self.outcome.read_bytes())


def start(folder: Path, function: Callable[..., Any], *arguments: Any, **environment: str) -> Child:
    """Call a function in a process of its own."""
    outcome = folder / f"outcome-{time.monotonic_ns()}"

    def call() -> None:
        os.environ.update(environment)
        torch.set_num_threads(1)
        try:
            end(function(*arguments))
        except BaseException as error:
            if not isinstance(error, (ValueError, Interrupted, TrainingStopped)):
                traceback.print_exc()
            end(f"{type(error).__name__}: {error}")

    def end(result: Any) -> None:
        outcome.write_bytes(pickle.dumps(result))
        # At once: what is left of a process group may wait for others that have ended before.
        os._exit(0)

    process = get_context("fork").Process(target=call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: none matters
        process.start()
    return Child(process, outcome)


def run(settings: Settings, folder: Path, resume: bool = True) -> str:
    """Train, and say so."""
    train(settings, folder, resume)
    return "trained"


def run_on_a_small_disk(settings: Settings, folder: Path, largest: int) -> str:
    """The same where no file can be larger than so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    return run(settings, folder)


def run_together(here: Path, settings: Settings, folder: Path, processes: int) -> list[str]:
    """Train with several processes."""
    return together(here, processes, lambda rank: run(settings, folder))


def together(here: Path, processes: int, function: Callable[[int], str]) -> list[str]:
    """Call a function with its rank in several processes, which meet as torchrun lets them.

    The meeting place is kept by this process, so that its port is certainly a free one.
    """
    place = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(place.port),
        "WORLD_SIZE": str(processes),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    children = [
        start(here, function, rank, **meeting, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(processes)
    ]
    return [child.end() for child in children]
