"""Samples that tables and listings share: under which names, after which prompts, which figures."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.quality import Verdict
from didlm.generate.template import Blank, start
from didlm.reproduce import samples, workshop
from didlm.reproduce.experiment import Experiment, experiments
from didlm.reproduce.kinds import kind
from didlm.reproduce.samples import Request, exact_prompts, figure, figures_of
from didlm.reproduce.scale import find_scale, scales
from didlm.reproduce.sources import Sources
from didlm.reproduce.workshop import Workshop
from didlm.train.prepare import prepare
from paper_data import write_data

SHARING = [each for each in experiments().values() if each.kind in ("generation", "lengths")]
LISTINGS = [each for each in experiments().values() if each.kind == "listing"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Workshop:
    folder = tmp_path_factory.mktemp("samples")
    return Workshop(folder / "out", find_scale("smallest"), Sources(write_data(folder)))


def pretended(asked: list[Request]):
    """In the place of writing samples: notes what was asked for, and gives figures of as many."""

    def measured(shop: Workshop, request: Request) -> dict:
        asked.append(request)
        num = request.count(shop.scale)
        figures = ["entropy_bits", "seconds", "network_seconds", "sampling_seconds", "length_mean"]
        texts = {"texts": ["a cat"] * num, "prompts": ["a"] * num}
        numbers = {"perplexities": [2.0] * num, "lengths": list(range(1, num + 1)), "samples": num}
        return dict.fromkeys(figures, 1.0) | texts | numbers

    return measured


class TestKeys:
    @pytest.mark.parametrize("scale", scales())
    def test_no_key_stands_for_two_counts(self, scale, tmp_path, monkeypatch) -> None:
        """Whatever is run first, in one folder: a listing of five samples is not a table's."""
        asked: list[Request] = []
        monkeypatch.setattr(samples, "_measured", pretended(asked))
        monkeypatch.setattr("didlm.reproduce.lengths.known_lengths", lambda *_: [1, 2, 3])
        monkeypatch.setattr("didlm.reproduce.listing.growth", lambda *_, **__: {})
        shop = Workshop(tmp_path, find_scale(scale), Sources({}), changes={"device": "cpu"})
        for experiment in LISTINGS + SHARING:
            kind(experiment.kind)(shop, experiment)
        counts = defaultdict(set)
        for request in asked:
            counts[request.key(shop.scale)].add((request.count(shop.scale), request.batch))
        assert counts
        assert all(len(different) == 1 for different in counts.values())
        for experiment in SHARING:
            for request in requests_of(experiment):
                found = figures_of(shop, request)["samples"]
                assert found == request.count(shop.scale), experiment.name
                assert scale != "paper" or found == experiment.options["num"]

    def test_tables_about_the_same_samples_share_them(self) -> None:
        scale = find_scale("paper")
        keys = [{request.key(scale) for request in requests_of(experiments()[name])}
                for name in ("generation", "inference")]  # fmt: skip
        assert keys[0] == keys[1]

    def test_whatever_differs_is_in_the_key(self) -> None:
        scale = find_scale("paper")
        some = Request(run="a", steps=8, num=16, batch=4)
        changes = {"run": "b", "steps": 9, "num": 5, "batch": 8, "grid": "cosine", "top_p": 0.9}
        others = [Request(**(vars(some) | {name: value})) for name, value in changes.items()]
        others.append(Request(**(vars(some) | {"prompt": 3})))
        assert len({each.key(scale) for each in (some, *others)}) == len(others) + 1


def requests_of(experiment: Experiment) -> list[Request]:
    """What a table asks for."""
    found = []
    for row in experiment.rows:
        if row.ratio or row.figure == "data":
            continue
        steps = [row.more["steps"]] if "steps" in row.more else experiment.columns
        prompt = row.more.get("prompt", 0)
        found += [Request(row.run, int(n), prompt=prompt, **experiment.options) for n in steps]
    return found


class TestPrompts:
    @pytest.mark.parametrize("prompt", [256, 512, 768])
    def test_they_have_exactly_as_many_tokens(self, prompt, shop) -> None:
        """When they are given to a model; and they are the beginnings of held-out chunks."""
        request = Request(run="owt-did-small", steps=4, num=2, batch=2, prompt=prompt)
        length = shop.scale.tokens(prompt)
        prepared = prepare(shop.settings(request.run).changed({"valid_documents": 1000}))
        beginnings = [chunk[:length].tolist() for chunk in prepared.valid]
        found = samples._prompts(shop, request, 2)
        assert len(found) == 2
        for text in found:
            given = start([text, Blank()], prepared.tokenizer).tokens.tolist()
            assert len(given) == length
            assert given in beginnings

    def test_those_that_would_change_are_passed_over(self) -> None:
        tokenizer = Tokenizer.train_bpe(["the cat saw the dog and the cat"] * 3, 280)
        whole = tokenizer.encode("the cat saw the dog")
        ended = np.concatenate([tokenizer.encode("the"), [tokenizer.separator], whole])
        cut = np.array([tokenizer.encode(letter)[0] for letter in "the cat saw"])
        (found,) = exact_prompts([ended, cut, whole], 3, tokenizer)
        assert found == tokenizer.decode(whole[:3])

    def test_too_few_are_refused_before_anything_is_trained(self, shop, monkeypatch) -> None:
        monkeypatch.setattr(workshop, "train", lambda *_, **__: pytest.fail("trained"))
        monkeypatch.setattr(Request, "count", lambda *_: 500)
        request = Request(run="owt-did-small", steps=4, num=500, batch=2, prompt=256)
        with pytest.raises(ValueError, match="and 500 are needed: .* --data openwebtext=PATH"):
            figures_of(shop, request)


class TestFigures:
    def test_texts_without_tokens_are_counted_as_excluded(self) -> None:
        verdict = Verdict("judge", np.array([0.0, 2.0, 99.0]), np.array([0, 1, 2]))
        found = {"perplexities": samples._each(verdict), "texts_not_judged": verdict.left_out}
        assert len(found["perplexities"]) == 2
        assert figure(found, "Excluded (%)") == pytest.approx(100 * 2 / 3)
        assert figure(found, "PPL*") == pytest.approx(np.exp(2))

    def test_if_there_is_nothing_else_all_are_excluded(self) -> None:
        found = {"perplexities": [], "texts_not_judged": 4}
        assert figure(found, "Excluded (%)") == 100
        assert figure(found, "PPL*") is None
        assert figure({"perplexities": []}, "Excluded (%)") is None


class TestNotes:
    """What a reader must know who compares ours with the paper's stands below the table."""

    @pytest.mark.parametrize("name", sorted(experiments()))
    def test_tables_say_where_ours_differs(self, name) -> None:
        experiment = experiments()[name]
        notes = " ".join(experiment.notes)
        runs = [row.run for row in experiment.rows]
        assert ("Sampling (s)" in notes) == any(
            row.figure == "Sampling (s)" for row in experiment.rows
        )
        assert ("--set accumulate" in notes) == (experiment.kind == "speed")
        assert ("ROCStories" in notes) == any(run.startswith("stories-") for run in runs)
        assert ("RADD, whose figures" in notes) == (experiment.kind == "perplexity")
        assert ("without examples" in notes) == (experiment.kind in ("downstream", "gsm8k"))

    def test_the_page_asks_gsm8k_without_examples_as_the_paper_does(self) -> None:
        """By its own setting that task has five."""
        page = (Path(__file__).parents[1] / "docs/reproduce.md").read_text()
        (command,) = [line for line in page.splitlines() if "--tasks gsm8k" in line]
        assert " --shots 0 " in command
