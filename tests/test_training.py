"""The whole, on short real runs."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import didlm
from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.bound import likelihood_bound
from didlm.methods.did import DID
from didlm.methods.registry import OURS
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.pretrained import FORMAT, Model, load
from didlm.text.documents import read_documents
from didlm.train import loop, state, world
from didlm.train.loop import TrainingStopped, train
from didlm.train.optimiser import MovingAverage, learning_rate_factor
from didlm.train.prepare import joined, prepare
from didlm.train.settings import Settings, recipe
from didlm.train.world import World

WORDS = ["red", "blue", "green", "fox", "owl", "runs", "sleeps", "and", "then"]


def texts(model: Model) -> list[str]:
    return [sample.text for sample in model.generate(num_samples=2, steps=4, seed=1)]


@pytest.fixture
def corpus_file(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(4, 12))) for _ in range(200)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def quick(data: Path, **changes) -> Settings:
    return Settings().changed(
        {
            "data": str(data),
            "steps": 6,
            "batch": 8,
            "validate_every": 3,
            "valid": "0.2",
            "valid_documents": 10,
            "samples": 2,
            "sample_steps": 4,
            "log_every": 2,
            "vocabulary": 300,
            "fixed_length": 16,
            "max_length": 40,
        }
        | changes
    )


@pytest.mark.parametrize("method", OURS)
def test_a_run_leaves_a_model_that_writes_and_a_full_record(corpus_file, tmp_path, method) -> None:
    out = tmp_path / "run"
    model = train(quick(corpus_file, method=method), out)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md", "run.json"):
        assert (out / name).is_file(), name
    assert not [p for p in out.rglob("*") if p.suffix in (".pt", ".pkl", ".bin", ".tmp")]
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if m["kind"] == "train"] == [2, 4, 6]
    validations = [m for m in metrics if m["kind"] == "valid"]
    assert [m["step"] for m in validations] == [3, 6]
    seconds = [m["seconds"] for m in metrics]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert all(math.isfinite(m["nats_per_document"]) for m in validations)
    bounded = model.method.bounded
    assert all(("conditional_nats_per_token" in m) == bounded for m in validations)
    assert all(("bits_per_byte" in m) == bounded for m in validations)
    assert len(list((out / "samples").glob("*.txt"))) == 2
    run = json.loads((out / "run.json").read_text())
    assert run["settings"]["method"] == method
    assert run["versions"]["torch"] == torch.__version__
    card = (out / "README.md").read_text()
    assert ("bits per byte" in card) == bounded
    assert ("| loss on unseen documents" in card) == (not bounded)
    again = didlm.load(out)
    assert texts(again) == texts(model)
    assert again.length == (16 if method in ("did-fixed", "radd") else None)


def test_a_run_ends_by_time_and_is_validated_by_time(corpus_file, tmp_path, capfd) -> None:
    """By seconds of training, in which neither starting nor validating counts."""
    out = tmp_path / "run"
    timed = {"seconds": 0.6, "validate_seconds": 0.2, "schedule": "constant", "samples": 0}
    settings = quick(corpus_file, steps=100_000, validate_every=100_000, log_every=1, **timed)
    train(settings, out)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    validations = [m["seconds"] for m in metrics if m["kind"] == "valid"]
    assert 2 <= len(validations) <= 3  # 0.2, 0.4 and the end, unless single steps are slow
    assert all(later - earlier > 0.15 for earlier, later in pairwise([0.0, *validations]))
    assert 0.6 <= validations[-1] < 5
    assert min(m["seconds"] for m in metrics if m["step"] == 1) < 0.01
    assert "seconds = 0.6" in (out / "README.md").read_text()
    steps = max(m["step"] for m in metrics)
    assert 1 < steps < 100_000
    train(settings, out, resume=True)
    assert f"all of its {steps} steps have been taken" in capfd.readouterr().err
    longer = replace(settings, seconds=validations[-1] + 0.1)
    train(longer, out, resume=True)
    again = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert again[: len(metrics)] == metrics
    assert again[-1]["step"] > steps
    with pytest.raises(ValueError, match="snapshots are spread over steps"):
        replace(settings, snapshots=2)


def test_impossible_splits_are_refused(corpus_file, tmp_path) -> None:
    for valid in ("0", "1.0", "-0.1", "nan"):
        with pytest.raises(ValueError, match="must lie between 0 and 1, both excluded: got"):
            train(quick(corpus_file, valid=valid), tmp_path / "run")
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "a"}\n{"text": "g"}\n{"text": "h"}\n')  # hashes of ca, cd and aa
    with pytest.raises(ValueError, match="splitting 3 documents at fraction 0.5 leaves none for v"):
        train(quick(few, valid="0.5"), tmp_path / "run")
    few.write_text('{"text": "a red fox"}\n')
    with pytest.raises(ValueError, match="is one document: put '<|endoftext|>' between"):
        train(quick(few), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validation_documents_come_from_all_sources(tmp_path) -> None:
    for name in "ab":
        rows = [json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(300)]
        (tmp_path / f"{name},.jsonl").write_text("".join(rows))
    sources = joined([str(tmp_path / "a,.jsonl") + ":2", str(tmp_path / "b,.jsonl")])
    prepared = prepare(quick(Path(sources), valid="0.5", valid_documents=40))
    texts = [prepared.tokenizer.decode(ids) for ids in prepared.valid]
    assert 10 < sum(text.startswith("a") for text in texts) < 30
    assert prepared.train.weights is not None
    assert set(prepared.train.weights.tolist()) == {1.0, 2.0}


def test_padding_counts_in_the_cost_but_not_as_tokens(corpus_file, tmp_path) -> None:
    train(quick(corpus_file, method="radd", padding=40), tmp_path / "run")
    *_, last = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    tokens = last["nats_per_document"] / last["nats_per_token"]  # of a document, on average
    model = didlm.load(tmp_path / "run")
    documents = read_documents(corpus_file)
    lengths = [len(model.tokenizer.encode(text)) for text in documents]
    assert min(lengths) < tokens < max(lengths) < 40


def test_equal_seeds_train_equal_models(corpus_file, tmp_path) -> None:
    weights = []
    for name in ("one", "two"):
        model = train(quick(corpus_file), tmp_path / name)
        weights.append(model.network.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_accumulation_and_workers_change_nothing_but_rounding(corpus_file, tmp_path) -> None:
    def weights(name: str, **changes):
        settings = quick(corpus_file, optimiser="adamw", **changes)
        return train(settings, tmp_path / name).network.state_dict()

    plain, halves = weights("plain"), weights("halves", accumulate=2)
    there = weights("there", workers=2)
    for name, value in plain.items():
        assert torch.equal(value, there[name])
        # Adam divides by the gradient's size, rounding and all: a few entries move by more.
        close = torch.isclose(value, halves[name], rtol=1e-3, atol=1e-4)
        assert close.double().mean() > 0.999, name


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sixteen_bit_training_runs(corpus_file, tmp_path, precision) -> None:
    # Many processors are slow at this: a few steps are enough.
    few = {"steps": 2, "validate_every": 2, "valid_documents": 2, "samples": 0, "batch": 4}
    train(quick(corpus_file, precision=precision, **few), tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [m["loss"] for m in map(json.loads, lines) if m["kind"] == "train"]
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp32"},
        {"precision": "bf16"},
        {"precision": "fp16", "method": "did-fixed"},
        {"precision": "bf16", "compile": True},
        {"precision": "bf16", "checkpointing": True},
    ],
    ids=str,
)
def test_training_on_a_gpu(corpus_file, tmp_path, changes) -> None:
    settings = quick(corpus_file, device="cuda", steps=40, validate_every=20, **changes)
    model = train(settings, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    first, last = (m["nats_per_document"] for m in map(json.loads, lines) if m["kind"] == "valid")
    assert last < first
    assert model.network.token_head.is_cuda
    assert len(texts(model)) == 2


def test_non_finite_steps_are_skipped_and_counted(corpus_file, tmp_path, monkeypatch) -> None:
    poison(monkeypatch, {2, 4})
    train(quick(corpus_file), tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [m["skipped"] for m in map(json.loads, lines) if m["kind"] == "train"][-1] == 2


def test_a_bound_that_is_no_number_is_never_the_best(corpus_file, tmp_path, monkeypatch) -> None:
    original, count = loop.validation_metrics, 0

    def first_spoilt(*arguments):
        nonlocal count
        count += 1
        spoilt = {"nats_per_document": math.nan} if count == 1 else {}
        return original(*arguments) | spoilt

    monkeypatch.setattr(loop, "validation_metrics", first_spoilt)
    train(quick(corpus_file), tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "nan" not in card.partition("## Use")[0]
    assert "| nats per text | " in card


def test_training_in_a_thread(corpus_file, tmp_path) -> None:
    with ThreadPoolExecutor(1) as threads:
        model = threads.submit(train, quick(corpus_file, steps=1), tmp_path / "run").result()
    assert len(texts(model)) == 2


def test_many_non_finite_steps_stop_with_an_explanation_and_the_last_good_model(
    corpus_file, tmp_path, monkeypatch
) -> None:
    poison(monkeypatch, set(range(2, 100)))
    with pytest.raises(TrainingStopped, match="not finite 3 times in a row, the last at step 4"):
        train(quick(corpus_file, bad_steps=3), tmp_path / "run")
    model = load(tmp_path / "run")
    assert all(p.isfinite().all() for p in model.network.parameters())


def test_a_run_that_breaks_off_keeps_its_best_model(corpus_file, tmp_path, monkeypatch) -> None:
    # Calls 1 to 3 train, then each validation calls the loss of `evaluate`, not ours.
    poison(monkeypatch, set(range(4, 100)))
    with pytest.raises(TrainingStopped, match="the best model so far"):
        train(quick(corpus_file, bad_steps=2), tmp_path / "run")
    assert "bits per byte" in (tmp_path / "run" / "README.md").read_text()


def test_a_finite_loss_with_a_non_finite_gradient_is_skipped(
    corpus_file, tmp_path, monkeypatch
) -> None:
    original = state.batch_loss

    def steep(network, batch, scale=1.0, promised=False):
        loss = original(network, batch, scale, promised)
        root = (network.rate_head.bias * 0).abs().sqrt().sum()  # zero, of infinite slope
        return type(loss)(**{**vars(loss), "total": loss.total + root})

    monkeypatch.setattr(state, "batch_loss", steep)
    with pytest.raises(TrainingStopped, match="gradient norm nan"):
        train(quick(corpus_file, bad_steps=2), tmp_path / "run")


def test_the_fp16_loss_scale_enters_before_the_gradients(
    corpus_file, tmp_path, monkeypatch
) -> None:
    original, scales = state.batch_loss, []

    def listening(network, batch, scale=1.0, promised=False):
        scales.append(scale)
        return original(network, batch, scale, promised)

    monkeypatch.setattr(state, "batch_loss", listening)
    train(quick(corpus_file, precision="fp16", steps=1), tmp_path / "run")
    assert scales[0] == 2.0**16 / 8  # the first scale of GradScaler over the batch


def poison(monkeypatch, calls: set[int]) -> None:
    """Make the loss infinite at these calls of it, counted from one."""
    original, count = state.batch_loss, 0

    def spoilt(network, batch, scale=1.0, promised=False):
        nonlocal count
        count += 1
        loss = original(network, batch, scale, promised)
        if count in calls:
            return type(loss)(**{**vars(loss), "total": loss.total * math.inf})
        return loss

    monkeypatch.setattr(state, "batch_loss", spoilt)


@pytest.mark.parametrize("fixed", [False, True])
def test_eight_documents_are_learnt_by_heart(fixed) -> None:
    """No model can go below log 8 nats per document; ours must come within 0.3."""
    rng = np.random.default_rng(0)
    lengths = [5] * 8 if fixed else [1, 2, 3, 4, 5, 5, 6, 7]
    corpus = Corpus.of([rng.integers(1, 12, n) for n in lengths])
    bound = overfit(corpus, fixed, steps=700)
    assert bound.nats_per_document < math.log(8) + 0.3
    assert bound.nats_per_document > math.log(8) - 4 * bound.standard_error - 0.05


def overfit(corpus: Corpus, fixed: bool, steps: int):
    from didlm.data.loader import Loader
    from didlm.loss import batch_loss
    from didlm.train.optimiser import make_optimisers

    torch.manual_seed(0)
    config = ModelConfig(
        12,
        layers=2,
        width=64,
        heads=4,
        feed_forward=128,
        condition=None if fixed else 32,
        normalised=fixed,
        mean_length=corpus.mean_length,
    )
    network = Network(config)
    method = DID(bos=0, fixed_length=fixed or None)
    settings = Settings(learning_rate=5e-3)
    optimisers, average = make_optimisers(network, settings), MovingAverage(network, 0.99)
    budget = budget_for(corpus, 64)
    loader = iter(Loader(corpus, method, budget, 64, seed=0))
    for step in range(steps):
        factor = learning_rate_factor("wsd", step, steps, 20, 0.5)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * factor
        for batch in next(loader):
            (batch_loss(network, batch).total / 64).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        network.zero_grad()
        average.update(network)
    return likelihood_bound(average.network, method, corpus, budget, draws=400)


def test_the_bound_uses_the_same_noise_at_every_call(corpus_file) -> None:
    tokenizer = Tokenizer.train_bpe(read_documents(corpus_file), 300)
    corpus = Corpus.of(tokenizer.encode_batch(read_documents(corpus_file)[:12]))
    torch.manual_seed(0)
    network = Network(
        ModelConfig(tokenizer.vocabulary, 1, 16, 2, 16, condition=8, mean_length=10.0)
    )
    method = DID(bos=tokenizer.bos)
    small, large = budget_for(corpus, 4), budget_for(corpus, 100)
    one = likelihood_bound(network, method, corpus, small, draws=3)
    two = likelihood_bound(network, method, corpus, large, draws=3)
    np.testing.assert_allclose(one.nats, two.nats, rtol=1e-4)
    assert network.training
    more = likelihood_bound(network, method, corpus, large, draws=40)
    assert more.nats_per_document == pytest.approx(one.nats_per_document, rel=0.2)
    assert one.tokens == corpus.tokens


class TestModelFolder:
    @pytest.fixture
    def model(self) -> Model:
        tokenizer = Tokenizer.train_bpe(["a fox and an owl"] * 3, 300)
        torch.manual_seed(0)
        network = Network(ModelConfig(tokenizer.vocabulary, 1, 16, 2, 16, condition=8))
        return Model(network, tokenizer, DID(bos=tokenizer.bos))

    def test_round_trip(self, model, tmp_path) -> None:
        model.save_pretrained(tmp_path / "m")
        again = Model.from_pretrained(tmp_path / "m")
        assert again.network.config == model.network.config
        assert again.method == model.method
        for name, value in model.network.state_dict().items():
            assert torch.equal(value, again.network.state_dict()[name])
        assert texts(again) == texts(model)

    def test_a_newer_format_is_refused_and_ours_is_read(self, model, tmp_path) -> None:
        model.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["format"] == FORMAT
        (tmp_path / "config.json").write_text(json.dumps(config | {"format": FORMAT + 1}))
        with pytest.raises(ValueError, match="format 2, newer than 1"):
            load(tmp_path)
        # An older one lacks what has come since: defaults stand in.
        del config["longest"], config["method"]["untouched_share"]
        del config["model"]["gated"]
        (tmp_path / "config.json").write_text(json.dumps(config | {"format": 0}))
        assert texts(load(tmp_path)) == texts(model)

    def test_missing_and_damaged_folders_are_refused(self, model, tmp_path) -> None:
        with pytest.raises(ValueError, match="there is no folder .*nowhere"):
            load(tmp_path / "nowhere")
        with pytest.raises(ValueError, match="has no config.json"):
            load(tmp_path)
        model.save_pretrained(tmp_path)
        weights = tmp_path / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-100])
        with pytest.raises(ValueError, match="model.safetensors is damaged"):
            load(tmp_path)
        weights.unlink()
        with pytest.raises(ValueError, match="has no model.safetensors"):
            load(tmp_path)
        weights.write_bytes(whole)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ValueError, match="config.json is damaged"):
            load(tmp_path)

    def test_impossible_requests_are_refused(self, model) -> None:
        with pytest.raises(ValueError, match="cannot write 0 texts"):
            model.generate(num_samples=0)
        with pytest.raises(ValueError, match="temperature must be a number from 0 on"):
            model.generate(temperature=-1.0)
        with pytest.raises(ValueError, match="at least 1: got 0"):
            model.generate(steps=0)


class TestSettings:
    def test_unknown_names_are_refused_with_the_nearest(self) -> None:
        with pytest.raises(ValueError, match="no setting 'learning_rat': did you mean 'learning_r"):
            Settings().changed({"learning_rat": "1"})

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("steps", "many", "steps must be a whole number: got 'many'"),
            ("learning_rate", "fast", "learning_rate must be a number: got 'fast'"),
            ("compile", "maybe", "compile must be true or false: got 'maybe'"),
            ("method", "gan", "no method 'gan': known are did, did-fixed"),
            ("dropout", "2", "dropout must lie between 0 and 1: got 2.0"),
            ("steps", "0", "steps must be at least 1: got 0"),
            ("steps", 2.7, "steps must be a whole number: got '2.7'"),
            ("steps", True, "steps must be a whole number: got 'True'"),
            ("sample_steps", "0", "sample_steps must be at least 1: got 0"),
            ("samples", "-1", "samples must not be negative: got -1"),
            ("seed", "-1", "seed must not be negative: got -1"),
            ("average", "1", "average must be at least 0 and below 1: got 1.0"),
            ("clip", "0", "clip must be positive: got 0.0"),
            ("accumulate", "3", "batch 64 cannot be divided into 3 equal parts"),
            ("seconds", "-1", "seconds must not be negative: got -1"),
            ("seconds", "60", "the schedule wsd must know how many steps there will be"),
        ],
    )
    def test_impossible_values_are_refused(self, name, value, message) -> None:
        with pytest.raises(ValueError, match=message):
            Settings().changed({name: value})

    def test_the_papers_recipes(self) -> None:
        stories = Settings().changed(recipe("stories"))
        assert (stories.learning_rate, stories.warmup, stories.weight_decay) == (1e-4, 1000, 0.01)
        assert (stories.dropout, stories.batch, stories.steps) == (0.1, 512, 60_000)
        assert (stories.precision, stories.optimiser, stories.given_share) == ("bf16", "adamw", 0)
        web = Settings().changed(recipe("openwebtext"))
        assert (web.learning_rate, web.warmup, web.weight_decay) == (3e-4, 2500, 0.03)
        assert (web.dropout, web.batch, web.fixed_length) == (0.02, 512, 1024)
        assert (web.precision, web.method, web.average) == ("fp16", "did-fixed", 0.9999)

    def test_recipes_from_files(self, tmp_path) -> None:
        (tmp_path / "mine.toml").write_text("steps = 7\n")
        assert recipe(str(tmp_path / "mine.toml")) == {"steps": 7}
        (tmp_path / "bad.toml").write_text("steps 7")
        with pytest.raises(ValueError, match="is not TOML"):
            recipe(str(tmp_path / "bad.toml"))
        with pytest.raises(ValueError, match="neither a recipe .*stories.* nor a file"):
            recipe("nothing")


def test_learning_rate_schedules() -> None:
    def factors(schedule: str) -> list[float]:
        return [learning_rate_factor(schedule, step, 100, 10, 0.2) for step in range(101)]

    for schedule in ("constant", "cosine", "wsd"):
        assert factors(schedule)[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors("constant")[10:] == [1.0] * 91
    assert factors("cosine")[100] == pytest.approx(0, abs=1e-12)
    assert factors("cosine")[55] == pytest.approx(0.5)
    assert factors("wsd")[79:82] == pytest.approx([1.0, 1.0, 0.95])
    assert factors("wsd")[100] == 0


def test_the_moving_average_is_a_network_that_follows() -> None:
    network = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        network.weight.fill_(0.0)
    average = MovingAverage(network, decay=0.5)
    with torch.no_grad():
        network.weight.fill_(1.0)
    expected = 0.0
    for step in range(1, 40):
        average.update(network)
        keep = min(0.5, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep)
    assert average.network.weight.flatten().tolist() == pytest.approx([expected] * 2)
    assert not average.network.weight.requires_grad
    assert network.weight.tolist() == [[1.0, 1.0]]


def test_as_many_loader_processes_as_the_machine_has_use_for(monkeypatch) -> None:
    on_cpu, on_gpu = (World(0, 1, torch.device(name)) for name in ("cpu", "cuda"))
    assert on_cpu.workers(-1) == 0
    assert on_cpu.workers(3) == on_gpu.workers(3) == 3
    for cores, processes, expected in ((64, 1, 8), (6, 1, 5), (16, 4, 3), (1, 1, 1)):
        monkeypatch.setattr(world, "_cores", lambda cores=cores: cores)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert on_gpu.workers(-1) == expected
    with pytest.raises(ValueError, match="workers must be a number, or -1"):
        Settings(workers=-2)
