"""The paper as commands: recipes, scales, data, and whole experiments at the smallest scale."""

import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.pretrained import load
from didlm.reproduce import workshop
from didlm.reproduce.asked import Needs, check_same, needs_of, options_of, record_asked
from didlm.reproduce.changes import QUIET
from didlm.reproduce.curves import curves
from didlm.reproduce.experiment import experiments
from didlm.reproduce.kinds import KINDS, kind
from didlm.reproduce.origins import different
from didlm.reproduce.pairs import answer_of, read_questions
from didlm.reproduce.samples import figure
from didlm.reproduce.scale import find_scale, scales
from didlm.reproduce.sources import Sources, known
from didlm.reproduce.stamp import stamp_of
from didlm.reproduce.table import STAMP, printed
from didlm.reproduce.workshop import Workshop, all_runs
from didlm.train.loop import Interrupted
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
        assert do("dise", files, out) == first  # the dates of its figures among it

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
            (["sizes", "--set", "steps=abc"], "steps must be a whole number: got 'abc'"),
            (
                ["dise", "--set", "steps=-3"],
                "with --set as given, owt-radd-small cannot be trained: steps must",
            ),
            (["sizes", "--set", "preset=hugo"], "--set cannot change 'preset', which the recipes"),
            (["dise", "--set", "method=radd"], "--set cannot change 'method', which the recipes"),
            (["dise", "--set", "init=a"], "--set cannot change 'init', which the recipes say"),
            (["dise", "--set", "snapshots=2"], "--set cannot change 'snapshots', which the"),
            (["dise", "--set", "data=a.txt"], "which the recipes say; name files with --data"),
            (["dise", "--set", "tokenizer=a.json"], "say; name a file with --data"),
            (["curves", "--set", "validate_every=100000"], "needs 10 validations of stories-radd"),
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

    @pytest.mark.parametrize("scale", ["paper", "smallest"])
    def test_a_missing_device_is_named_before_anything_is_written(
        self, scale, files, tmp_path
    ) -> None:
        data = [part for name in files for part in ("--data", f"{name}={files[name]}")]
        options = ["--scale", scale, "--device", "cuda:99", "--out", tmp_path / "out", *data]
        result = reproduce("generation", *options)
        sentence = "there is no device 'cuda:99' on this machine: name another with --device"
        assert str(result.exception) == sentence
        assert not (tmp_path / "out").exists()
        shop = Workshop(tmp_path, find_scale(scale), Sources(files), changes={"device": "cuda:99"})
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            shop._find_judge("gpt2-large", None)
        assert reproduce("sizes", *options).exit_code == 0  # only counts

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
        do("sizes", files, tmp_path, "--set", "learning_rate=1e-3", "--set", "log_every=7")
        result = reproduce("sizes", "--scale", "smallest", "--out", tmp_path)
        sentence = "holds figures with --set 'learning_rate=1e-3', not ''"
        assert sentence in str(result.exception)

    def test_figures_of_two_scales_never_share_a_folder(self, files, out) -> None:
        do("sizes", files, out)
        result = reproduce("sizes", "--scale", "minutes", "--out", out)
        assert "holds figures with --scale 'smallest', not 'minutes'" in str(result.exception)

    def test_no_model_in_the_place_of_a_run_that_has_figures(self, files, out, tmp_path) -> None:
        do("dise", files, out)
        data = [part for name in files for part in ("--data", f"{name}={files[name]}")]
        model = ["--model", f"owt-did-small={out}/runs/owt-radd-small"]
        result = reproduce("dise", "--scale", "smallest", "--out", out, *data, *model)
        assert "holds figures with --model owt-did-small '', not '" in str(result.exception)
        record_asked(tmp_path, asked(tmp_path, models={"owt-did-small": "a"}))
        with pytest.raises(
            ValueError, match="holds figures with --model owt-did-small 'a', not ''"
        ):
            check_same(tmp_path, asked(tmp_path))


def asked(folder: Path, experiment: str = "dise", files=None, models=None, **changes) -> dict:
    """All that the figures of an experiment depend on."""
    shop = Workshop(folder, find_scale("minutes"), Sources(files or {}), models or {}, changes)
    return options_of(shop, experiments()[experiment])


class TestAsked:
    @pytest.mark.parametrize(
        "change", [{"steps": "40"}, {"accumulate": "2"}, {"workers": "0"}, {"capture": "false"}]
    )
    def test_settings_on_which_figures_depend(self, change, tmp_path) -> None:
        record_asked(tmp_path, asked(tmp_path))
        with pytest.raises(ValueError, match="holds figures with --set '', not"):
            check_same(tmp_path, asked(tmp_path, **change))

    def test_the_device_too_if_one_is_needed(self, tmp_path) -> None:
        record_asked(tmp_path, asked(tmp_path))
        with pytest.raises(ValueError, match="holds figures with --device 'cuda', not 'cpu'"):
            check_same(tmp_path, asked(tmp_path, device="cpu"))
        check_same(tmp_path, asked(tmp_path, "sizes", device="cpu"))

    @pytest.mark.parametrize("name", sorted(QUIET))
    def test_what_is_told_of_training_may_change(self, name, tmp_path) -> None:
        record_asked(tmp_path, asked(tmp_path))
        check_same(tmp_path, asked(tmp_path, **{name: "7"}))

    def test_files_come_too_late_for_data_that_figures_depend_on_and_for_no_other(
        self, files, tmp_path
    ) -> None:
        record_asked(tmp_path, asked(tmp_path, "generation"))
        for name in ("openwebtext", "gpt2"):
            with pytest.raises(ValueError, match=f"holds figures with --data {name} '', not"):
                check_same(tmp_path, asked(tmp_path, "dise", {name: Path("a")}))
        check_same(tmp_path, asked(tmp_path, "dise", {"wikitext": Path("a")}))
        check_same(tmp_path, asked(tmp_path, "dise", models={"owt-dise-small": "a"}))
        with pytest.raises(ValueError, match="holds figures with --model owt-did-small '', not"):
            check_same(tmp_path, asked(tmp_path, models={"owt-did-small": "a"}))

    @pytest.mark.parametrize(
        ("experiment", "runs", "data"),
        [
            ("dise", {"owt-dise-small"}, {"openwebtext", "gpt2", "ag_news"}),
            ("gsm8k", {"gsm8k-did", "slimpajama-did"}, {"gsm8k", "gsm8k-train", "llama"}),
            ("downstream", {"slimpajama-smdm"}, {"slimpajama", "arc_easy", "winogrande"}),
            ("intermediate", {"stories-did", "stories-judge"}, {"stories", "bert-base-uncased"}),
        ],
    )
    def test_what_figures_depend_on(self, experiment, runs, data, tmp_path) -> None:
        shop = Workshop(tmp_path, find_scale("minutes"), Sources({}))
        needs = needs_of(shop, experiments()[experiment])
        assert runs <= set(needs.runs)
        assert data <= set(needs.data)
        assert needs_of(shop, experiments()["sizes"]) == Needs((), ())
        judged = replace(shop, judge_name="gpt2-large")
        assert "stories-judge" not in needs_of(judged, experiments()["intermediate"]).runs

    def test_nothing_is_recorded_before_there_is_something(
        self, files, tmp_path, monkeypatch
    ) -> None:
        """So that data that was found missing can still be named."""

        def nothing(name: str, *_: object):
            raise ValueError(f"cannot read {name}: no network")

        monkeypatch.setattr("didlm.reproduce.sources.dataset_blocks", nothing)
        result = reproduce("dise", "--scale", "smallest", "--out", tmp_path / "out")
        assert "name a file with --data" in str(result.exception)
        assert not (tmp_path / "out").exists()

    def test_runs_that_were_begun_are_something(self, tmp_path, monkeypatch) -> None:
        """They are gone on with, and so by the same command alone."""

        def broken_off(settings: Settings, folder: Path, resume: bool):
            folder.mkdir(parents=True)
            (folder / "run.json").touch()
            raise Interrupted

        monkeypatch.setattr(workshop, "train", broken_off)
        shop = Workshop(tmp_path, find_scale("paper"), Sources({"gpt2": Path("a")}))
        shop.on_device = False
        shop.keeping = partial(record_asked, tmp_path, asked(tmp_path))
        with pytest.raises(Interrupted, match="stopped while training owt-did-small, as asked"):
            shop.run_folder("owt-did-small")
        with pytest.raises(ValueError, match="holds figures with --set '', not 'steps=40'"):
            check_same(tmp_path, asked(tmp_path, steps="40"))


class TestStamps:
    def stamp(self, experiment: str = "generation", **given) -> str:
        shop = Workshop(Path("a"), find_scale("paper"), Sources(given.pop("data", {})), **given)
        return stamp_of(shop, experiments()[experiment])

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"judge_name": "gpt2-large"},
            {"changes": {"device": "cuda:1", "checkpoint_seconds": "60", "log_every": "1"}},
            {"changes": {"accumulate": "8"}},
            {"models": {"stories-did": "a"}},  # that is not asked for
            {"data": {"openwebtext": Path("a")}},  # it may be the same
            {"experiment": "dise", "judge_name": "gpt2"},  # that is not asked
        ],
    )
    def test_what_the_paper_did(self, given) -> None:
        assert self.stamp(**given) == "At the scale of the paper."

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"judge_name": "gpt2"}, "--judge gpt2"),
            ({"changes": {"steps": "40", "seed": "1"}}, "--set seed=1, --set steps=40"),
            ({"models": {"owt-did-small": "a/b"}}, "--model owt-did-small=a/b"),
            ({"changes": {"accumulate": "8"}, "experiment": "dp-share"}, "--set accumulate=8"),
        ],
    )
    def test_what_the_paper_did_not_do(self, given, reason) -> None:
        assert self.stamp(**given).endswith(f"{STAMP}, for it was done with {reason}.")

    def test_counted_figures_are_the_same_whatever_is_set(self) -> None:
        assert self.stamp("sizes", changes={"steps": "4"}) == "At the scale of the paper."

    def test_it_is_in_the_table(self, tmp_path) -> None:
        assert reproduce("sizes", "--out", tmp_path).exit_code == 0
        assert "At the scale of the paper." in (tmp_path / "sizes.md").read_text()

    def test_local_data_is_named(self, files, out) -> None:
        (note,) = [note for note in do("dise", files, out)["notes"] if "local files" in note]
        assert f"openwebtext ({files['openwebtext'].name})" in note
        assert "stories" not in note  # on which nothing there depends


class TestOrigins:
    def test_are_kept_with_the_figures(self, tmp_path, monkeypatch) -> None:
        shop = Workshop(tmp_path, find_scale("smallest"), Sources({}))
        assert shop.once("seven", lambda: 7) == 7
        monkeypatch.setattr(workshop, "surroundings", lambda: pytest.fail("asked again"))
        again = Workshop(tmp_path, find_scale("smallest"), Sources({}))
        assert again.once("seven", lambda: 8) == 7
        assert again.origins == shop.origins
        origin = again.origins["seven"]
        assert origin["date"].startswith("20")
        assert "commit" in origin["versions"]
        assert "gpus" in origin["hardware"]

    def test_tables_are_printed_again_where_the_device_and_the_models_are_not(
        self, files, out, tmp_path, monkeypatch
    ) -> None:
        first = do("dise", files, out)
        copy = tmp_path / "copy"
        shutil.copytree(out, copy, ignore=shutil.ignore_patterns("runs", "data"))

        def no_device(name: str):
            raise ValueError(f"there is no device '{name}' on this machine")

        monkeypatch.setattr(workshop, "check_device", no_device)
        assert do("dise", files, copy) == first

    def test_files_without_can_still_be_read(self, tmp_path) -> None:
        (tmp_path / "figures").mkdir()
        for name, known_before in (("list", [1, 2]), ("table", {"figure": 3}), ("number", 0.5)):
            (tmp_path / f"figures/{name}.json").write_text(json.dumps(known_before))
            shop = Workshop(tmp_path, find_scale("smallest"), Sources({}))
            assert shop.once(name, lambda: pytest.fail("found again")) == known_before
            assert shop.origins[name]["date"] == "unknown"

    def test_those_that_differ_are_all_told(self) -> None:
        def origin(day: int, commit: str) -> dict:
            return {"date": f"2026-11-{day}", "versions": {"commit": commit}, "hardware": {}}

        found = different([origin(18, "b"), origin(12, "a"), origin(15, "a"), origin(14, "a")])
        assert found == [origin(12, "a") | {"until": "2026-11-15"}, origin(18, "b")]

    def test_a_table_has_those_of_its_figures(self, files, out, tmp_path) -> None:
        do("dise", files, out)
        copy = tmp_path / "copy"
        shutil.copytree(out, copy)
        file = copy / "figures/perplexity-owt-did-small-4-ptb.json"
        kept = json.loads(file.read_text())
        kept["made"] |= {"date": "2020-01-01", "versions": {"commit": "old"}}
        file.write_text(json.dumps(kept))
        first, *others = do("dise", files, copy)["made"]["origins"]
        assert (first["date"], first["versions"]) == ("2020-01-01", {"commit": "old"})
        assert others
        assert all(each["versions"]["commit"] != "old" for each in others)


class TestCurves:
    def shop(self, folder: Path, every: int) -> Workshop:
        """Of models whose training was validated so often in 100 steps."""
        lines = [
            {"step": step, "kind": "valid", "nats_per_document": 200.0 - step}
            for step in range(every, 101, every)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        models = {"stories-radd": str(folder), "stories-did": str(folder)}
        return Workshop(folder, find_scale("smallest"), Sources({}), models)

    def test_are_those_of_models_from_elsewhere(self, tmp_path) -> None:
        outcome = curves(self.shop(tmp_path, 10), experiments()["curves"])
        assert outcome.values[0] == [200.0 - step for step in range(10, 101, 10)]
        assert list(outcome.pictures) == ["curves"]

    def test_need_validations(self, tmp_path) -> None:
        with pytest.raises(ValueError, match="needs 10 validations of stories-radd, and that in"):
            curves(self.shop(tmp_path, 100), experiments()["curves"])

    def test_need_them_before_anything_is_trained(self, files, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(workshop, "train", lambda *_: pytest.fail("trained"))
        changes = {"validate_every": "30", "steps": "200"}
        shop = Workshop(tmp_path / "a", find_scale("smallest"), Sources(files), {}, changes)
        sentence = "validate_every=30 leaves 7: set it to 20 at most, or leave it out"
        with pytest.raises(ValueError, match=sentence):
            curves(shop, experiments()["curves"])
        assert not (tmp_path / "a").exists()

    def test_without_matplotlib_it_is_said_how_to_get_the_picture(
        self, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        outcome = curves(self.shop(tmp_path, 10), experiments()["curves"])
        assert not outcome.pictures
        assert outcome.notes == [
            "There is no picture: it needs matplotlib (pip install 'didlm[plots]')."
        ]


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


def test_steps_that_are_asked_for_take_the_place_of_epochs(files, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Workshop, "model_folder", lambda *_: tmp_path / "start")
    scale, sources = find_scale("smallest"), Sources(dict(files))
    run, found = "gsm8k-did", []
    for changes in ({}, {"steps": "7"}):
        shop = Workshop(tmp_path, scale, sources, changes=changes)
        found.append(shop.settings(run).steps)
    assert found[1] == 7 != found[0]


def test_a_flop_budget_is_an_option(files, tmp_path) -> None:
    options = ["--preset", "tiny", "--flops", "3e10", "--set", "batch=4", "--set", "samples=0"]
    options += ["--set", "vocabulary=300", "--data", str(files["wikitext"])]
    result = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "a"), *options])
    assert result.exit_code == 0, result.output
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert Settings().changed(run["settings"]).flops == 3e10
    assert 1 < run["settings"]["steps"] < 1000
