"""The page about performance shows what was recorded, and nothing else."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/performance.md"
NAMES = ("marks", "recording", "recorded", "calibrate", "performance_tables", "performance_plots")


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("performance_tables")
    for name in NAMES:
        sys.modules.pop(name, None)


TRAINED = {
    "what": "fixed", "method": "did-fixed", "preset": "small", "batch": "64", "context": "1024",
    "vocabulary": "50257", "gpu": "NVIDIA H200", "torch": "2.11.0", "date": "2026-11-16T00:00:00",
    "commit": "abc", "rows": "32800", "target_rows": "10955", "step_ms": "48.0", "body_ms": "40.0",
    "attention_ms": "11.0", "head_ms": "4.0", "optimiser_ms": "2.0", "making_ms": "20.0",
    "waiting": "0.002", "peak_gib": "10.5", "tflops": "21.8", "utilisation": "0.57",
    "ceiling_tflops": "780", "copy_tb": "4.1",
}  # fmt: skip
VARIABLE = {"what": "variable", "method": "did", "vocabulary": "30522", "rows": "7500"}
VARIABLE |= {"step_ms": "13.5", "peak_gib": "4.5", "tflops": "3.9", "waiting": "", "head_ms": ""}
STEPS = [
    TRAINED,
    TRAINED | VARIABLE,
    TRAINED | {"batch": "16", "step_ms": "14.0"},
    TRAINED | {"preset": "medium", "step_ms": "140.0", "utilisation": "0.6"},
    TRAINED | {"method": "radd", "step_ms": "100.0", "rows": "65600"},
]
WRITTEN = {
    "what": "fixed", "method": "did-fixed", "sampler": "counted", "preset": "small", "batch": "32",
    "length": "1024", "vocabulary": "50257", "steps": "64", "gpu": "NVIDIA H200", "seconds": "0.7",
    "network": "0.4", "head": "0.2", "sampling": "0.1", "passes": "60", "peak_gib": "2.0",
    "torch": "2.11.0", "date": "2026-11-16T00:00:00", "commit": "abc", "ceiling_tflops": "780",
    "copy_tb": "4.1",
}  # fmt: skip


def test_the_page_is_what_the_records_say(tables) -> None:
    page = PAGE.read_text()
    recorded = sys.modules["recorded"]
    now = tables.filled(page, recorded.training_steps(), tables.sampled())
    assert now == page, "run python benchmarks/performance.py"


def test_the_readme_says_what_the_page_says() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    reached = {row[0].removeprefix("| "): row[4] for row in rows if len(row) == 7}
    readme = (ROOT / "README.md").read_text()
    step, memory = reached["training step, fixed length, vocabulary 50,257"].split(" ms, ")
    assert f"| **{float(step):.0f} ms, {memory}** |" in readme
    for name in (
        "training step, variable length, vocabulary 30,522",
        "GPU waits for batches, variable length",
        "sampling 32 x 1,024 tokens, 64 steps",
    ):
        assert f"| **{reached[name]}** |" in readme
    paper = reached["sampling 32 stories, 64 steps, tau-leaping"].split(",")[0]
    assert f"| 2.9 s | **{paper}** |" in readme


def test_goals_are_met_or_not(tables) -> None:
    table = tables.goals(STEPS, [WRITTEN])
    lines = table.splitlines()
    assert (
        "| 260 ms, 31 GiB | 27.9 ms | 50 ms, 12 GiB | 48.0 ms, 10.5 GiB | 5.4 | yes |" in lines[2]
    )
    assert "| 1 % | 0.2 % |  | yes |" in lines[3]
    assert "| 12 ms | 13.5 ms, 4.5 GiB | 10.0 | **no** |" in lines[4]
    assert "| DID faster than our RADD, fixed length |  |  | 1.8 x | 2.1 x |  | yes |" in lines[5]
    assert "| 50 % |" in lines[6]
    assert lines[-1].startswith("| sampling 32 x 1,024 tokens, 64 steps | 10 s, 62 GiB |")
    assert "| 0.8 s, 4 GiB | 0.70 s," in lines[-1]
    assert "| 14.3 | yes |" in lines[-1]
    heavy = tables.goals([TRAINED | {"peak_gib": "12.5"}], [])
    assert "**no**" in heavy.splitlines()[2]


def test_the_page_is_filled_and_emptied_again(tables) -> None:
    empty = tables.filled(PAGE.read_text(), [], [])
    assert "(performance/" not in empty
    full = tables.filled(empty, STEPS, [WRITTEN])
    assert tables.filled(full, STEPS, [WRITTEN]) == full
    assert tables.filled(full, [], []) == empty
    assert full.count("(performance/") == 5
    assert "| did-fixed, medium, fixed length | 32,800 | 10,955 | 140.0 ms" in full
    assert "| batch 16 | 14.0 ms |" in full
    assert re.search(r"\| did-fixed, counted, fixed length \| 32 x 1,024 \| 64 \| 0.700 s", full)
    with pytest.raises(ValueError, match="the page has no place for 'goals'"):
        tables.filled("# Nothing", STEPS, [])


def test_the_split_of_a_step_leaves_nothing_out(tables) -> None:
    parts = tables.split(TRAINED)
    assert sum(parts.values()) == pytest.approx(48.0)
    assert parts["everything else"] == pytest.approx(2.0)
    assert parts["products of the body, at the ceiling"] == pytest.approx(21.4, abs=0.1)
    assert tables.split(TRAINED | VARIABLE) is None  # its head was not measured


def test_plots_are_drawn_of_what_there_is(tables, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    plots = importlib.import_module("performance_plots")
    drawn = plots.draw(STEPS, [WRITTEN], tmp_path / "plots")
    assert {path.stem for path in drawn} == set(tables.CAPTIONS)
    assert plots.draw([], [], tmp_path / "plots") == []
    assert not list((tmp_path / "plots").iterdir())
