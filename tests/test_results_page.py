"""The page of results: what `didlm reproduce` has left, between its own markers alone."""

import importlib
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from didlm.cli import app
from didlm.reproduce.experiment import experiments
from didlm.reproduce.table import printed

ROOT = Path(__file__).parents[1]


@pytest.fixture
def page_of(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("results_page")
    sys.modules.pop("results_page", None)


def write(folder: Path, name: str, value: float = 1.5, commit: str = "abc") -> None:
    """A record as `didlm reproduce` leaves it."""
    experiment = experiments()[name]
    run = {"method": "did", "preset": "small", "steps": 1200, "batch": 64, "learning_rate": 4e-4}
    record = {
        "name": name,
        "stamp": "At the scale 'minutes': not comparable with the paper.",
        "rows": [
            {"label": list(row.label), "ours": [value] * len(experiment.columns)}
            for row in experiment.rows
        ],
        "notes": ["A note."],
        "made": {
            "date": "2026-11-18T20:00:00+00:00",
            "command": f"didlm reproduce {name} --scale minutes",
            "versions": {"commit": commit, "torch": "2.11.0"},
            "hardware": {"gpus": ["NVIDIA H200"]},
        },
        "runs": {"stories-did": run},
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record))


def test_tables_in_the_order_of_the_paper_with_all_that_belongs_to_them(page_of, tmp_path) -> None:
    for name in ("padding", "generation"):
        write(tmp_path, name)
    text = page_of.filled("", page_of.read([tmp_path]))
    assert text.startswith("# Results\n\n<!-- reproduce -->\n")
    assert text.endswith("<!-- /reproduce -->\n")
    assert text.index("### Table 2: ") < text.index("### Table 18: ")
    assert text.count("not comparable with the paper") == 2
    assert "| stories-did | did | small | 1,200 | 64 | 0.0004 |" in text
    for row in experiments()["padding"].rows:
        figures = " | ".join(printed(row.paper or [None] * 4))
        assert f"| {row.label[0]} | {row.label[1]} | paper | {figures} |" in text
    assert text.count("|  |  | ours | 1.500 | 1.500 | 1.500 | 1.500 |") == 14 + 8
    assert (
        "`didlm reproduce padding --scale minutes`, 2026-11-18, commit abc, one NVIDIA H200, torch"
    ) in text


def test_nothing_outside_the_markers_is_touched(page_of, tmp_path) -> None:
    write(tmp_path, "generation")
    records = page_of.read([tmp_path])
    other = "# Results\n\nOn real text.\n"
    once = page_of.filled(other, records)
    assert once.startswith(other)
    later = once + "\n<!-- other -->\nmore\n"
    write(tmp_path, "generation", value=2.5)
    again = page_of.filled(later, page_of.read([tmp_path]))
    assert again == later.replace("| 1.500", "| 2.50")
    with pytest.raises(ValueError, match="no place for 'reproduce'"):
        page_of.filled("<!-- reproduce -->", records)


def test_sentences(page_of, tmp_path) -> None:
    with pytest.raises(ValueError, match="there is no table in"):
        page_of.read([tmp_path])
    write(tmp_path, "padding", commit="unknown")
    with pytest.raises(ValueError, match=r"padding.json does not know its commit: name it with"):
        page_of.read([tmp_path])
    (record,) = page_of.read([tmp_path], "abc")
    assert "commit abc" in page_of.section(record)
    record["rows"].pop()
    (tmp_path / "padding.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="has other rows than the table has now"):
        page_of.read([tmp_path])


def test_figures_of_several_days_commits_and_machines_say_so(page_of, tmp_path) -> None:
    write(tmp_path, "padding")
    (record,) = page_of.read([tmp_path])
    first = {
        "date": "2026-11-18T20:00:00+00:00",
        "until": "2026-11-19T20:00:00+00:00",
        "versions": {"commit": "abc", "torch": "2.11.0"},
        "hardware": {"gpus": ["NVIDIA H200"]},
    }
    second = {
        "date": "2026-11-20T20:00:00+00:00",
        "until": "2026-11-20T21:00:00+00:00",
        "versions": {"commit": "unknown", "torch": "2.11.0"},
        "hardware": {"gpus": []},
    }
    old = {"date": "unknown", "versions": {"commit": "unknown"}, "hardware": {}}
    record["made"] = {"command": "didlm reproduce padding", "origins": [first, second, old]}
    (tmp_path / "padding.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"padding.json does not know its commit: name it with"):
        page_of.read([tmp_path])
    (record,) = page_of.read([tmp_path], "def")
    assert (
        "`didlm reproduce padding`, "
        "2026-11-18 to 2026-11-19, commit abc, one NVIDIA H200, torch 2.11.0; "
        "2026-11-20, commit def, a processor, torch 2.11.0; "
        "on an unknown day, commit def, unknown hardware, torch unknown."
    ) in page_of.section(record)


def test_what_reproduce_leaves_can_be_read(page_of, tmp_path, monkeypatch) -> None:
    out, file = tmp_path / "out", tmp_path / "words.txt"
    file.write_text("a")
    options = ["--scale", "smallest", "--out", str(out), "--data", f"gpt2={file}"]
    result = CliRunner().invoke(app, ["reproduce", "sizes", *options, "--set", "batch=4"])
    assert result.exit_code == 0, result.exception
    page, before = tmp_path / "results.md", "# Mine\n"
    page.write_text(before)
    arguments = ["results_page.py", str(out), "--page", str(page), "--commit", "abc"]
    monkeypatch.setattr(sys, "argv", arguments)
    page_of.main()
    text = page.read_text()
    assert text.startswith(before)
    assert "### Table 7: The sizes of the networks" in text
    command = "didlm reproduce sizes --scale smallest --data gpt2=words.txt --set batch=4"
    assert f"`{command}`, 20" in text
    assert str(tmp_path) not in text
