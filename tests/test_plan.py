"""The plan of a training run: what is counted is what happens, and what was measured is met."""

import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.batch import make_batch
from didlm.model.config import PRESETS
from didlm.model.flops import training_flops
from didlm.model.transformer import Network, non_embedding_parameters
from didlm.plan.calibration import Rates, calibrated, calibration
from didlm.plan.case import Case, expected_load
from didlm.plan.counting import kernels_of, step_flops, weights_of, work_of
from didlm.plan.memory import memory_of
from didlm.plan.planning import plan_of
from didlm.train import state
from didlm.train.settings import Settings

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
TOLERANCE = 0.15


@pytest.fixture
def calibrate(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("recording", "recorded", "calibrate")
    yield importlib.import_module("calibrate")
    for name in names:
        sys.modules.pop(name, None)


CASES = [
    Case("did-fixed", "tiny", 256, 64, 4096),
    Case("radd", "tiny", 256, 64, 4096),
    Case("ar", "tiny", 256, 64, 4096),
    Case("did", "tiny", 512, 128, 4096, mean_length=120),
    Case("ilm", "tiny", 512, 128, 4096, mean_length=120),
    Case("ar", "tiny", 512, 128, 4096, mean_length=120),
    Case("radd", "tiny", 256, 64, 4096, mean_length=120),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.mean_length}")
def test_the_load_is_that_of_sampled_batches(case) -> None:
    rng = np.random.default_rng(0)
    lengths = np.full(case.batch, case.context)
    if case.mean_length and case.method != "radd":
        lengths = np.clip(rng.gamma(5, case.mean_length / 5, case.batch), 10, case.context)
    texts = [rng.integers(1, case.vocabulary, int(length)) for length in lengths]
    batch = make_batch(case.rule.training_examples(texts, range(case.batch), seed=0))
    load, lengths = expected_load(case), batch.x_t.offsets.diff().double()
    assert load.rows == pytest.approx(batch.x_t.rows, rel=0.05)
    assert load.pairs == pytest.approx(float(lengths.square().sum()), rel=0.1)
    assert load.target_rows == pytest.approx(len(batch.target_rows), rel=0.06)
    assert step_flops(case) == pytest.approx(training_flops(case.config, batch), rel=0.05)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.mean_length}")
def test_the_spread_of_the_load_is_that_of_sampled_batches(case) -> None:
    rng = np.random.default_rng(0)
    case = replace(case, batch=16)
    rows = []
    for number in range(60):
        lengths = np.full(case.batch, case.context)
        if case.mean_length and case.method != "radd":
            lengths = np.clip(rng.gamma(5, case.mean_length / 5, case.batch), 0, case.context)
        texts = [rng.integers(1, case.vocabulary, int(length)) for length in lengths]
        numbers = range(number * case.batch, (number + 1) * case.batch)
        rows.append(make_batch(case.rule.training_examples(texts, numbers, seed=0)).x_t.rows)
    assert expected_load(case).spread == pytest.approx(np.std(rows), rel=0.3)


@pytest.mark.parametrize("preset", ["tiny", "mini"])
@pytest.mark.parametrize("method", ["did-fixed", "radd", "ar"])
def test_parameters_are_counted_as_they_are(preset, method) -> None:
    config = Case(method, preset, vocabulary=1000).config
    network = Network(config)
    weights = weights_of(config)
    assert weights.all == sum(p.numel() for p in network.parameters())
    assert weights.all - weights.tables == non_embedding_parameters(network)
    assert weights.block * config.layers <= weights.all - weights.tables


def test_the_papers_sizes_have_the_papers_parameters() -> None:
    """85, 302 and 708 million without tables, as its models have."""
    sizes = [("small", 85), ("medium", 302), ("large", 708)]
    for preset, millions in sizes:
        weights = weights_of(Case("did-fixed", preset).config)
        assert (weights.all - weights.tables) / 1e6 == pytest.approx(millions, rel=0.01)


def test_steps_are_captured_where_training_captures_them(monkeypatch) -> None:
    monkeypatch.setattr(state, "has_triton", lambda: True)
    network = SimpleNamespace(config=Case("radd", "tiny").config)
    for gpus, accumulate, checkpointing in [
        (1, 1, False),
        (2, 1, False),
        (1, 2, False),
        (1, 1, True),
    ]:
        case = Case("radd", gpus=gpus, accumulate=accumulate, checkpointing=checkpointing)
        settings = Settings(precision="bf16", accumulate=accumulate, checkpointing=checkpointing)
        world = SimpleNamespace(size=gpus)
        assert case.captured == state._can_be_captured(network, settings, world)


def test_memory_grows_with_what_it_should() -> None:
    case = Case("did-fixed", batch=64)
    total = memory_of(case).total
    twice = memory_of(replace(case, batch=128)).activations
    assert twice == pytest.approx(2 * memory_of(case).activations, rel=0.02)
    assert memory_of(replace(case, checkpointing=True)).total < 0.6 * total
    assert memory_of(replace(case, accumulate=8)).total < 0.5 * total
    two = memory_of(replace(case, gpus=2, batch=128))
    assert two.total - total == pytest.approx(4 * weights_of(case.config).all)  # sent
    numbers = weights_of(case.config)
    kept = 18 * numbers.all - 2 * (numbers.all - numbers.twins)
    assert memory_of(case).weights + memory_of(case).optimiser == kept
    muon = memory_of(replace(case, optimiser="muon"))
    assert memory_of(case).optimiser - muon.optimiser == 4 * numbers.inner


SMALL_CONFIG = Case("did-fixed").config


def test_a_tiny_batch_is_all_weights_and_gradients() -> None:
    memory, weights = memory_of(Case("did-fixed", batch=1, context=16)), weights_of(SMALL_CONFIG)
    assert memory.total == pytest.approx(20 * weights.all + 2 * weights.twins, rel=0.02)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_size_has_a_plan(preset) -> None:
    plan = plan_of(Case("did-fixed", preset), calibration())
    assert 0 < plan.step < 10
    assert plan.tokens_per_day == pytest.approx(64 * 1024 * 86_400 / plan.step)


def test_time_follows_the_work() -> None:
    gpu = calibration()
    one = plan_of(Case("did-fixed", batch=64), gpu)
    eight = plan_of(Case("did-fixed", batch=512, gpus=8), gpu)
    assert eight.parts == one.parts
    assert eight.sending == pytest.approx(2 * 7 / 8 * 4 * one.weights.all / 300e9)
    assert eight.step >= one.step + eight.sending
    assert plan_of(eight.case, gpu, link=30).sending == pytest.approx(10 * eight.sending)
    again = plan_of(Case("did-fixed", checkpointing=True), gpu)
    assert again.parts["products"] == pytest.approx(4 / 3 * one.parts["products"])
    assert again.parts["head"] == one.parts["head"]
    # Half the data sheet takes twice as long, but for the kernels' own time.
    half = plan_of(one.case, gpu.scaled(gpu.tflops / 2, gpu.bandwidth / 2, 80))
    started = gpu.rates.seconds({"kernels": kernels_of(work_of(one.case))})
    assert half.step == pytest.approx(2 * one.step - started)


def test_a_host_that_starts_every_kernel_can_be_the_slower_one() -> None:
    slow = replace(calibration(), host=1.0)
    plan = plan_of(Case("did-fixed", "tiny", batch=16, gpus=8), slow)
    assert plan.waits_for_host
    assert plan.step == plan.host
    assert plan_of(Case("did-fixed", "tiny", batch=2), slow).host is None


def test_recorded_steps_are_met(calibrate) -> None:
    """The newest captured step of every case, in time and in memory."""
    rows = calibrate.training_steps()
    is_provisional = calibration().fitted.get("provisional", False)
    assert is_provisional == (not rows), "run python benchmarks/calibrate.py"
    for row in rows:
        gpu = calibration(row["gpu"].split()[-1])
        check(calibrate, gpu, row)


def check(calibrate, gpu, row) -> None:
    time, memory = calibrate.errors(gpu, row)
    name = {key: row[key] for key in ("what", "method", "preset", "batch", "context", "vocabulary")}
    assert abs(time) < TOLERANCE, f"time of {name}: {time:+.0%}"
    assert abs(memory) < TOLERANCE, f"memory of {name}: {memory:+.0%}"


BASE = {"what": "fixed", "method": "did-fixed", "preset": "small", "batch": "64"}
BASE |= {"context": "1024", "vocabulary": "50257", "gpu": "NVIDIA H200", "torch": "2.11.0"}
BASE |= {"ceiling_tflops": "790"}
BASE |= {"date": "2026-11-16T00:00:00", "commit": "abc", "compiled": "False", "captured": "True"}
TRUTH = Rates(700, 400, 3, 4, 650, 3.5, 3.8, 0.25)


def made_up(calibrate) -> list[dict[str, str]]:
    """Rows as they would be recorded if the rates were these."""
    others = [
        {},
        {"method": "radd"},
        {"method": "ar"},
        {"preset": "medium"},
        {"preset": "large"},
        {"batch": "16"},
        {"context": "4096", "batch": "16"},
        {"vocabulary": "4096"},
        {"what": "variable", "method": "did", "vocabulary": "30522"},
        {"what": "variable", "method": "ar", "vocabulary": "30522"},
    ]
    gpu, rows = replace(calibration(), rates=TRUTH), []
    for other in others:
        row = BASE | other
        plan = plan_of(calibrate.case_of(row), gpu)
        parts = {f"{name}_ms": str(1e3 * value) for name, value in plan.parts.items()}
        row |= {name: parts[name] for name in ("attention_ms", "head_ms", "optimiser_ms")}
        row |= {"step_ms": str(1e3 * plan.step), "peak_gib": str(plan.memory.total / 2**30)}
        rows.append(row)
    return rows


def test_calibrating_finds_the_rates_behind_the_rows(calibrate) -> None:
    rows = made_up(calibrate)
    found = calibrate.fit("NVIDIA H200", rows, [])
    for name in ("product_flops", "attention_flops", "pass_bytes", "optimiser_bytes", "kernels"):
        assert getattr(found.rates, name) == pytest.approx(getattr(TRUTH, name), rel=0.05), name
    for row in rows:
        check(calibrate, found, row)
    assert found.fitted["worst_time"] <= 1
    assert found.host is None
    eager = rows[-2] | {"step_ms": "60"}
    kernels = kernels_of(work_of(calibrate.case_of(eager)))
    host = calibrate.fit("NVIDIA H200", rows, [eager, rows[0]]).host  # which does not count
    assert host == pytest.approx(kernels / 60)
    for column in ("step_ms", "peak_gib"):  # and the check can fail
        off = rows[0] | {column: str(1.25 * float(rows[0][column]))}
        with pytest.raises(AssertionError, match="-20%"):
            check(calibrate, found, off)


def test_only_the_newest_captured_rows_count(calibrate, tmp_path, monkeypatch) -> None:
    recorded = sys.modules["recorded"]
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    assert calibrate.training_steps() == []
    old = {"compiled": "False", "captured": ""}  # of a version that could not: it counts no more
    rows = [
        BASE | old,
        BASE | {"step_ms": "1"},
        BASE | {"step_ms": "2"},
        BASE | {"compiled": "True"},
    ]
    columns = [*BASE, "step_ms"]
    lines = [",".join(row.get(column, "") for column in columns) for row in rows]
    (tmp_path / "gpu_train.csv").write_text("\n".join([",".join(columns), *lines]))
    assert [row["step_ms"] for row in calibrate.training_steps()] == ["2"]
    assert not calibrate.training_steps(captured=False)


def test_the_last_long_run_tells_whether_the_gpu_waits(calibrate, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["recorded"], "RESULTS", tmp_path)
    rows = [BASE, BASE | {"preset": "medium"}, BASE | {"method": "radd"}]
    lines = [",".join(row.values()) for row in rows]
    (tmp_path / "gpu_train.csv").write_text("\n".join([",".join(BASE), *lines]))
    assert [row["waiting"] for row in calibrate.training_steps()] == ["", "", ""]
    hundreds = ["fixed,200,0.5", "fixed,300,0.5", "variable,200,0.4"]  # then another run
    hundreds += ["fixed,200,0.3", "fixed,300,0.001", "fixed,400,0.002"]
    (tmp_path / "gpu_steady.csv").write_text("\n".join(["what,step,waiting", *hundreds]))
    assert [row["waiting"] for row in calibrate.training_steps()] == ["0.002", "", ""]


def test_the_calibration_in_the_package_says_where_it_comes_from() -> None:
    assert calibrated() == ["h200"]
    gpu = calibration("H200")
    assert gpu.gpu == "NVIDIA H200"
    assert gpu.fitted["rows"] >= 1
    assert {"first", "last", "commits", "torch", "worst_time"} <= set(gpu.fitted)


def run(*arguments: str):
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_command_of_the_issue() -> None:
    result = run("--preset", "small", "--gpus", "8", "--context", "1024", "--batch", "512")
    assert result.exit_code == 0, result.exception
    words = result.stdout
    assert re.search(r"did-fixed +radd +ar\n", words)
    assert re.search(r"parameters, millions +162\.2 ", words)
    assert "512 texts a step (64 at once) of 1,024 tokens" in words
    assert "an ASSUMPTION" in words
    assert "tokens a day" in words
    assert "steps" not in words.split("Time:")[0]
    assert re.search(r"1,000 steps +\S+ \w+", run("--preset", "small", "--steps", "1000").stdout)


def documented() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return sorted(
        {c for page in pages for c in re.findall(r"didlm plan ([^`#\n]+)", page.read_text())}
    )


@pytest.mark.parametrize("command", documented())
def test_documented_commands_plan(command) -> None:
    assert run(*command.split()).exit_code == 0


def test_bad_input_ends_in_one_sentence_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "didlm", "plan", "--preset", "huge"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("didlm: there is no preset 'huge'")
    assert result.stderr.count("\n") == 1


def test_other_choices_are_spoken_of() -> None:
    words = run("--preset", "small", "--mean-length", "213", "--optimiser", "muon").stdout
    assert re.search(r" did +radd +ar\n", words)
    assert "Muon was never measured" in words
    assert "gamma distributed" in words
    words = run("--preset", "xl", "--tflops", "312", "--bandwidth", "2", "--memory", "40").stdout
    assert "a GPU of 312 TFLOP/s and 2 TB/s" in words
    assert "scaled by the data sheets" in words
    assert "did-fixed DOES NOT FIT the 40 GiB" in words
    assert "not captured" in run("--preset", "small", "--accumulate", "4").stdout


def test_json_has_the_same_figures() -> None:
    result = run("--preset", "small", "--method", "did", "--mean-length", "213", "--steps", "10",
                 "--json")  # fmt: skip
    about = json.loads(result.stdout)
    (plan,) = about["plans"]
    assert plan["captured"]
    assert plan["seconds_in_all"] == pytest.approx(10 * plan["seconds_per_step"])
    total = sum(v for k, v in plan["memory_bytes"].items() if k not in ("moment", "total"))
    assert plan["memory_bytes"]["total"] == pytest.approx(total)
    times = [v for k, v in plan["seconds"].items() if k != "host"]
    assert plan["seconds_per_step"] == pytest.approx(sum(times))
    assert plan["tokens_per_step"] == 64 * 213
    assert about["measured"]
    assert plan["fits"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "smal"], "there is no preset 'smal': did you mean 'small'?"),
        (["--batch", "7", "--gpus", "2"], "--batch 7 cannot be divided among 2 GPUs times 1"),
        (["--gpus", "0"], "--gpus must be at least 1: got 0"),
        (["--steps", "0"], "--steps must be at least 1: got 0"),
        (["--method", "gan"], "no plan for the method 'gan': known are did, did-fixed"),
        (["--method", "did"], "did is for documents: say how long with --mean-length N"),
        (["--method", "did-fixed", "--mean-length", "9"], "leave out --mean-length"),
        (["--mean-length", "5000"], "between 1 and the context of 1024: got 5000"),
        (["--optimiser", "sgd"], "--optimiser must be adamw or muon: got 'sgd'"),
        (["--gpu", "h20"], "the GPU 'h20' was never measured: did you mean 'h200'?"),
        (["--gpu", "abacus"], "the GPU 'abacus' was never measured: only h200 was"),
        (["--tflops", "312"], "a GPU is described by both --tflops and --bandwidth"),
        (["--tflops", "-1", "--bandwidth", "1"], "--tflops must be positive: got -1"),
        (["--memory", "80"], "--memory goes with --tflops and --bandwidth"),
        (["--gpu", "h200", "--tflops", "1", "--bandwidth", "1"], "choose one"),
        (["--link", "0"], "--link must be positive: got 0"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments, sentence) -> None:
    arguments = arguments if "--preset" in arguments else ["--preset", "small", *arguments]
    result = run(*arguments)
    assert isinstance(result.exception, ValueError)  # which `main` makes a sentence and exit code 2
    assert sentence in str(result.exception)
