"""The evaluation harness itself, on tasks that are written here, against direct computations."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from lm_eval.api.instance import Instance
from typer.testing import CliRunner

from didlm.cli import app
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.choices import Question, option_scores
from didlm.evaluate.likelihood import evaluate
from didlm.generate.template import Blank
from didlm.harness import running
from didlm.harness.model import HarnessModel, answer_of
from didlm.harness.running import run_harness
from didlm.methods.registry import OURS
from didlm.pretrained import load
from didlm.reproduce import downstream as tasks
from didlm.reproduce.downstream import TASKS, downstream, local_task, read_choices
from didlm.reproduce.experiment import experiments
from didlm.reproduce.scale import find_scale
from didlm.reproduce.sources import Sources
from didlm.reproduce.workshop import Workshop
from test_methods import TEXT, model_for

QUESTIONS = [
    {"question": "a cat", "choices": ["saw a dog", "and the dog saw", "dog"], "answer": 0},
    {"question": "the dog saw", "choices": ["the cat.", "a"], "answer": 1},
    {"question": "a dog", "choices": ["saw the cat", "a a a a"], "answer": 0},
    {"question": "the", "choices": ["cat and", "dog", "saw saw", "cat. a"], "answer": 3},
]
BOUNDED = [name for name in OURS if name != "ilm"]

# What the harness is built on warns of many things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe([TEXT] * 3, 280)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tokenizer) -> Path:
    """Tasks of both kinds, and models of all methods."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = [json.dumps(question) for question in QUESTIONS]
    (folder / "choices.jsonl").write_text("\n".join(lines))
    task = local_task("mine", folder / "choices.jsonl", folder / "data")
    (folder / "mine.yaml").write_text(yaml.safe_dump(task))
    words = [json.dumps({"text": text, "next": "a"}) for text in ("a cat", "the dog saw", "a")]
    (folder / "words.jsonl").write_text("\n".join(words))
    task = {
        "task": "words_local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "words.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{next}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 4},
        "metric_list": [{"metric": "exact_match"}],
    }
    (folder / "words.yaml").write_text(yaml.safe_dump(task))
    for name in OURS:
        model_for(name, tokenizer).save_pretrained(folder / "models" / name)
    return folder


def direct(model, draws: int, seed: int) -> list[np.ndarray]:
    """The scores of all options, as the harness puts them: a space before each option."""
    questions = [
        Question([each["question"]] * len(each["choices"]), [f" {c}" for c in each["choices"]])
        for each in QUESTIONS
    ]
    return option_scores(model, questions, draws, seed)


class TestChoices:
    @pytest.mark.parametrize("name", BOUNDED)
    def test_the_harness_finds_what_a_direct_computation_finds(
        self, name, place, tokenizer
    ) -> None:
        model = model_for(name, tokenizer)
        found = run_harness(model, ["mine_local"], include=place, draws=4, seed=5)
        scores = direct(model, 4, 5)
        right = [
            int(score.argmax()) == each["answer"]
            for score, each in zip(scores, QUESTIONS, strict=True)
        ]
        assert found["results"]["mine_local"]["acc,none"] == np.mean(right)
        sizes = [np.array([len(c) for c in each["choices"]]) for each in QUESTIONS]
        by_length = [int((s / n).argmax()) for s, n in zip(scores, sizes, strict=True)]
        right = [best == each["answer"] for best, each in zip(by_length, QUESTIONS, strict=True)]
        assert found["results"]["mine_local"]["acc_norm,none"] == np.mean(right)
        for sample in found["samples"]["mine_local"]:
            values = [float(response[0]) for response in sample["filtered_resps"]]
            assert values == pytest.approx(scores[sample["doc_id"]].tolist(), abs=1e-4)

    def test_exact_likelihoods_are_those_of_evaluate(self, tokenizer) -> None:
        model = model_for("ar", tokenizer)
        scores = direct(model, 1, 0)
        for score, each in zip(scores, QUESTIONS, strict=True):
            for value, choice in zip(score, each["choices"], strict=True):
                exact = evaluate(model, [f" {choice}"], prompts=[each["question"]])
                assert value == pytest.approx(-exact.nats[0, 0], abs=1e-4)

    def test_bounds_are_those_of_evaluate_up_to_their_noise(self, tokenizer) -> None:
        """By another way and other noise: what the harness gets is the bound of one option."""
        model = model_for("did", tokenizer)
        prompt, option = "a cat", " saw a dog and the dog saw"
        question = [Question([prompt], [option])]
        scores = [option_scores(model, question, 16, seed)[0][0] for seed in range(12)]
        nats = -evaluate(model, [option], prompts=[prompt], replicates=120, seed=5).nats[:, 0]
        error = np.hypot(np.std(scores) / np.sqrt(12), np.std(nats) / np.sqrt(120))
        assert abs(np.mean(scores) - nats.mean()) < 4 * error
        assert error < 0.1 * abs(nats.mean())  # sharp enough to notice an end that is not paid for

    def test_bounds_are_unbiased_whatever_is_common(self, tokenizer) -> None:
        model = model_for("did", tokenizer)
        question = [Question(["a cat"] * 2, [" saw a dog", " and the dog saw the cat"])]
        together = [option_scores(model, question, 8, seed)[0] for seed in range(30)]
        apart = [option_scores(model, question, 8, seed, common=False)[0] for seed in range(30)]
        error = np.hypot(np.std(together, 0), np.std(apart, 0)) / np.sqrt(30)
        assert (abs(np.mean(together, 0) - np.mean(apart, 0)) < 4 * error).all()

    @pytest.mark.parametrize("name", ["did", "did-fixed", "radd"])
    def test_common_noise_makes_differences_sharper(self, name, tokenizer) -> None:
        """Of options that are as long; of others it is less, see benchmarks/choices.py."""
        model = model_for(name, tokenizer)
        question = [Question(["a cat"] * 2, [" saw a dog and the dog", " saw a cat and the dog"])]

        def variance(common: bool) -> float:
            scores = [option_scores(model, question, 4, seed, common)[0] for seed in range(60)]
            return float(np.var(np.diff(scores, axis=1)))

        assert variance(common=True) < 0.75 * variance(common=False)

    def test_options_do_not_depend_on_the_other_questions(self, tokenizer) -> None:
        model = model_for("radd", tokenizer)
        some = [Question(["a"] * 2, [" cat", " dog saw"]), Question(["the"] * 2, [" dog", " a"])]
        scores = option_scores(model, some, 4)
        assert scores[0] == pytest.approx(option_scores(model, some[:1], 4)[0], abs=1e-4)

    def test_long_prompts_lose_their_beginning(self, tokenizer) -> None:
        model = model_for("did", tokenizer)
        long = [Question(["the cat " * 200 + TEXT.strip()], [" a dog"])]
        assert np.isfinite(option_scores(model, long, 2)[0]).all()

    def test_without_a_bound_there_is_a_sentence(self, place, tokenizer) -> None:
        with pytest.raises(ValueError, match="the method 'ilm' has no bound on the likelihood"):
            run_harness(model_for("ilm", tokenizer), ["mine_local"], include=place)


class TestGeneration:
    @pytest.mark.parametrize("name", OURS)
    def test_the_harness_finds_what_a_direct_computation_finds(
        self, name, place, tokenizer
    ) -> None:
        model = model_for(name, tokenizer)
        found = run_harness(model, ["words_local"], include=place, seed=3, steps=8)
        blank = Blank(0, 4) if model.method.length is None else Blank()
        prompts = ["a cat", "the dog saw", "a"]
        samples = model.infill_each([[prompt, blank] for prompt in prompts], seed=3, steps=8)
        answers = [s.text[len(p) :].split(".")[0] for s, p in zip(samples, prompts, strict=True)]
        written = found["samples"]["words_local"]
        assert [sample["resps"][0][0] for sample in written] == answers
        right = [answer == "a" for answer in answers]
        assert found["results"]["words_local"]["exact_match,none"] == np.mean(right)

    def test_what_follows_the_prompt_ends_where_it_is_told_to(self, tokenizer) -> None:
        model = model_for("did", tokenizer)
        assert answer_of(model, "a cat saw. it", [], "a cat", ["\n", "."]) == " saw"
        tokens = tokenizer.encode("A cat saw").tolist()
        prompt = len(tokenizer.encode("A cat"))
        assert answer_of(model, "other", tokens, "A cat") == tokenizer.decode(tokens[prompt:])


class TestRolling:
    def test_it_is_the_bound_of_whole_texts(self, tokenizer) -> None:
        model = model_for("ar", tokenizer)
        texts = [TEXT.strip(), "the dog"]
        requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
        found = HarnessModel(model).loglikelihood_rolling(requests)
        assert found == pytest.approx((-evaluate(model, texts).nats[0]).tolist(), rel=1e-5)

    def test_long_texts_come_in_pieces(self, tokenizer) -> None:
        model = model_for("ar", tokenizer)
        model.longest = 10
        tokens = tokenizer.encode(TEXT * 2)
        pieces = [tokenizer.decode(tokens[at : at + 10]) for at in range(0, len(tokens), 10)]
        expected = -sum(evaluate(model, [piece]).nats[0, 0] for piece in pieces)
        request = Instance("loglikelihood_rolling", {}, (TEXT * 2,), 0)
        assert HarnessModel(model).loglikelihood_rolling([request]) == [pytest.approx(expected)]


class TestCommand:
    def test_both_kinds_of_tasks(self, place, tmp_path) -> None:
        out = tmp_path / "figures.json"
        model = load(place / "models/did")
        model.defaults = {"rate_scale": 0.9}
        model.save_pretrained(tmp_path / "suited")
        arguments = ["--model", tmp_path / "suited", "--tasks", "mine_local,words_local"]
        arguments += ["--include", place, "--draws", 2, "--steps", 4, "--json", out]
        result = CliRunner().invoke(app, ["lm-eval", *map(str, arguments)])
        assert result.exit_code == 0, (result.output, result.exception)
        found = json.loads(out.read_text())
        assert found["likelihood"] == "bound"
        settings = {name: found["settings"][name] for name in ("steps", "top_p", "rate_scale")}
        assert settings == {"steps": 4, "top_p": 1, "rate_scale": 0.9}
        assert set(found["results"]) == {"mine_local", "words_local"}
        assert "lower bounds" in " ".join(result.stdout.split())
        assert "acc_norm" in result.stdout

    def test_sentences(self, place, monkeypatch) -> None:
        arguments = ["lm-eval", "--model", str(place / "models/did"), "--tasks"]
        own = running._manager(place, own_only=True)  # all of the harness's take seconds to find
        with monkeypatch.context() as patch:
            patch.setattr(running, "_manager", lambda *_, **__: own)
            result = CliRunner().invoke(app, [*arguments, "no_such_task"])
        assert "the harness has no task 'no_such_task'" in str(result.exception)
        assert "names no task" in str(CliRunner().invoke(app, [*arguments, " ,"]).exception)
        monkeypatch.setitem(__import__("sys").modules, "lm_eval", None)
        result = CliRunner().invoke(app, [*arguments, "mine_local"])
        assert "pip install 'didlm[lm-eval]'" in str(result.exception)


class TestLocalFiles:
    def test_a_task_that_cannot_be_had_names_the_option(self, place, tmp_path, monkeypatch) -> None:
        """And nothing is trained for it before."""

        class Unreachable:
            def match_tasks(self, names: list[str]) -> list[str]:
                return names

            def load(self, names: list[str]) -> None:
                raise ConnectionError("Couldn't reach it")

        monkeypatch.setattr(running, "_manager", lambda *_, **__: Unreachable())
        shop = Workshop(tmp_path, find_scale("smallest"), Sources({}))
        with pytest.raises(ValueError, match="'arc_challenge': Couldn't reach it; or name a file"):
            downstream(shop, experiments()["downstream"])
        assert not (tmp_path / "runs").exists()

    def test_the_table_says_which_they_are_and_how_they_were_asked(
        self, place, tmp_path, monkeypatch
    ) -> None:
        """And the harness is told to give no examples, as in the paper."""
        told = {}

        def run(model, tasks, **options):
            told.update(options)
            names = [task if isinstance(task, str) else task["task"] for task in tasks]
            return {"results": {name: {"acc,none": 0.5} for name in names}}

        monkeypatch.setattr(tasks, "run_harness", run)
        monkeypatch.setattr(tasks, "check_task", lambda name: None)
        monkeypatch.setattr(Workshop, "model", lambda *_, **__: None)
        text = "Which? Answer1: a Answer2: b\n\nAnswer format: answer1/answer2"
        told_file = tmp_path / "arc.json"
        told_file.write_text(json.dumps([{"instruction": text, "answer": "answer2"}]))
        local = {"piqa": place / "choices.jsonl", "arc_challenge": told_file}
        shop = Workshop(tmp_path / "out", find_scale("smallest"), Sources(local))
        outcome = downstream(shop, experiments()["downstream"])
        assert told["shots"] == 0
        assert outcome.values[0] == [50.0] * (len(TASKS) + 1)
        arc, piqa = outcome.notes
        assert arc.startswith("Arc-c is not the harness's task")
        assert "1 questions of arc.json" in arc
        assert "an instruction that names all answers" in arc
        assert piqa.startswith("Piqa is not the harness's task")
        assert "4 questions of choices.jsonl, asked as the question alone" in piqa

    def test_without_any_there_is_nothing_to_say(self) -> None:
        assert tasks.local_notes(Sources({})) == []

    @pytest.mark.parametrize(("shots", "examples"), [(None, 1), (0, 0)])
    def test_no_examples_are_given_whatever_a_task_says(
        self, shots, examples, place, tokenizer, monkeypatch
    ) -> None:
        asked = []

        def scores(model, questions, *_):
            asked.extend(questions)
            return [np.zeros(len(each.options)) for each in questions]

        monkeypatch.setattr("didlm.harness.model.option_scores", scores)
        task = local_task("mine", place / "choices.jsonl", place / "data")
        task |= {"num_fewshot": 1, "fewshot_split": "test"}
        run_harness(model_for("did", tokenizer), [task], shots=shots)
        before = [each.prompts[0].count("\n\n") for each in asked]
        assert before == [examples] * len(QUESTIONS)

    def test_instructions_are_questions_too(self, tmp_path) -> None:
        file = tmp_path / "arc.json"
        text = "Which? Answer1: a Answer2: b\n\nAnswer format: answer1/answer2"
        file.write_text(json.dumps([{"instruction": text, "input": "", "answer": "answer2"}]))
        (found,) = read_choices(file)
        assert found["choices"] == [
            "the correct answer is answer1",
            "the correct answer is answer2",
        ]
        assert (found["question"], found["answer"]) == (text, 1)

    def test_broken_ones_are_named(self, tmp_path) -> None:
        file = tmp_path / "arc.jsonl"
        file.write_text(json.dumps(QUESTIONS[0]) + "\n" + json.dumps({"question": "a"}))
        with pytest.raises(ValueError, match="question 2 of .*arc.jsonl is neither"):
            read_choices(file)
        file.write_text("[]")
        with pytest.raises(ValueError, match="arc.jsonl has no questions"):
            read_choices(file)
