"""Models by folder, by shipped name and by hub id: the same text everywhere, and no network."""

import json
import shutil
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import didlm
from didlm import locate as places
from didlm.cli import app
from didlm.compare.gather import Entry
from didlm.compare.tables import all_tables
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.judge import OwnJudge, find_judge
from didlm.evaluate.likelihood import Likelihood, evaluate
from didlm.locate import locate
from didlm.methods.registry import find_method
from didlm.pretrained import Model
from didlm.train.prepare import prepare
from didlm.train.record import model_card
from didlm.train.settings import Settings
from test_methods import TEXT, network_for

hub = pytest.importorskip("huggingface_hub", reason="these tests are about its cache")
errors = pytest.importorskip("huggingface_hub.errors")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_network(monkeypatch) -> Iterator[None]:
    """Nothing here may speak to the network, and what tries is not only refused but told."""
    tried = []
    strangers = set(threading.enumerate()) - {threading.current_thread()}  # of other tests

    def refuse(*arguments, **options):
        if threading.current_thread() not in strangers:
            tried.append((arguments, "".join(traceback.format_stack(limit=20))))
        raise ConnectionError

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not tried


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


def model_of(tokenizer: Tokenizer, name: str = "did", **fields) -> Model:
    torch.manual_seed(0)
    method = find_method(name).build(tokenizer)
    return Model(network_for(method, tokenizer.vocabulary), tokenizer, method, 30, **fields)


@pytest.fixture
def model(tokenizer) -> Model:
    return model_of(tokenizer, card="---\nlibrary_name: didlm\n---\n# Mine\n")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub, which itself is switched off."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def put(cache: Path, folder: Path | str, repo: str = "owner/name", commit: str = COMMIT) -> Path:
    """What the cache looks like when a folder has been downloaded."""
    place = cache / f"models--{repo.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / commit, dirs_exist_ok=True)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text(commit)
    return place / "snapshots" / commit


def texts(model: Model) -> list[str]:
    return [sample.text for sample in model.generate(num_samples=2, steps=4, seed=1)]


class TestLocate:
    def test_a_folder_comes_first(self, tmp_path, monkeypatch, cache) -> None:
        (tmp_path / "owner/name").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        put(cache, tmp_path / "owner/name")
        assert locate("owner/name") == Path("owner/name")
        assert locate(tmp_path) == tmp_path

    def test_shipped_names(self, model, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(places, "MODELS", tmp_path / "models")
        monkeypatch.chdir(tmp_path)
        model.save_pretrained(tmp_path / "models/stories")
        assert texts(didlm.load("stories")) == texts(model)
        sentence = r"neither a folder nor a shipped name \(stories\) nor a hub id.*mean 'stories'\?"
        with pytest.raises(ValueError, match=sentence):
            locate("storis")
        (tmp_path / "stories").mkdir()  # of texts, perhaps; now it is not in the way
        assert locate("stories") == tmp_path / "models/stories"
        with pytest.raises(ValueError, match="stories is not a model: it has no config.json"):
            didlm.load("./stories")
        (tmp_path / "stories/config.json").write_text("{}")  # meant to be a model: it comes first
        assert locate("stories") == Path("stories")

    def test_the_package_may_ship_none(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(places, "MODELS", tmp_path / "models")
        assert places.shipped() == {}
        with pytest.raises(ValueError, match=r"'x': it is neither a folder nor a hub id, which is"):
            locate("x")

    def test_a_hub_id_is_found_in_the_cache(self, model, tmp_path, cache) -> None:
        model.save_pretrained(tmp_path / "m")
        snapshot = put(cache, tmp_path / "m")
        for name in ("owner/name", "owner/name@main", f"owner/name@{COMMIT}"):
            assert locate(name) == snapshot
            assert texts(didlm.load(name)) == texts(model)
        assert texts(Model.from_pretrained("owner/name")) == texts(model)

    @pytest.mark.parametrize("name", ["./x", "/no/x", "runs/a/b", "x/", "~/x", "../x", "a/b/c@d"])
    def test_what_looks_like_a_path_is_one(self, name, tmp_path, monkeypatch, cache) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=f"^there is no folder {name}$"):
            locate(name)

    def test_a_path_object_is_never_an_id(self, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=r"^there is no folder owner.name$"):
            locate(Path("owner/name"))

    def test_a_file_is_no_model(self, tmp_path) -> None:
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ValueError, match="config.json is a file: a model is a folder"):
            locate(tmp_path / "config.json")

    @pytest.mark.parametrize("name", ["", "a b", "a b/c", "-a/b", "a--b/c", "a/b@", "a/b@c@d"])
    def test_what_is_nothing_at_all_is_refused(self, name, tmp_path, monkeypatch, cache) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=f"there is no model '{name}': it is neither a folder"):
            locate(name)

    def test_a_switched_off_hub_is_named(self, cache, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=r"no folder runs/mine, no whole .* is switched off"):
            locate("runs/mine")

    def test_without_the_library_one_is_told_what_to_install(self, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        sentence = r"no folder runs/mine, and models of the hub take .* 'didlm\[hub\]'"
        with pytest.raises(ValueError, match=sentence):
            locate("runs/mine")

    @pytest.mark.parametrize(
        ("raised", "sentence"),
        [
            (
                "RepositoryNotFoundError",
                "no folder runs/mine, and the hub has no model runs/mine f",
            ),
            ("GatedRepoError", "only to those who accept its terms: do so at https://hugg.*/mine,"),
            ("RevisionNotFoundError", "the model runs/mine on the hub has no revision 'v2'"),
            (
                "LocalEntryNotFoundError",
                "no folder runs/mine@v2, no whole .*, and the hub cannot be",
            ),
            ("EntryNotFoundError", "runs/mine on the hub is no didlm model: it has no config.json"),
            ("HfHubHTTPError", "runs/mine cannot be downloaded: many$"),
            ("ConnectionError", "runs/mine cannot be downloaded: many$"),
        ],
    )
    def test_what_the_hub_refuses_is_one_sentence(self, raised, sentence, monkeypatch) -> None:
        def refuse(*arguments, **options):
            raise ConnectionError("many\nlines") if raised[0] == "C" else error_of(raised)

        monkeypatch.setattr(hub, "hf_hub_download", refuse)
        answering(monkeypatch)
        name = "runs/mine" if raised == "RepositoryNotFoundError" else "runs/mine@v2"
        with pytest.raises(ValueError, match=sentence) as caught:
            locate(name)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("config", ['{"model_type": "gpt2"}', "[]", "{"])
    def test_the_weights_of_a_stranger_are_not_downloaded(
        self, config, tmp_path, monkeypatch
    ) -> None:
        file = tmp_path / "config.json"
        file.write_text(config)
        answering(monkeypatch)
        monkeypatch.setattr(hub, "hf_hub_download", lambda *_, **__: str(file))
        monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
        with pytest.raises(ValueError, match="owner/name on the hub is no didlm model: its config"):
            locate("owner/name")

    def test_only_what_a_model_needs_is_downloaded(self, model, tmp_path, monkeypatch) -> None:
        model.save_pretrained(tmp_path / "there")
        here = tmp_path / COMMIT
        here.mkdir()
        asked = []

        def describe(repo, file, **options):
            asked.append((repo, options))
            return str(shutil.copy(tmp_path / "there" / file, here))

        def download(repo, **options):
            asked.append((repo, options))
            return str(shutil.copytree(tmp_path / "there", here, dirs_exist_ok=True))

        answering(monkeypatch)
        monkeypatch.setattr(hub, "hf_hub_download", describe)
        monkeypatch.setattr(hub, "snapshot_download", download)
        assert texts(didlm.load("owner/name@v2")) == texts(model)
        first = "owner/name", {"revision": "v2", "local_files_only": False}
        options = {"allow_patterns": places.FILES, "local_files_only": False}
        assert asked == [first, ("owner/name", {"revision": COMMIT, **options})]
        didlm.load("owner/name@v2")
        assert asked[2:] == [first]  # all of it is there

    def test_a_hub_that_does_not_answer_is_asked_once(
        self, model, tmp_path, cache, monkeypatch, capfd
    ) -> None:
        asked = []

        def silent(*arguments, **options):
            asked.append(arguments)
            raise ConnectionError("Name or service not known")

        answering(monkeypatch, silent)
        with pytest.raises(
            ValueError, match="no folder owner/name, no whole .* hub cannot be reac"
        ):
            locate("owner/name")
        model.save_pretrained(tmp_path / "m")
        snapshot = put(cache, tmp_path / "m")
        assert locate("owner/name") == snapshot
        assert len(asked) == 2
        assert capfd.readouterr() == ("", "")

    def test_a_hub_that_says_no_is_believed(self, cache, monkeypatch) -> None:
        def no(*arguments, **options):
            raise error_of("RepositoryNotFoundError")

        answering(monkeypatch, no)
        with pytest.raises(ValueError, match="the hub has no model owner/name for you"):
            locate("owner/name")


def answering(monkeypatch, answer=lambda *_, **__: None) -> None:
    """Switch the hub on, and let it answer like this when asked for a model."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", answer)


def error_of(name: str, status: int = 404) -> Exception:
    kind = getattr(errors, name)
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    error = kind.__new__(kind)
    error.args, error.response = ("many\nlines",), response
    return error


class FakeHub:
    """Takes what is pushed, and lays it out as the cache of the hub would."""

    def __init__(self, cache: Path, public: bool = False, problem: Exception | None = None) -> None:
        self.cache, self.public, self.problem = cache, public, problem
        self.calls: list[tuple] = []

    def api(self, token: str | None = None) -> "FakeHub":
        self.calls.append(("token", token))
        return self

    def create_repo(self, repo: str, private: bool, exist_ok: bool) -> str:
        if self.problem:
            raise self.problem
        self.calls.append(("create", repo, private, exist_ok))
        return f"https://huggingface.co/{repo}"

    def model_info(self, repo: str) -> SimpleNamespace:
        return SimpleNamespace(private=not self.public)

    def upload_folder(self, repo_id, folder_path, allow_patterns, commit_message) -> None:
        files = {file.name for file in Path(folder_path).iterdir()}
        assert files == set(allow_patterns)
        self.calls.append(("upload", repo_id, commit_message))
        put(self.cache, folder_path, repo_id)


class TestPush:
    @pytest.fixture
    def fake(self, cache, monkeypatch) -> FakeHub:
        fake = FakeHub(cache)
        monkeypatch.setattr(hub, "HfApi", fake.api)
        return fake

    def test_what_is_pushed_can_be_loaded_and_writes_the_same(self, model, fake) -> None:
        url = model.push_to_hub("me/mine", token="secret", message="hello")
        assert url == "https://huggingface.co/me/mine"
        create = ("create", "me/mine", False, True)
        assert fake.calls == [("token", "secret"), create, ("upload", "me/mine", "hello")]
        again = didlm.load("me/mine")
        assert texts(again) == texts(model)
        assert again.card == model.card

    def test_by_the_command(self, model, fake, tmp_path) -> None:
        model.save_pretrained(tmp_path / "m")
        arguments = ["push", "--model", str(tmp_path / "m"), "me/mine", "--private"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout == "https://huggingface.co/me/mine\n"
        assert ("create", "me/mine", True, True) in fake.calls
        written = CliRunner().invoke(
            app, ["generate", "--model", "me/mine", "--num", "2", "--steps", "4", "--seed", "1"]
        )
        assert written.stdout == "\n\n".join(texts(model)) + "\n"

    def test_the_card_says_from_where_to_load_it(self, tokenizer, fake, tmp_path) -> None:
        model = model_of(tokenizer)
        model.push_to_hub("me/mine")
        assert 'didlm.load("me/mine")' in didlm.load("me/mine").card
        model.save_pretrained(tmp_path)
        assert 'didlm.load("PATH")' in (tmp_path / "README.md").read_text()

    def test_a_public_repository_is_no_place_for_a_private_model(self, model, fake) -> None:
        fake.public = True
        with pytest.raises(ValueError, match="me/mine is public on the hub: make it private"):
            model.push_to_hub("me/mine", private=True)
        assert "upload" not in [call[0] for call in fake.calls]

    @pytest.mark.parametrize("repo", ["mine", "a/b/c", "a b/c", ""])
    def test_an_id_that_is_none_is_refused(self, model, fake, repo) -> None:
        with pytest.raises(ValueError, match=f"'{repo}' is no id for the hub: it must be owner/n"):
            model.push_to_hub(repo)

    @pytest.mark.parametrize(
        ("problem", "sentence"),
        [
            (error_of("HfHubHTTPError", 401), "the hub does not know you; log in with `hf auth"),
            (error_of("HfHubHTTPError", 403), "you may not write there"),
            (error_of("RepositoryNotFoundError", 404), "you may not write there"),
            (error_of("HfHubHTTPError", 503), "the hub answered 503"),
            (error_of("BadRequestError", 400), "the hub answered 400"),
            (errors.LocalTokenNotFoundError("x"), "log in with `hf auth login`"),
            (errors.OfflineModeIsEnabled("x"), r"the hub is switched off \(HF_HUB_OFFLINE\)"),
            (ConnectionError("x"), "the Hugging Face hub cannot be reached"),
        ],
    )
    def test_what_the_hub_refuses_is_one_sentence(self, model, fake, problem, sentence) -> None:
        fake.problem = problem
        with pytest.raises(ValueError, match=f"^cannot push to me/mine: {sentence}"):
            model.push_to_hub("me/mine")

    def test_without_the_library_one_is_told_what_to_install(self, model, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(ValueError, match=r"pip install 'didlm\[hub\]'"):
            model.push_to_hub("me/mine")


class TestEverywhere:
    """The other places that take a model."""

    def test_a_judge_of_ours_may_be_on_the_hub(self, tokenizer, tmp_path, cache) -> None:
        model_of(tokenizer, "ar").save_pretrained(tmp_path / "ar")
        put(cache, tmp_path / "ar", "me/judge")
        judge = find_judge("me/judge", tokenizer)
        assert isinstance(judge, OwnJudge)
        assert judge.name == "me/judge"

    def test_evaluate(self, model, tmp_path, cache) -> None:
        model.save_pretrained(tmp_path / "m")
        put(cache, tmp_path / "m")
        (tmp_path / "data.txt").write_text("the dog saw a cat.")
        arguments = ["evaluate", "--model", "owner/name", "--data", str(tmp_path / "data.txt")]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output

    def test_compare_calls_models_of_the_hub_by_their_ids(
        self, model, tmp_path, cache, monkeypatch
    ) -> None:
        from didlm.compare.command import _folders

        monkeypatch.chdir(tmp_path)
        model.save_pretrained(tmp_path / "m")
        model.save_pretrained(tmp_path / "other/m")
        snapshot = put(cache, tmp_path / "m")
        assert _folders(["owner/name", "./m"]) == {"owner/name": snapshot, "m": Path("m")}
        assert list(_folders(["m", "other/m"])) == ["m", "other/m"]
        with pytest.raises(ValueError, match="one model is named twice"):
            _folders(["owner/name", "owner/name@main"])


class TestCard:
    def test_a_model_keeps_its_card(self, model, tmp_path) -> None:
        model.save_pretrained(tmp_path / "a")
        didlm.load(tmp_path / "a").save_pretrained(tmp_path / "b")
        assert (tmp_path / "b/README.md").read_text() == model.card
        didlm.load(tmp_path / "b").save_pretrained(tmp_path / "b", card="another")
        assert didlm.load(tmp_path / "b").card == "another"
        (tmp_path / "b/README.md").unlink()
        assert didlm.load(tmp_path / "b").card == ""

    @pytest.fixture
    def data(self, tmp_path) -> Path:
        file = tmp_path / "secret place" / "tales.jsonl"
        file.parent.mkdir()
        lines = [json.dumps({"text": f"A Cat saw {n} dogs."}) for n in range(40)]
        file.write_text("\n".join(lines))
        return file

    def settings(self, data: Path, **changes) -> Settings:
        return Settings().changed({"data": str(data), "valid": "0.2", "vocabulary": 280} | changes)

    METRICS = {  # noqa: RUF012
        "nats_per_document": 12.3456,
        "stderr": 0.789,
        "nats_per_token": 1.5,
        "bits_per_byte": 0.75,
    }

    def test_it_tells_data_size_settings_and_figures(self, data) -> None:
        yaml = pytest.importorskip("yaml")
        settings = self.settings(data, learning_rate=0.004, dropout=0.25, device="cuda")
        prepared = prepare(settings)
        network = network_for(prepared.method, prepared.tokenizer.vocabulary)
        card = model_card(settings, prepared, self.METRICS, network)
        _, front, body = card.split("---\n", 2)
        matter = yaml.safe_load(front)
        assert matter["library_name"] == "didlm"
        assert matter["pipeline_tag"] == "text-generation"
        assert {"did", "diffusion"} <= set(matter["tags"])
        for said in (
            "| name | tales.jsonl |",
            f"| training | {len(prepared.train)} texts",
            "it gives the text back exactly",
            f"{sum(p.numel() for p in network.parameters()):,}",
            "| bound on unseen documents | |",
            "| nats per text | 12.346 ± 0.789 |",
            "| bits per byte | 0.7500 |",
            "learning_rate = 0.004",
            "dropout = 0.25",
            'didlm.load("PATH")',
            "## Limits",
        ):
            assert said in body, said
        assert "secret place" not in card
        assert "cuda" not in card

    def test_files_are_called_by_their_names(self, data, tokenizer, bert) -> None:
        valid = data.with_name("unseen.jsonl")
        shutil.copy(data, valid)
        settings = self.settings(data, valid=str(valid), tokenizer=str(bert))
        card = model_card(settings, prepare(settings), None)
        assert "valid = 'unseen.jsonl'" in card
        assert "tokenizer = 'vocab.txt'" in card
        assert str(data.parent) not in card
        assert "unseen documents" not in card

    def test_a_lossy_tokenizer_is_told(self, data, bert) -> None:
        settings = self.settings(data, tokenizer=str(bert))
        prepared = prepare(settings)
        assert not prepared.lossless
        card = model_card(settings, prepared, self.METRICS)
        assert "vocab.txt; it does not give the text back exactly" in card
        assert "| bits per byte of normalised text | 0.7500 |" in card


@pytest.fixture
def bert(tmp_path) -> Path:
    """The vocabulary of an uncased tokenizer, in a file."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), ".", "cat", "dog", "saw"]
    (tmp_path / "vocab.txt").write_text("\n".join([*tokens, ""]))
    return tmp_path / "vocab.txt"


class TestNormalisedText:
    TEXTS = ("A Cat saw a dog .", "The  Dog saw 漢 cats .")

    def test_bytes_are_those_of_what_the_tokenizer_gives_back(self, bert) -> None:
        model = model_of(Tokenizer.load(bert), "ar")
        result = evaluate(model, list(self.TEXTS))
        given = [model.tokenizer.decode(model.tokenizer.encode(text)) for text in self.TEXTS]
        assert given[0] == "a cat saw a dog."
        assert result.bytes == sum(len(text.encode()) for text in given)
        assert result.summary()["bits_per_byte_of"] == "normalised text"

    def test_the_measure_is_taken_on_the_documents(self, bert, tokenizer) -> None:
        plain = evaluate(model_of(Tokenizer.load(bert), "ar"), ["a cat saw a dog."])
        assert plain.summary()["bits_per_byte_of"] == "text"
        ours = evaluate(model_of(tokenizer, "ar"), list(self.TEXTS))
        assert ours.summary()["bits_per_byte_of"] == "text"
        assert ours.bytes == sum(len(text.encode()) for text in self.TEXTS)

    def test_a_model_remembers_what_was_found_in_training(self, bert, tmp_path) -> None:
        model_of(Tokenizer.load(bert), "ar", lossless=False).save_pretrained(tmp_path / "m")
        result = evaluate(didlm.load(tmp_path / "m"), ["a cat saw a dog."])
        assert result.summary()["bits_per_byte_of"] == "normalised text"
        config = json.loads((tmp_path / "m/config.json").read_text())
        assert config.pop("lossless") is False
        (tmp_path / "m/config.json").write_text(json.dumps(config))
        assert didlm.load(tmp_path / "m").lossless  # older files do not say
        (tmp_path / "m/config.json").write_text(json.dumps(config | {"lossless": "no"}))
        with pytest.raises(ValueError, match="config.json is damaged: lossless is 'no'"):
            didlm.load(tmp_path / "m")

    def test_nothing_but_unknown_text_has_a_figure(self, bert) -> None:
        figures = evaluate(model_of(Tokenizer.load(bert), "ar"), ["漢"]).summary()
        assert np.isfinite(figures["bits_per_byte"])

    def test_the_table_of_evaluate_says_so(self, bert, tmp_path) -> None:
        model_of(Tokenizer.load(bert), "ar").save_pretrained(tmp_path / "m")
        (tmp_path / "data.txt").write_text(self.TEXTS[0])
        out = tmp_path / "figures.json"
        result = CliRunner().invoke(
            app,
            ["evaluate", "--model", str(tmp_path / "m"), "--data", str(tmp_path / "data.txt"),
             "--json", str(out)],
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert "bits per byte of normalised text" in result.stdout
        assert json.loads(out.read_text())["bits_per_byte_of"] == "normalised text"

    def test_a_comparison_has_a_column_for_each(self) -> None:
        def entry(name: str, lossless: bool, size: int) -> Entry:
            likelihood = Likelihood(
                method="ar", exact=True, nats=np.array([[np.log(2) * 30]]), tight_nats=None,
                lengths=np.array([5]), bytes=size, cut=0, variable_length=False, lossless=lossless,
            )  # fmt: skip
            return Entry(name, "ar", 1, False, False, None, likelihood)

        def table(*entries: Entry) -> dict[str, list[str]]:
            found, _ = all_tables(entries, None, None)
            return dict(zip(found.headings, zip(*found.rows, strict=True), strict=True))

        label = "bits per byte of normalised text"
        one, two = entry("one", True, 10), entry("two", False, 20)
        assert table(one)["bits per byte"] == ("3.0000",)
        assert label not in table(one)
        assert table(two)[label] == ("1.5000",)
        assert "bits per byte" not in table(two)
        both = table(one, two)
        assert both["bits per byte"] == ("3.0000", "")
        assert both[label] == ("", "1.5000")
