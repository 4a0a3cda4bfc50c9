"""A store that is killed while it is made is not there, and the next one is made as if nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from didlm.data import stories
from didlm.data.tokenizer import Tokenizer
from didlm.store.format import Store

STORIES = stories.training_stories(500, 0)
LINUX = Path("/proc/self/stat").exists()


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    Tokenizer.train_bpe(STORIES, 300).save(folder)
    with (folder / "a.jsonl").open("w") as file:
        for copy in range(4):
            file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in STORIES)
    return folder


def start(source: Path, tokenizer: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from didlm.cli import main; main()", "prepare", str(source)]
    command += ["--tokenizer", str(tokenizer), "--out", str(out), "--workers", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)


def at_work(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state not in "ZX":
            found.append(path.parent.name)
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, but not its workers: they must see for themselves that it is gone."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while LINUX and at_work(process.pid):
        assert time.monotonic() < deadline, "workers outlive the process that started them"
        time.sleep(0.05)


def kill_at_random_moments(texts: Path, out: Path, times: int) -> None:
    started = time.monotonic()
    assert start(texts / "a.jsonl", texts, out / "whole").wait() == 0
    seconds = time.monotonic() - started
    expected = Store.open(out / "whole").manifest
    moments = random.Random(0)
    unfinished, number = 0, 0
    while number < times or (not unfinished and number < times + 20):
        target = out / f"store{number}"
        number += 1
        process = start(texts / "a.jsonl", texts, target)
        time.sleep(moments.uniform(0.1, 1) * seconds)
        kill(process)
        if target.exists():
            Store.open(target).verify()
            seconds *= 0.7  # the first was slower, and moments are to lie within
            continue
        unfinished += 1
        assert start(texts / "a.jsonl", texts, target).wait() == 0
        store = Store.open(target)
        store.verify()
        assert store.manifest.fingerprint == expected.fingerprint
    assert unfinished
    assert not list(out.glob(".*"))


def test_a_store_is_never_half_written(texts, tmp_path) -> None:
    kill_at_random_moments(texts, tmp_path, times=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_clears_away_what_is_half_done(texts, tmp_path, number) -> None:
    # Many words, so that learning a tokenizer takes longer than the test waits.
    words = (f"{number:x}{'abcdefgh'[number % 8]} " * 3 for number in range(10**6, 10**6 + 200_000))
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(words))
    command = [sys.executable, "-c", "from didlm.cli import main; main()", "prepare"]
    command += [str(tmp_path / "a.txt"), "--out", str(tmp_path / "store")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob(".store*")):
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said.splitlines()[-1] == "didlm: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.long
def test_a_store_is_never_half_written_at_ten_moments(texts, tmp_path) -> None:
    kill_at_random_moments(texts, tmp_path, times=10)


@pytest.mark.long
def test_a_gigabyte_is_prepared_in_bounded_memory_and_again_after_a_kill(texts, tmp_path) -> None:
    sizes = {"small": 100, "large": 1000}  # megabytes
    peaks: dict[str, int] = {}
    whole = 0  # bytes of tokens in the small store
    for name, megabytes in sizes.items():
        path, out = tmp_path / f"{name}.jsonl", tmp_path / name
        with path.open("w") as file:
            copy = 0
            while file.tell() < megabytes * 10**6:
                file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in STORIES)
                copy += 1
        if name == "large":
            process = start(path, texts, out)
            while written(tmp_path) < 5 * whole:  # of ten times as much
                time.sleep(0.2)
            kill(process)
            assert not out.exists()
        process = start(path, texts, out)
        peaks[name] = highest_memory(process)
        assert process.returncode == 0
        assert not list(tmp_path.glob(".*"))
        store = Store.open(out)
        store.verify()
        assert store.manifest.counts.documents == copy * len(STORIES)
        whole = sum(file.stat().st_size for file in store.token_files)
        path.unlink()
    if LINUX:
        assert peaks["large"] < 1.3 * peaks["small"]
        assert peaks["large"] < 1 << 20  # kB, of all processes together


def written(folder: Path) -> int:
    """Bytes of tokens in a store that is being made."""
    return sum(file.stat().st_size for file in folder.glob(".*/*.tokens.npy*"))


def highest_memory(process: subprocess.Popen[bytes]) -> int:
    """The sum of what the processes of a group held at their peaks, in kB, when they end."""
    peaks: dict[str, int] = {}
    while process.poll() is None:
        for number in at_work(process.pid) if LINUX else []:
            try:
                status = Path(f"/proc/{number}/status").read_text()
            except OSError:
                continue
            if "VmHWM:" in status:
                peaks[number] = int(status.partition("VmHWM:")[2].split()[0])
        time.sleep(0.5)
    return sum(peaks.values())
