"""Runs that are killed, stopped, starved of disk, or spread over processes, and go on."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from didlm.data.tokenizer import Tokenizer
from didlm.pretrained import Model
from didlm.store.prepare import prepare_store
from didlm.train.checkpoint import find_checkpoint
from didlm.train.loop import train
from didlm.train.settings import Settings
from processes import run, run_on_a_small_disk, run_together, start, together

WORDS = ["red", "blue", "green", "fox", "owl", "runs", "sleeps", "and", "then"]
TIMINGS = ("tokens_per_second", "waiting", "memory_mib", "seconds")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(4, 12))) for _ in range(200)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    prepare_store([str(folder / "texts.jsonl")], folder / "store", vocabulary=300, workers=0)
    return folder / "store"


def settings(store: Path, **changes) -> Settings:
    return Settings().changed(
        {
            "data": str(store),
            "steps": 24,
            "batch": 8,
            "validate_every": 8,
            "valid": "0.2",
            "valid_documents": 10,
            "samples": 1,
            "sample_steps": 2,
            "log_every": 1,
            "max_length": 40,
            "dropout": 0.1,
            "checkpoint_every": 3,
            "precision": "fp32",
        }
        | changes
    )


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {name: v for name, v in json.loads(line).items() if name not in TIMINGS} for line in lines
    ]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in metrics(folder) if line["kind"] == "train"]


def resumptions(folder: Path) -> list[int]:
    run = json.loads((folder / "run.json").read_text())
    return [resumption["step"] for resumption in run.get("resumed", [])]


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit: the model, the figures, what was written, the state at the end."""
    for file in ("model.safetensors", "config.json", "tokenizer.json", "README.md"):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    assert metrics(one) == metrics(other)
    for samples in (one / "samples").iterdir():
        assert samples.read_text() == (other / "samples" / samples.name).read_text()
    first, second = (find_checkpoint(folder, print) for folder in (one, other))
    assert first is not None
    assert second is not None
    assert first.progress | {"seconds": 0} == second.progress | {"seconds": 0}
    for file in first.folder.glob("__*"):
        assert file.read_bytes() == (second.folder / file.name).read_bytes()


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(settings(store), folder)
    return folder


def kill_often(settings: Settings, folder: Path, times: int, seed: int, longest: float) -> None:
    """SIGKILL at random moments, and at last to the end."""
    rng = random.Random(seed)
    for _ in range(times):
        child = start(folder.parent, run, settings, folder)
        time.sleep(rng.uniform(0.05, longest))
        assert child.process.is_alive()
        child.kill()
    assert start(folder.parent, run, settings, folder).end() == "trained"


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_were_not(
    store, whole, tmp_path
) -> None:
    kill_often(settings(store), tmp_path / "run", times=3, seed=0, longest=0.5)
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.long
def test_ten_random_kills(store, tmp_path) -> None:
    long = settings(store, steps=300, validate_every=50)
    train(long, tmp_path / "whole")
    for seed in range(1, 4):
        folder = tmp_path / f"run-{seed}"
        kill_often(long, folder, times=10, seed=seed, longest=1.5)
        assert any(step > 0 for step in resumptions(folder))
        assert_same_run(tmp_path / "whole", folder)


def test_killed_after_a_checkpoint_it_really_resumes(store, whole, tmp_path) -> None:
    folder = tmp_path / "run"
    child = start(tmp_path, run, settings(store), folder)
    while not (folder / "checkpoints" / "step-00000003").exists():
        time.sleep(0.01)
    child.kill()
    assert start(tmp_path, run, settings(store), folder).end() == "trained"
    (step,) = resumptions(folder)
    assert 0 < step < 24
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)  # it goes on from where the first part was
    assert_same_run(whole, folder)


@pytest.mark.long
def test_ten_kills_of_the_command_with_workers(store, tmp_path) -> None:
    """As a user runs it; the workers of a loader end with it."""
    command = [sys.executable, "-m", "didlm", "train", "--data", str(store), "--steps", "120"]
    for name, value in vars(settings(store, workers=2, validate_every=50)).items():
        if name not in ("data", "steps", "init"):
            command += ["--set", f"{name}={value}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, "--out", str(whole)], check=True, env=environment)
    rng = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen([*command, "--out", str(killed), "--resume"], env=environment)
        time.sleep(rng.uniform(4, 14))
        process.kill()
        process.wait()
        time.sleep(0.5)
        assert not workers_of(process.pid)
    subprocess.run([*command, "--out", str(killed), "--resume"], check=True, env=environment)
    assert any(step > 0 for step in resumptions(killed))
    assert_same_run(whole, killed)


def workers_of(parent: int) -> list[str]:
    """Command lines of processes that name a parent that is gone."""
    lines = [p.read_bytes().decode(errors="replace") for p in Path("/proc").glob("[0-9]*/cmdline")]
    return [line for line in lines if f"parent_pid={parent}," in line or f"fd={parent}," in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_saves_and_goes_on_later(store, whole, tmp_path, number) -> None:
    folder = tmp_path / "run"
    child = start(tmp_path, run, settings(store), folder)
    while not (folder / "metrics.jsonl").exists() or not losses(folder):
        time.sleep(0.01)
    os.kill(child.process.pid, number)
    said = child.end()
    assert said.startswith("Interrupted: stopped at step ")
    assert said.endswith(f"of 24, as asked; go on with: didlm train --out {folder} --resume")
    step = int(said.split()[4])
    assert step < 24
    assert (folder / "checkpoints" / f"step-{step:08d}").is_dir()
    assert Model.from_pretrained(folder).generate(steps=2)  # it can be used already
    assert start(tmp_path, run, settings(store), folder).end() == "trained"
    assert resumptions(folder) == [step]
    assert_same_run(whole, folder)


def test_the_command_ends_with_a_code_of_its_own(store, tmp_path) -> None:
    command = [sys.executable, "-m", "didlm", "train", "--data", str(store), "--out"]
    command += [str(tmp_path / "run"), "--set", "max_length=40", "--steps", "100000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.05)
    process.terminate()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 75
    assert "as asked; go on with: didlm train" in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def short(store, tmp_path_factory) -> Path:
    """A run that was stopped with two checkpoints."""
    folder = tmp_path_factory.mktemp("short") / "run"
    child = start(folder.parent, run, settings(store), folder)
    while not (folder / "checkpoints" / "step-00000006").exists():
        time.sleep(0.005)
    child.kill()
    for extra in sorted((folder / "checkpoints").glob("step-*"))[2:]:
        shutil.rmtree(extra)
    return folder


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda c: flip(c / "__0_0.distcp"), "__0_0.distcp has been altered"),
        (lambda c: os.truncate(c / "__0_0.distcp", 1000), "__0_0.distcp has 1000 bytes and not "),
        (lambda c: flip(c / ".metadata"), ".metadata has been altered"),
        (lambda c: (c / ".metadata").unlink(), ".metadata is missing"),
        (lambda c: (c / "checkpoint.json").write_text("{"), "checkpoint.json: "),
        (
            lambda c: (c / "checkpoint.json").write_text(
                (c / "checkpoint.json").read_text().replace('"skipped": 0', '"skipped": 1')
            ),
            "checkpoint.json has been altered",
        ),
    ],
)
def test_a_damaged_checkpoint_is_detected_and_the_one_before_it_used(
    short, tmp_path, harm, words
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    before, last = sorted((folder / "checkpoints").glob("step-*"))
    harm(last)
    said: list[str] = []
    found = find_checkpoint(folder, said.append)
    assert found is not None
    assert found.folder == before
    (sentence,) = said
    assert sentence.startswith(f"the checkpoint {last.name} is damaged ({words}")
    assert sentence.endswith("trying the one before it")


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    store, whole, short, tmp_path, capfd
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    before, last = sorted((folder / "checkpoints").glob("step-*"))
    flip(last / "__0_0.distcp")
    assert start(tmp_path, run, settings(store), folder).end() == "trained"
    said = capfd.readouterr().err
    assert f"{last.name} is damaged" in said
    assert f"resumed at step {int(before.name.removeprefix('step-'))}" in said
    assert_same_run(whole, folder)


def test_a_damaged_checkpoint_does_not_outlive_the_good_ones(store, short, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    flip(folder / "checkpoints" / "step-00000006" / "__0_0.distcp")
    few = settings(store, steps=5, keep_checkpoints=1, checkpoint_every=1)
    assert start(tmp_path, run, few, folder).end() == "trained"
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["step-00000005"]
    assert start(tmp_path, run, settings(store), folder).end() == "trained"


def test_two_runs_keep_out_of_each_others_way(store, tmp_path) -> None:
    folder = tmp_path / "run"
    child = start(tmp_path, run, settings(store, steps=2000), folder)
    while not (folder / "metrics.jsonl").exists():
        time.sleep(0.01)
    with pytest.raises(ValueError, match="another process is training in"):
        train(settings(store, steps=2000), folder, resume=True)
    child.kill()


def test_what_is_there_is_not_trained_over(store, whole, tmp_path) -> None:
    shutil.copytree(store, tmp_path / "store")
    with pytest.raises(ValueError, match="store holds a token store already"):
        train(settings(store), tmp_path / "store", resume=True)
    shutil.copytree(whole, tmp_path / "model")
    (tmp_path / "model" / "run.json").unlink()
    with pytest.raises(ValueError, match="model holds a model already"):
        train(settings(store), tmp_path / "model")


def test_a_folder_that_not_all_processes_see_is_refused(store, tmp_path) -> None:
    """Here by a relative path and different working folders."""

    def elsewhere(rank: int) -> str:
        place = tmp_path / str(rank)
        place.mkdir()
        os.chdir(place)
        return run(settings(store), Path("run"))

    sentence = (
        "ValueError: process 1 does not see the folder run of the first: choose one on a disk that "
        "all share"
    )
    assert together(tmp_path, 2, elsewhere) == [sentence] * 2


def test_checkpoints_that_are_all_damaged_or_newer_are_not_overwritten(
    store, short, tmp_path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    for checkpoint in (folder / "checkpoints").glob("step-*"):
        (checkpoint / "checkpoint.json").unlink()
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole: remove that folder"):
        train(settings(store), folder, resume=True)
    newer = {"format": 2, "sha256": ""}
    (checkpoint / "checkpoint.json").write_text(json.dumps(newer))
    with pytest.raises(ValueError, match="has format 2, newer than 1, which this didlm reads"):
        find_checkpoint(folder, print)


def test_where_nothing_was_begun_or_saved_a_run_starts_afresh(
    store, whole, tmp_path, capfd
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "checkpoints")
    for begun in (folder, tmp_path / "new"):
        train(settings(store), begun, resume=True)
        assert "there is no checkpoint yet: starting afresh" in capfd.readouterr().err
        assert_same_run(whole, begun)
    train(settings(store), folder, resume=True)
    assert "all of its 24 steps have been taken" in capfd.readouterr().err


def test_a_full_disk_stops_with_a_sentence_and_the_last_good_checkpoint(
    store, short, whole, tmp_path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    said = start(tmp_path, run_on_a_small_disk, settings(store), folder, 200_000).end()
    assert said == (
        f"TrainingStopped: training stopped at step 8: {folder}/model.safetensors: File too large; "
        "when that is mended, go on from the last good checkpoint with: didlm train --out "
        f"{folder} --resume"
    )
    later = settings(store, validate_every=24)
    said = start(tmp_path, run_on_a_small_disk, later, folder, 200_000).end()
    assert said.startswith("TrainingStopped: the checkpoint of step 9 could not be written in ")
    assert said.endswith("; the last good one is step-00000006")
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {
        "step-00000003",
        "step-00000006",
    }
    assert start(tmp_path, run, settings(store), folder).end() == "trained"
    assert_same_run(whole, folder)


def test_a_resumed_run_is_the_same_run(store, short, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    with pytest.raises(ValueError, match="seed was 0 when the run began and cannot become 1"):
        train(settings(store, seed=1), folder, resume=True)
    with pytest.raises(ValueError, match="holds a run already: choose another folder"):
        train(settings(store), folder)
    record = json.loads((folder / "run.json").read_text())
    record["data"]["fingerprint"] = "other"
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="the data are not those with which the run in"):
        train(settings(store), folder, resume=True)
    (folder / "run.json").write_text("{")
    with pytest.raises(ValueError, match="run.json is damaged"):
        train(settings(store), folder, resume=True)


def test_another_number_of_threads_is_noted(store, short, tmp_path, capfd) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short, folder)
    record = json.loads((folder / "run.json").read_text())
    record["hardware"]["threads"] = 7
    (folder / "run.json").write_text(json.dumps(record))
    train(settings(store, steps=7), folder, resume=True)
    assert "began with 7 threads and goes on with 1" in capfd.readouterr().err


def test_a_store_of_another_tokenizer_is_refused(store, whole, tmp_path) -> None:
    Tokenizer.train_bpe(["other words", "other words"], 280).save(tmp_path / "other")
    with pytest.raises(ValueError, match="was prepared with another tokenizer than"):
        train(settings(store, tokenizer=str(tmp_path / "other")), tmp_path / "run")
    (tmp_path / "texts.jsonl").write_text('{"text": "red fox"}\n{"text": "blue owl"}\n' * 9)
    prepare_store([str(tmp_path / "texts.jsonl")], tmp_path / "store", vocabulary=270, workers=0)
    with pytest.raises(ValueError, match="was prepared with another tokenizer than"):
        train(settings(tmp_path / "store", init=str(whole)), tmp_path / "run")
    with pytest.raises(ValueError, match="was prepared with another tokenizer than"):
        train(settings(store, valid=str(tmp_path / "store")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_checkpoints_come_by_seconds_too_and_old_ones_go(store, tmp_path) -> None:
    changes = {"checkpoint_every": 0, "checkpoint_seconds": 1e-6, "keep_checkpoints": 3}
    child = start(tmp_path, run, settings(store, **changes), tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    most = 0
    while child.process.is_alive():
        there = list(folder.glob("step-*")) if folder.exists() else []
        most = max(most, len(there))
        time.sleep(0.01)
    assert child.end() == "trained"
    assert 2 <= most <= 4  # the oldest goes after the newest has come
    assert [p.name for p in folder.iterdir()] == ["step-00000024"]


# Muon makes updates orthogonal in 16 bits, which magnifies what rounding does to gradients: at ten
# times this learning rate its losses differ by 4e-5 after five steps, those of AdamW by under 1e-5.
PLAIN = {
    "learning_rate": 3e-4,
    "dropout": 0.0,
    "schedule": "constant",
    "warmup": 1,
    "steps": 6,
    "validate_every": 6,
}


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory) -> dict[str, list[float]]:
    """The losses of single processes."""
    found = {}
    for optimiser in ("adamw", "muon"):
        folder = tmp_path_factory.mktemp("alone") / "run"
        train(settings(store, **PLAIN, optimiser=optimiser), folder)
        found[optimiser] = losses(folder)
    return found


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("distribution", ["ddp", "fsdp"])
def test_two_processes_learn_what_one_does(store, alone, tmp_path, distribution, optimiser) -> None:
    changes = PLAIN | {"distribution": distribution, "optimiser": optimiser}
    said = run_together(tmp_path, settings(store, **changes), tmp_path / "run", 2)
    assert said == ["trained"] * 2
    # Muon makes the faintest directions of a gradient as strong as the others, rounding included.
    rtol = 1e-4 if optimiser == "muon" else 1e-5
    np.testing.assert_allclose(losses(tmp_path / "run"), alone[optimiser], rtol=rtol)
    assert Model.from_pretrained(tmp_path / "run").generate(steps=2)


@pytest.mark.long
@pytest.mark.parametrize("distribution", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    "changes",
    [
        {"method": "did-fixed", "fixed_length": 20},
        {"method": "radd", "fixed_length": 20},
        {"method": "ilm"},
        {"method": "ar"},
        {"accumulate": 2},
        {"accumulate": 2, "freeze_embeddings": True},
        {"checkpointing": True},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_whatever_is_learnt_two_processes_learn_it_too(
    store, tmp_path, distribution, changes
) -> None:
    changes = PLAIN | {"optimiser": "adamw", "steps": 3} | changes
    train(settings(store, **changes), tmp_path / "alone")
    both = settings(store, **changes, distribution=distribution)
    assert run_together(tmp_path, both, tmp_path / "run", 2) == ["trained"] * 2
    rough = "precision" in changes
    np.testing.assert_allclose(
        losses(tmp_path / "run"), losses(tmp_path / "alone"), rtol=3e-2 if rough else 1e-5
    )


@pytest.mark.parametrize(("first", "then"), [("fsdp", "ddp"), ("ddp", "fsdp")])
def test_a_run_moves_from_two_processes_to_one_and_back(
    store, alone, tmp_path, first, then
) -> None:
    folder, changes = tmp_path / "run", PLAIN | {"optimiser": "adamw"}
    two = settings(store, **changes | {"distribution": first, "steps": 2})
    assert run_together(tmp_path, two, folder, 2) == ["trained"] * 2
    one = settings(store, **changes | {"distribution": "ddp", "steps": 4})
    assert start(tmp_path, run, one, folder).end() == "trained"
    two = settings(store, **changes | {"distribution": then})
    assert run_together(tmp_path, two, folder, 2) == ["trained"] * 2
    assert resumptions(folder) == [2, 4]
    np.testing.assert_allclose(losses(folder), alone["adamw"], rtol=1e-5)


def test_uneven_batches_are_made_even(store, alone, tmp_path, monkeypatch) -> None:
    """Where the share of one process does not fit one batch and that of the other does."""
    from didlm.data.batch import Budget
    from didlm.train import loop

    def tight(corpus, sequences):
        rows = 2 * corpus.longest
        return Budget(sequences, rows, rows, 2 * rows)

    monkeypatch.setattr(loop, "budget_for", tight)
    changes = PLAIN | {"optimiser": "adamw", "distribution": "fsdp"}
    said = run_together(tmp_path, settings(store, **changes), tmp_path / "run", 2)
    assert said == ["trained"] * 2
    np.testing.assert_allclose(losses(tmp_path / "run"), alone["adamw"], rtol=1e-5)


def test_a_batch_that_processes_cannot_share_is_refused(store, tmp_path) -> None:
    said = run_together(tmp_path, settings(store, batch=9), tmp_path / "run", 2)
    assert (
        said
        == ["ValueError: batch 9 cannot be divided into 1 equal parts on each of 2 processes"] * 2
    )


@pytest.mark.long
@pytest.mark.parametrize("distribution", ["ddp", "fsdp"])
def test_torchrun(store, alone, tmp_path, distribution) -> None:
    """As a user runs it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
    command += ["didlm", "train", "--data", str(store), "--out", str(tmp_path / "run")]
    changes = PLAIN | {"distribution": distribution, "optimiser": "adamw"}
    for name, value in vars(settings(store, **changes)).items():
        if name not in ("data", "init"):
            command += ["--set", f"{name}={value}"]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    np.testing.assert_allclose(losses(tmp_path / "run"), alone["adamw"], rtol=1e-5)


def test_weights_hold_still_where_embeddings_are_frozen(store, whole, tmp_path) -> None:
    changes = {"init": str(whole), "freeze_embeddings": True, "steps": 3, "average": 0.0}
    train(settings(store, **changes), tmp_path / "run")
    before, after = (load_file(f / "model.safetensors") for f in (whole, tmp_path / "run"))
    same = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert same == {"token_embedding.weight", "token_head"}
    assert math.isfinite(losses(tmp_path / "run")[-1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("distribution", ["ddp", "fsdp"])
def test_a_run_on_a_gpu_goes_on(store, tmp_path, distribution) -> None:
    """Sums on a GPU come in any order, so the weights are the same up to rounding only."""
    changes = PLAIN | {"device": "cuda", "precision": "bf16", "distribution": distribution}
    train(settings(store, **changes), tmp_path / "whole")
    train(settings(store, **changes | {"steps": 3}), tmp_path / "parts")
    train(settings(store, **changes), tmp_path / "parts", resume=True)
    assert resumptions(tmp_path / "parts") == [3]
    np.testing.assert_allclose(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=1e-3)
    assert Model.from_pretrained(tmp_path / "parts", "cuda").generate(steps=2)
