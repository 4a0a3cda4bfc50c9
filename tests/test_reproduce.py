"""The paper as commands: recipes, scales, data, and whole experiments at the smallest scale."""

import json
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.pretrained import load
from didlm.reproduce import workshop
from didlm.reproduce.experiment import experiments
from didlm.reproduce.kinds import KINDS, kind
from didlm.reproduce.pairs import answer_of, read_questions
from didlm.reproduce.samples import figure
from didlm.reproduce.scale import find_scale, scales
from didlm.reproduce.sources import Sources, known
from didlm.reproduce.table import STAMP, printed
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.settings import Settings
from paper_data import write_data
from processes import start

ROOT = Path(__file__).parents[1]
IN_SHORT = ["dise", "sizes", "intermediate"]
TABLES = {f"Table {number}" for number in range(1, 22)} - {"Table 6"}  # a list of symbols
FIGURES = {"Figure 2", "Figure 3", "Figure 4"}  # the first is a drawing of the idea


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    return write_data(tmp_path_factory.mktemp("paper"))


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """One folder for all experiments: what one has trained, the next finds there."""
    return tmp_path_factory.mktemp("reproduction")


def reproduce(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def do(name: str, files: dict[str, Path], out: Path, *more: object) -> dict:
    data = [part for key, file in files.items() for part in ("--data", f"{key}={file}")]
    result = reproduce(name, "--scale", "smallest", "--out", out, *data, *more)
    assert result.exit_code == 0, (result.output, result.exception)
    assert STAMP in " ".join(result.stdout.split())
    return json.loads((out / f"{name}.json").read_text())


def check(name: str, found: dict, out: Path) -> None:
    """The paper's rows and columns are there, with its figures beside ours, and the stamp."""
    experiment, page = experiments()[name], (out / f"{name}.md").read_text()
    assert STAMP in page
    assert found["columns"] == list(experiment.columns)
    assert [row["label"] for row in found["rows"]] == [list(row.label) for row in experiment.rows]
    for row in found["rows"]:
        assert len(row["ours"]) == len(experiment.columns)
        assert len(row["paper"]) in (0, len(experiment.columns))
        assert not row["paper"] or " | ".join(printed(row["paper"])) in page
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == (2 * len(experiment.rows) + 2 if experiment.rows else 0)
    for note in experiment.notes:
        assert note in page
    if experiment.kind in ("lengths", "curves"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    if experiment.kind == "listing":
        assert found["texts"]
    elif experiment.kind == "curves":
        assert all(row["ours"][4] is not None for row in found["rows"])
    else:
        measured = [value for row in found["rows"] for value in row["ours"]]
        assert sum(value is None for value in measured) < len(measured) / 3


class TestRecipes:
    def test_every_table_and_figure_of_the_paper_has_one(self) -> None:
        places = [each.where for each in experiments().values()]
        assert {place for place in places if place.startswith(("Table", "Figure"))} == (
            TABLES | FIGURES
        )
        assert len(places) == len(TABLES) + len(FIGURES) + 4  # and the listings

    def test_all_are_described(self) -> None:
        text = (ROOT / "docs/reproduce.md").read_text()
        for name, experiment in experiments().items():
            assert f"didlm reproduce {name}" in text, name
            assert experiment.where in text, name
        for name in known():
            assert f"`{name}`" in text, name

    def test_without_a_name_all_are_listed(self) -> None:
        result = reproduce()
        assert result.exit_code == 0
        for name, experiment in experiments().items():
            assert re.search(rf"^{name} .*{experiment.where}", result.stdout, re.MULTILINE)

    def test_their_runs_and_kinds_exist(self) -> None:
        for experiment in experiments().values():
            assert callable(kind(experiment.kind))
            for row in experiment.rows:
                assert not row.run or row.run in all_runs()
                assert all(name in [r.name for r in experiment.rows] for name in row.ratio)
        assert {each.kind for each in experiments().values()} == set(KINDS)

    def test_ratios_of_the_paper_follow_from_its_own_figures(self) -> None:
        """What was typed in is what was printed: its speedups are those of its times."""
        for experiment in experiments().values():
            rows = {row.name: row for row in experiment.rows}
            for row in experiment.rows:
                if row.ratio:
                    above, below = (rows[name].paper for name in row.ratio)
                    ratios = [row.times * a / b for a, b in zip(above, below, strict=True)]
                    assert ratios == pytest.approx(list(row.paper), rel=0.04), row.name

    def test_averages_of_the_paper_follow_from_its_own_figures(self) -> None:
        for experiment in experiments().values():
            if "Average" in experiment.columns:
                for row in experiment.rows:
                    *values, average = row.paper
                    assert sum(values) / len(values) == pytest.approx(average, abs=0.011), row.name


class TestScales:
    def test_that_of_the_paper_changes_nothing(self) -> None:
        settings = {"preset": "small", "steps": 400_000, "batch": 512, "average": 0.9999}
        assert find_scale("paper").applied(settings) == settings
        assert next(iter(scales())) == "paper"

    def test_smaller_ones_keep_the_structure(self, files, tmp_path) -> None:
        shop = Workshop(tmp_path, find_scale("smallest"), Sources(files))
        radd, did = shop.settings("owt-radd-small"), shop.settings("owt-did-small")
        assert (radd.method, did.method) == ("radd", "did-fixed")
        assert did.steps == 2 * radd.steps
        assert did.fixed_length == radd.fixed_length < 1024
        assert shop.settings("owt-dise-small").objective == "dise"
        assert (
            shop.settings("stories-radd-512").padding * 2 == shop.settings("stories-radd").padding
        )
        assert shop.settings("slimpajama-did").flops == shop.settings("slimpajama-smdm").flops > 0

    def test_short_training_rises_slowly_and_learns_faster(self) -> None:
        paper = {"preset": "small", "steps": 400_000, "warmup": 2500, "learning_rate": 3e-4}
        paper |= {"batch": 512, "average": 0.9999, "fixed_length": 1024}
        scaled = find_scale("minutes").applied(paper, "openwebtext")
        assert (scaled["steps"], scaled["warmup"], scaled["batch"]) == (400, 20, 64)
        assert scaled["learning_rate"] == 1e-3
        assert scaled["average"] == pytest.approx(0.9)
        assert scaled["fixed_length"] == 1024

    def test_the_paper_s_settings_are_exact(self, files, tmp_path) -> None:
        tokenizers = {"gpt2": Path("gpt2.json"), "bert-base-uncased": Path("bert.txt")}
        shop = Workshop(tmp_path, find_scale("paper"), Sources(files | tokenizers))
        settings = shop.settings("owt-did-medium")
        assert (settings.steps, settings.batch, settings.fixed_length) == (800_000, 512, 1024)
        assert (settings.preset, settings.learning_rate, settings.warmup) == ("medium", 3e-4, 2500)
        assert (settings.weight_decay, settings.dropout, settings.average) == (0.03, 0.02, 0.9999)
        assert (settings.precision, settings.snapshots) == ("fp16", 4)
        assert settings.tokenizer == "gpt2.json"
        settings = shop.settings("stories-radd")
        assert (settings.steps, settings.batch, settings.padding) == (60_000, 512, 1024)
        assert (settings.learning_rate, settings.warmup, settings.dropout) == (1e-4, 1000, 0.1)


class TestExperiments:
    @pytest.mark.parametrize("name", IN_SHORT)
    def test_some(self, name, files, out) -> None:
        check(name, do(name, files, out), out)

    @pytest.mark.long
    @pytest.mark.parametrize("name", sorted(set(experiments()) - set(IN_SHORT)))
    def test_all_others(self, name, files, out) -> None:
        check(name, do(name, files, out), out)

    def test_what_is_large_and_of_no_more_use_is_gone(self, files, out) -> None:
        do("dise", files, out)
        assert not list(out.glob("runs/*/checkpoints"))

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
    def test_what_was_broken_off_goes_on_where_it_was(self, how, files, tmp_path) -> None:
        """At its last checkpoint, and to the same weights; what was finished is left alone."""
        changes = {"steps": 40, "validate_every": 1000, "checkpoint_every": 5}

        def shop(place: str) -> Workshop:
            sources = Sources(files)
            return Workshop(tmp_path / place, find_scale("smallest"), sources, {}, changes)

        expected = load(shop("alone").model_folder("owt-dise-small")).network.state_dict()
        broken = shop("broken")
        before = broken.run_folder("owt-radd-small") / "model.safetensors"
        made = before.stat().st_mtime_ns
        child = start(tmp_path, broken.run_folder, "owt-dise-small")
        while not list(broken.folder.glob("runs/owt-dise-small/snapshots/1-of-4/config.json")):
            assert child.process.is_alive()
            time.sleep(0.005)
        os.kill(child.process.pid, how)
        child.process.join()
        if how == signal.SIGTERM:
            assert child.end().startswith("Interrupted: stopped while training owt-dise-small, as")
        assert not (broken.folder / "figures/trained-owt-dise-small.json").exists()
        again = shop("broken")
        found = load(again.model_folder("owt-dise-small")).network.state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        run = json.loads((again.folder / "runs/owt-dise-small/run.json").read_text())
        assert run["resumed"][0]["step"] >= 5
        assert again.run_folder("owt-radd-small") == before.parent
        assert before.stat().st_mtime_ns == made

    def test_what_is_finished_is_not_done_again(self, files, out, monkeypatch) -> None:
        first = do("dise", files, out)
        monkeypatch.setattr(workshop, "train", lambda *_: pytest.fail("trained again"))
        monkeypatch.setattr(workshop, "load", lambda *_: pytest.fail("measured again"))
        second = do("dise", files, out)
        for outcome in (first, second):
            del outcome["made"]["date"]
        assert second == first

    def test_runs_keep_their_models_after_every_quarter(self, files, out) -> None:
        do("dise", files, out)
        kept = [load(out / "runs/owt-did-small/snapshots" / f"{n}-of-4") for n in range(1, 5)]
        weights = [model.network.token_head.sum().item() for model in kept]
        assert len(set(weights)) == 4
        dise = load(out / "runs/owt-dise-small/snapshots/4-of-4")
        assert dise.method.objective == "dise"
        assert not dise.network.config.normalised
        assert dise.network.config.condition

    @pytest.mark.long
    def test_a_model_takes_the_place_of_a_run(self, files, out, tmp_path) -> None:
        do("dise", files, out)
        runs = [f"{name}={out}/runs/{name}" for name in ("owt-radd-small", "owt-dise-small")]
        runs.append(f"owt-did-small={out}/runs/owt-did-small/snapshots/1-of-4")
        more = [part for run in runs for part in ("--model", run)]
        found, before = do("dise", files, tmp_path, *more), do("dise", files, out)
        assert not (tmp_path / "runs").exists()
        assert [row["ours"] for row in found["rows"][:2]] == [
            row["ours"] for row in before["rows"][:2]
        ]
        assert found["rows"][2]["ours"] != before["rows"][2]["ours"]


class TestSentences:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["zero-shoot"], "there is no experiment 'zero-shoot': did you mean 'zero-shot'?"),
            (["sizes", "--scale", "huge"], "there is no scale 'huge': known are paper, minutes"),
            (["sizes", "--data", "wikitext"], "--data takes NAME=VALUE: got 'wikitext'"),
            (["sizes", "--data", "wiki=a"], "--data knows no 'wiki': known are openwebtext"),
            (["sizes", "--data", "wikitext=nowhere.txt"], "there is no file nowhere.txt for"),
            (["sizes", "--model", "a=b"], "--model knows no 'a': known are owt-radd-small"),
            (["sizes", "--set", "stepps=3"], "--set knows no 'stepps'"),
            (
                ["dise", "--model", "owt-did-small=nowhere/at/all"],
                "--model owt-did-small: there is",
            ),
        ],
    )
    def test_bad_input(self, arguments, sentence, tmp_path) -> None:
        result = reproduce(*arguments, "--out", tmp_path / "out")
        assert result.exit_code != 0
        assert sentence in str(result.exception)
        assert not (tmp_path / "out").exists()

    def test_missing_data_names_the_option(self, tmp_path, monkeypatch) -> None:
        def nothing(name: str, *_: object):
            raise ValueError(f"cannot read {name}: no network")

        monkeypatch.setattr("didlm.reproduce.sources.dataset_blocks", nothing)
        shop = Workshop(tmp_path, find_scale("smallest"), Sources({}))
        for name in ("openwebtext", "wikitext", "gsm8k"):
            with pytest.raises(ValueError, match=f"; or name a file with --data {name}=PATH"):
                shop.sources.texts(name)
        with pytest.raises(ValueError, match="name a file with --data gsm8k-train=PATH"):
            read_questions(shop.sources, "gsm8k-train")

    def test_what_a_model_suggests_counts_for_nothing(self, tmp_path) -> None:
        model = replace(load("stories"), defaults={"top_p": 0.1, "rate_scale": 0.2})
        model.save_pretrained(tmp_path / "model")
        models = {"stories-did": str(tmp_path / "model")}
        shop = Workshop(tmp_path, find_scale("smallest"), Sources({}), models)
        assert shop.model("stories-did").defaults == model.defaults
        assert shop.writer("stories-did").defaults == {}

    def test_data_and_judges_are_looked_for_before_anything_is_trained(
        self, files, tmp_path, monkeypatch
    ) -> None:
        def nothing(name: str, *_: object):
            raise ValueError(f"cannot read {name}: no network")

        monkeypatch.setattr("didlm.reproduce.sources.dataset_blocks", nothing)
        monkeypatch.setattr(workshop, "train", lambda *_: pytest.fail("trained"))
        some = {name: file for name, file in files.items() if name not in ("ptb", "gsm8k")}
        for name, missing in (("zero-shot", "ptb"), ("gsm8k", "gsm8k")):
            shop = Workshop(tmp_path / name, find_scale("smallest"), Sources(some))
            experiment = experiments()[name]
            with pytest.raises(ValueError, match=f"or name a file with --data {missing}=PATH"):
                kind(experiment.kind)(shop, experiment)
        shop = Workshop(tmp_path, find_scale("smallest"), Sources(files), judge_name="no/judge")
        monkeypatch.setattr(workshop, "find_judge", nothing)
        with pytest.raises(ValueError, match="name another with --judge"):
            shop.judge("owt-did-small")

    def test_training_data_too(self) -> None:
        sources = Sources({})
        with (
            pytest.raises(ValueError, match="no network; or name a file with --data stories=PATH"),
            sources.advising("stories"),
        ):
            raise ValueError("cannot read hf:roneneldan/TinyStories: no network")
        with pytest.raises(ValueError, match="^no such device$"), sources.advising("stories"):
            raise ValueError("no such device")

    def test_the_same_settings_for_all_figures_of_a_folder(self, files, tmp_path) -> None:
        do("sizes", files, tmp_path, "--set", "learning_rate=1e-3")
        do("sizes", files, tmp_path, "--set", "learning_rate=1e-3", "--set", "workers=0")
        result = reproduce("sizes", "--scale", "smallest", "--out", tmp_path)
        sentence = "holds figures with --set 'learning_rate=1e-3', not ''"
        assert sentence in str(result.exception)

    def test_figures_of_two_scales_never_share_a_folder(self, files, out) -> None:
        do("sizes", files, out)
        result = reproduce("sizes", "--scale", "minutes", "--out", out)
        assert "holds figures with --scale 'smallest', not 'minutes'" in str(result.exception)


class TestFigures:
    def test_the_paper_s_figures_look_as_they_do_there(self) -> None:
        assert printed([95.1, 84.05, None]) == ["95.10", "84.05", "-"]
        assert printed([0.22, 0.317]) == ["0.220", "0.317"]
        assert printed([12, 768]) == ["12", "768"]

    def test_samples_above_300_are_left_out_and_counted(self) -> None:
        found = {"perplexities": [10.0, 40.0, 5000.0, 300.0]}
        assert figure(found, "PPL*") == pytest.approx(20)
        assert figure(found, "Excluded (%)") == 50
        assert figure(found, "PPL") == pytest.approx((10 * 40 * 5000 * 300) ** 0.25)

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("so 3+4=7 #### 7", "7"),
            ("#### 5 and then #### $1,234.50 each", "1234.5"),
            ("####-3", "-3"),
            ("#### 12.00", "12"),
            ("the answer is 7", None),
            ("#### none", None),
        ],
    )
    def test_answers_are_found(self, text, answer) -> None:
        assert answer_of(text) == answer

    def test_long_questions_lose_their_beginning(self) -> None:
        tokenizer = Tokenizer.train_bpe(["a cat saw the dog"] * 3, 270)
        text = "the dog saw the cat and the cat saw the dog. How many cats?\nAnswer:"
        ids = tokenizer.encode(text)
        assert tokenizer.end_of(text, len(ids)) == text
        assert tokenizer.end_of(text, 9) == tokenizer.decode(ids[-9:]) != text

    def test_questions_of_both_formats(self, tmp_path) -> None:
        lines, records = tmp_path / "a.txt", tmp_path / "b.jsonl"
        lines.write_text("How many?||<<1+1=2>> #### 2\n\nWhy?\u2028So?||#### 3\n", "utf-8")
        records.write_text(json.dumps({"question": "How many?", "answer": "<<1+1=2>> #### 2"}))
        sources = Sources({"gsm8k": lines, "gsm8k-train": records})
        first, second = read_questions(sources, "gsm8k")
        assert [first] == read_questions(sources, "gsm8k-train")
        assert first.prompt + first.response == "Question: How many?\nAnswer: <<1+1=2>> #### 2"
        assert second.question == "Why?\u2028So?"
        lines.write_text("How many? 2\n")
        with pytest.raises(ValueError, match="line 1 of .* is no question"):
            read_questions(sources, "gsm8k")


def test_a_flop_budget_is_an_option(files, tmp_path) -> None:
    options = ["--preset", "tiny", "--flops", "3e10", "--set", "batch=4", "--set", "samples=0"]
    options += ["--set", "vocabulary=300", "--data", str(files["wikitext"])]
    result = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "a"), *options])
    assert result.exit_code == 0, result.output
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert Settings().changed(run["settings"]).flops == 3e10
    assert 1 < run["settings"]["steps"] < 1000
