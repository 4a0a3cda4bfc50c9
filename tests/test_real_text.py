"""The comparison on real text: all of it at the smallest scale, and how its curves are read."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from didlm.data import stories

ROOT = Path(__file__).parents[1]
NOVEL = 40  # stories in one made-up novel


@pytest.fixture(scope="module")
def bench():
    """Import from the folder of benchmarks, and forget it again."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "benchmarks"))
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None) or ""
        if Path(path).parent == ROOT / "benchmarks":
            del sys.modules[name]


@pytest.fixture(scope="module")
def raw(bench, tmp_path_factory) -> Path:
    """A folder like that of the real texts."""
    folder, write = tmp_path_factory.mktemp("raw"), bench("real_text_data").write_texts
    texts = [" ".join(text.split()[:12]) for text in stories.training_stories(400)]
    parts = {
        "stories/tinystories.train": texts[:100],
        "stories/tinystories.valid": texts[100:108],
        "stories/fables.train": [text + "<|eot_id|>" for text in texts[110:150]],
        "stories/fables.valid": texts[150:156],
        "novels/eltec.train": [" ".join(texts[160 + NOVEL * n :][:NOVEL]) for n in range(4)],
        "novels/eltec.valid": [" ".join(texts[330:350])],
    }
    evaluated = [name for name in bench("real_text_runs").ZERO_SHOT if "wikitext" not in name]
    parts |= {f"eval/{name}": texts[350 + 5 * n :][:5] for n, name in enumerate(evaluated)}
    parts["eval/wikitext2.test"] = ["= Heading =\n\n" + "\n".join(texts[390:398])]
    for name, some in parts.items():
        write(folder / f"{name}.jsonl.xz", some)
    return folder


TRAIN = ["train", "--device", "cpu", "--seconds", "0.2", "--set", "preset=tiny", "--set", "batch=4"]
TRAIN += ["--set", "workers=0", "--set", "valid_documents=4", "--set", "valid_draws=1"]
MEASURE = ["measure", "--device", "cpu", "--size", "400", "--samples", "3", "--chunk-samples", "2"]
MEASURE += ["--steps", "2", "4", "--temperatures", "0.6", "1.5"]
MEASURE += [
    "--fewer-samples",
    "2",
    "--repeats",
    "2",
    "--middles",
    "3",
    "--middle-steps",
    "2",
    "--draws",
    "1",
    "--batch-size",
    "4",
]


def test_from_raw_text_to_the_page(bench, raw, tmp_path, capsys) -> None:
    main, runs = bench("real_text").main, bench("real_text_runs")
    home = ["--home", str(tmp_path / "home")]
    records = tmp_path / "home/records"
    assert main([*home, "prepare", str(raw), "--context", "48", "--vocabulary", "300"]) == 0
    assert main([*home, *TRAIN]) == 0
    assert {path.stem for path in records.glob("run-*")} == {f"run-{name}" for name in runs.RUNS}
    # A second call finds nothing to do, and touches nothing.
    times = {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert main([*home, *TRAIN]) == 0
    assert main([*home, *MEASURE, "--budget", "0"]) == 1  # there is no time for anything
    assert times == {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert main([*home, *MEASURE]) == 0
    check_records(records, runs)
    times = {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert main([*home, *MEASURE]) == 0
    assert times == {path: path.stat().st_mtime_ns for path in records.iterdir()}
    capsys.readouterr()
    pytest.importorskip("matplotlib")
    page = ["page", "--records", str(records), "--docs", str(tmp_path / "docs")]
    assert main(page) == 0
    check_page(tmp_path / "docs", runs)
    before = (tmp_path / "docs/results.md").read_text()
    assert main(page) == 0
    assert (tmp_path / "docs/results.md").read_text() == before
    (records / "middles-did-mini.json").unlink()
    assert main(page) == 0
    assert (tmp_path / "docs/results.md").read_text() != before


def check_records(records: Path, runs) -> None:
    for run in runs.RUNS.values():
        trained = json.loads((records / f"run-{run.name}.json").read_text())
        assert trained["steps"] > 0
        assert trained["seconds"] >= 0.2
        assert trained["curve"][-1]["seconds"] <= trained["seconds"]
        assert str(ROOT) not in json.dumps(trained)
        assert (records / f"likelihood-{run.name}.json").exists() == run.bounded
        written = records / f"samples-{run.name}.json"
        assert written.exists() != run.only_judges
        if run.only_judges:
            continue
        rows = json.loads(written.read_text())["rows"]
        # Two numbers of steps, each with and without top-p, and at another temperature.
        assert len(rows) == (6 if run.stepwise else 3)
        data = json.loads((records / f"reference-{run.setting}.json").read_text())["texts"]
        for row in rows:
            varied = (row["top_p"], row["temperature"]) != (1, 1)
            assert (row["seconds"] is None) == varied
            if row["temperature"] != 1:  # it leads towards the entropy of the data
                (plain,) = (
                    r["entropy_bits"]
                    for r in rows
                    if (r["steps_asked"], r["seconds"] is None) == (row["steps_asked"], False)
                )
                assert (row["temperature"] < 1) == (plain > data["entropy_bits"])
        assert all(row["generative_perplexity"] > 1 for row in rows)
        assert (rows[0]["length_ks"] is None) == (run.setting == "novels")
        assert (records / f"middles-{run.name}.json").exists() == (run.setting == "stories")
    sets = json.loads((records / "likelihood-did-mini.json").read_text())["sets"]
    assert list(sets) == ["tinystories", "fables", *runs.ZERO_SHOT]
    assert all(0 < own["stderr_bits"] < own["bits_per_byte"] < 9 for own in sets.values())
    for own in sets.values():  # the tighter bound is one, and both are in the same unit
        assert 0.5 * own["bits_per_byte"] < own["bits_per_byte_dse"] < own["bits_per_byte"]


def check_page(docs: Path, runs) -> None:
    page = (docs / "results.md").read_text()
    for run in runs.RUNS.values():
        assert page.count(f"`{run.name}`") >= 2
    assert "DICE's bounds are below DISE's on most sets" in page
    assert "| 2.58 times |" in page
    assert re.search(r"\| `did-mini` \| both ends \| \d", page)
    assert "| the real middles |" in page
    images = re.findall(r"\]\((results/\S+\.png)\)", page)
    assert len(images) == 8  # curves and samples of three groups, lengths of two
    assert all((docs / image).stat().st_size > 1000 for image in images)


def test_texts_are_cleaned_and_cut(bench, raw, tmp_path) -> None:
    data, runs = bench("real_text_data"), bench("real_text_runs")
    facts = data.prepare(raw, tmp_path, 48, 300)
    data.make_chunks(tmp_path)
    assert facts == data.read_facts(tmp_path)
    fables = data.read_documents(runs.text_file(tmp_path, "fables", "train"))
    assert len(fables) == 40
    assert not any("<|" in text for text in fables)
    tokenizer = data.Tokenizer.load(tmp_path / "novels/tokenizer")
    chunks = data.read_documents(runs.text_file(tmp_path, "eltec", "train", chunked=True))
    (first, *_) = data.read_documents(runs.text_file(tmp_path, "eltec", "train"))
    assert first.startswith("".join(chunks[:5]))
    lengths = [len(ids) for ids in tokenizer.encode_batch(chunks)]
    assert max(lengths) <= 50
    assert min(lengths) >= 46
    assert data.judged_texts(runs.SETTINGS["novels"], tmp_path)
    # 100 and 40 are learnt from, 8 and 6 were held out: as many of each kind as is learnt from.
    judged = data.judged_texts(runs.SETTINGS["stories"], tmp_path)
    sets = data.validation_sets(runs.SETTINGS["stories"], tmp_path)
    assert judged == sets["tinystories"] + sets["fables"][:3]
    with pytest.raises(ValueError, match="prepare the data first"):
        data.read_facts(tmp_path / "nowhere")


def test_excerpts_are_of_the_size_that_is_asked_for(bench) -> None:
    excerpt = bench("real_text_data").excerpt
    many = [f"text number {n:04}" for n in range(1000)]
    some = excerpt(many, 1600)
    assert len(some) == 100
    assert set(some) < set(many)
    assert some[-1] > "text number 0950"
    few = excerpt(["a" * 600, "b" * 300], 90)
    assert few == ["a" * 60, "b" * 30]
    assert excerpt(many, 10**6) == many
    # One long text among many does not cut the others.
    assert set(excerpt([*many, "x" * 10**5], 1600)) <= {*many, "x" * 10**5}
    assert bench("real_text_data").paragraphs([" = A =\n\none\n two \n"]) == ["one", "two"]


def curve(*triples: tuple[float, float, float]) -> list[dict[str, float]]:
    return [{"seconds": s, "flops": f, "bits_per_byte": b} for s, f, b in triples]


QUICK = curve((1, 10, 3.0), (2, 20, 2.0), (4, 40, 1.0), (8, 80, 1.5))
SLOW = curve((1, 100, 4.0), (10, 1000, 2.0))


def test_bounds_at_equal_time_and_work(bench) -> None:
    curves = bench("real_text_curves")
    assert curves.reached(QUICK, "seconds", 2.0) == pytest.approx(2.0)
    # Halfway between two validations on a logarithmic scale.
    assert curves.reached(QUICK, "seconds", 2 * 2**0.5) == pytest.approx(1.5)
    assert curves.reached(SLOW, "flops", 100 * 10**0.5) == pytest.approx(3.0)
    # What was lost by overfitting does not count: the best model was kept.
    assert curves.reached(QUICK, "seconds", 8.0) == pytest.approx(1.0)
    # Nothing is claimed outside.
    assert curves.reached(QUICK, "seconds", 0.9) is None
    assert curves.reached(QUICK, "seconds", 8.1) is None
    both = {"quick": QUICK, "slow": SLOW}
    assert curves.budgets(both, "seconds") == [1.0, 2.0, 4.0, 8.0]
    assert curves.budgets(both, "flops") == [10.0, 20.0, 40.0, 80.0]
    assert curves.reached(SLOW, "flops", 80.0) is None  # it had not begun to be validated
    unbounded = [{"seconds": 3.0, "flops": 5.0, "nats_per_document": 2.0}]
    assert curves.budgets(both | {"ilm": unbounded}, "seconds")[-1] == 8.0
    assert curves.reached(unbounded, "seconds", 3.0) is None


def test_overfitting_is_what_was_lost_since_the_best_point(bench) -> None:
    found = bench("real_text_curves").fit(QUICK)
    assert (found.best, found.at_seconds, found.last, found.seconds) == (1.0, 4, 1.5, 8)
    assert found.rise == pytest.approx(0.5)
    assert bench("real_text_curves").fit(SLOW).rise == 0
    assert bench("real_text_curves").fit([]) is None


def test_nothing_is_claimed_within_the_noise(bench) -> None:
    below = bench("real_text_claims").below
    assert below(1.0, 2.0, 0.3, 0.3) is True
    assert below(2.0, 1.0, 0.3, 0.3) is False
    assert below(1.0, 2.0, 0.4, 0.4) is None


def test_the_page_says_what_was_recorded(bench) -> None:
    docs = ROOT / "docs"
    page, book = (
        bench("real_text_page"),
        bench("real_text_book").Book.read(bench("recording").RESULTS / "real_text"),
    )
    plots = [docs / "results" / f"{kind}-{{}}.png" for kind in bench("real_text_plots").CAPTIONS]
    named = {
        group: [Path(str(plot).format("-".join(group))) for plot in plots] for group in book.groups
    }
    drawn = {group: [path for path in paths if path.exists()] for group, paths in named.items()}
    assert all(drawn.values())
    written = (docs / "results.md").read_text(encoding="utf-8")
    between, inside = bench("marks").between, bench("marks").inside
    expected = page.filled(page.SKELETON.read_text(encoding="utf-8"), book, drawn)
    assert written == between(expected, page.OTHER, inside(written, page.OTHER))


def written(perplexity: float, entropy: float, **other: object) -> dict[str, object]:
    row = {"steps_asked": 64, "top_p": 1.0, "temperature": 1.0, "seconds": 0.2, "length_std": 8.0}
    row |= {"generative_perplexity": perplexity, "entropy_bits": entropy, "samples": 64}
    return row | {"log_perplexity_stderr": 0.01, "data_length_mean": 200.0} | other


def test_claims_follow_from_records(bench) -> None:
    claims = bench("real_text_claims").claims
    run = {"curve": QUICK, "text_tokens_per_second": 10.0, "exact": False}
    slow = {"curve": curve((1, 10, 2.5), (8, 80, 1.2)), "text_tokens_per_second": 5.0}
    did = [written(20.0, 6.0, length_mean=195.0), written(10.0, 5.0, temperature=0.5)]
    radd = [written(30.0, 6.2, length_mean=150.0, seconds=0.5)]
    radd += [written(9.0, 5.2, temperature=0.5)]
    book = bench("real_text_book").Book(
        runs={"did-mini": run, "radd-mini": run | slow},
        likelihood={},
        samples={"did-mini": {"rows": did}, "radd-mini": {"rows": radd}},
        middles={},
        reference={"stories": {"texts": {"entropy_bits": 5.5}}},
    )
    lower = "DID's samples in 64 steps have a lower perplexity than RADD's"
    found = {claim.what: claim for claim in claims(book, ("stories", "mini"))}
    assert {what: claim.holds for what, claim in found.items()} == {
        "DID's bound is below RADD's at equal seconds of training": True,
        "DID's bound is below RADD's at equal FLOPs": True,
        "DID trains faster than RADD": True,
        "DID writes faster than RADD in 64 steps": True,
        lower: True,
        f"{lower}, at the data's entropy": False,  # 14.1, and RADD 12.9: another order
        "DID's texts in 64 steps have the nearer mean length": True,
    }
    equal = found["DID's bound is below RADD's at equal seconds of training"]
    assert equal.ours == "1.0000, RADD 1.2000 bits per byte"
    assert found["DID writes faster than RADD in 64 steps"].ours == "2.50 times"
    (tempered,) = (claim for what, claim in found.items() if what.endswith("data's entropy"))
    assert tempered.ours == f"{200**0.5:.4g}, RADD {9 * (30 / 9) ** 0.3:.4g}"


def test_equal_entropy_is_reached_by_temperature_or_by_top_p(bench) -> None:
    book, run = bench("real_text_book"), bench("real_text_runs").RUNS["did-mini"]
    rows = [
        written(20.0, 6.0),
        written(10.0, 5.0, temperature=0.5),
        written(5.0, 5.25, top_p=0.9),
        written(1.0, 4.0, steps_asked=16),
    ]

    def found(entropy: float, rows: list[dict[str, object]]) -> tuple[float | None, float | None]:
        texts = {"stories": {"texts": {"entropy_bits": entropy}}}
        own = book.Book({}, {}, {"did-mini": {"rows": rows}}, {}, texts)
        return own.at_data_entropy(run, 64), own.at_data_entropy_by_nucleus(run, 64)

    by_temperature, by_nucleus = 200**0.5, 5 * 4 ** (1 / 3)
    assert found(5.5, rows) == pytest.approx((by_temperature, by_nucleus))
    assert found(5.5, [rows[0], rows[2]]) == (None, pytest.approx(by_nucleus))
    assert found(5.5, rows[:2]) == (pytest.approx(by_temperature), None)
    assert found(5.1, rows)[1] is None  # nothing is said of what lies outside
    assert found(6.1, rows) == (None, None)


def test_time_is_kept_and_failures_stop_nothing(bench, capsys) -> None:
    records, done = bench("real_text_records"), []

    def fail() -> None:
        raise RuntimeError("no luck")

    tasks = [
        records.Task("one", 1, lambda: done.append(1)),
        records.Task("bad", 1, fail),
        records.Task("long", 99, lambda: done.append(2)),
        records.Task("two", 1, lambda: done.append(3)),
    ]
    assert not records.work_through(tasks, 10)
    assert done == [1, 3]
    said = capsys.readouterr().out
    assert "failed: bad" in said
    assert "left: long" in said
    assert records.work_through(tasks[:1], 10)


def test_how_many_texts_are_written_and_how_often(bench) -> None:
    figures, runs = bench("real_text_figures"), bench("real_text_runs").RUNS
    numbers = {"samples": 128, "fewer_samples": 64, "chunk_samples": 32, "repeats": 2}
    amounts = figures.Amounts(
        **numbers, size=1, steps=[], temperatures=(0.8, 1.15), middles=1, middle_steps=1,
        draws=1, batch_size=1,
    )  # fmt: skip
    found = {
        (name, knobs.steps, knobs.temperature): (
            amounts.count(runs[name], knobs),
            amounts.times(runs[name], knobs),
        )
        for name in ("did-mini", "radd-mini", "ar-mini", "did-fixed-small")
        for knobs in (figures.Knobs(64), figures.Knobs(256), figures.Knobs(256, temperature=None))
    }
    assert found["did-mini", 64, 1.0] == found["radd-mini", 64, 1.0] == (128, 2)
    assert found["ar-mini", 64, 1.0] == (128, 2)
    assert found["did-mini", 256, 1.0] == (64, 2)
    assert found["radd-mini", 256, 1.0] == (64, 1)
    assert found["did-mini", 256, None] == (64, 1)
    assert found["did-fixed-small", 256, 1.0] == (32, 2)


def test_settings_of_runs_are_as_the_table_says(bench, tmp_path) -> None:
    runs = bench("real_text_runs")
    named = {
        run.name: runs.training_settings(run, tmp_path, 1024, 70, "cuda", {})
        for run in runs.RUNS.values()
    }
    assert {s.schedule for s in named.values()} == {"constant"}
    assert {s.precision for s in named.values()} == {"bf16"}
    assert named["radd-mini"].padding == 1024
    assert named["radd-fixed-small"].padding == 0
    assert named["did-fixed-dise-small"].objective == "dise"
    assert named["ar-chunks-small"].data.endswith("chunks/eltec.train.jsonl")
    assert len({s.tokenizer for s in named.values()}) == 2
    for group in {run.group for run in runs.RUNS.values()}:
        own = [named[run.name] for run in runs.RUNS.values() if run.group == group]
        assert len({(s.batch, s.learning_rate, s.dropout, s.seconds) for s in own}) == 1
    with pytest.raises(ValueError, match="there is no run nobody"):
        runs.chosen(["nobody"])
    assert [run.name for run in runs.chosen(["ar-small", "did-mini"])] == ["did-mini", "ar-small"]
