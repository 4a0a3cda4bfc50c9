"""The service as clients meet it: the API, the same texts as in Python, errors in words."""

import http.client
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from didlm.serve.limits import Limits
from serving import Service, serving, tiny_model
from test_methods import model_for

PROMPT, SUFFIX = "Once upon a time", " they lived happily."
TEMPLATE = "Once upon [...2-6] happiness [_] and [...]"


@pytest.fixture(scope="module")
def service():
    with serving(tiny_model(), limits=Limits(batch=64, waiting=256)) as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        yield client


class TestCompletions:
    def test_the_openai_client_gets_what_python_gets(self, service, client) -> None:
        settings = {"seed": 5, "temperature": 0.8, "top_p": 0.9}
        answer = client.completions.create(
            model="tiny", prompt=PROMPT, suffix=SUFFIX, n=3, extra_body={"steps": 7}, **settings
        )
        expected = service.model.generate(PROMPT, SUFFIX, 3, steps=7, **settings)
        assert [PROMPT + c.text + SUFFIX for c in answer.choices] == [s.text for s in expected]
        assert [c.index for c in answer.choices] == [0, 1, 2]
        assert {c.finish_reason for c in answer.choices} == {"stop"}
        inserted = sum(born > 0 for sample in expected for born in sample.born)
        assert answer.usage.completion_tokens == inserted
        assert answer.model == "tiny"

    def test_a_list_of_prompts_is_as_many_requests(self, service, client) -> None:
        answer = client.completions.create(
            model="tiny", prompt=["Once", "there was"], n=2, seed=1, extra_body={"steps": 4}
        )
        texts = [
            sample.text.removeprefix(prompt)
            for prompt in ("Once", "there was")
            for sample in service.model.generate(prompt, num_samples=2, seed=1, steps=4)
        ]
        assert [choice.text for choice in answer.choices] == texts
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]

    def test_max_tokens_closes_the_gaps(self, service, client) -> None:
        answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=3, seed=2)
        given = len(service.model.tokenizer.encode(PROMPT))
        [expected] = service.model.generate(PROMPT, seed=2, max_length=given + 3)
        assert PROMPT + answer.choices[0].text == expected.text
        assert answer.usage.completion_tokens == 3
        assert answer.choices[0].finish_reason == "length"
        free = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=9999, seed=2)
        assert PROMPT + free.choices[0].text == service.model.generate(PROMPT, seed=2)[0].text

    def test_stop_cuts_afterwards(self, client) -> None:
        whole = client.completions.create(model="tiny", prompt=PROMPT, seed=3).choices[0].text
        stop = whole[len(whole) // 2 :][:2]
        cut = client.completions.create(model="tiny", prompt=PROMPT, seed=3, stop=[stop, "\0\0"])
        assert cut.choices[0].text == whole[: whole.index(stop)]
        assert cut.choices[0].finish_reason == "stop"

    def test_a_stream_is_one_chunk_a_text(self, client) -> None:
        settings = {"model": "tiny", "prompt": PROMPT, "seed": 4, "n": 2}
        whole = client.completions.create(**settings)
        chunks = list(
            client.completions.create(
                **settings, stream=True, stream_options={"include_usage": True}
            )
        )
        assert [c.choices[0].text for c in chunks[:2]] == [c.text for c in whole.choices]
        assert chunks[2].usage == whole.usage
        assert chunks[2].choices == []
        assert len(chunks) == 3

    def test_a_temperature_of_zero_is_the_likeliest_token(self, service, client) -> None:
        answer = client.completions.create(model="tiny", prompt=PROMPT, seed=3, temperature=0)
        expected = service.model.generate(PROMPT, seed=3, temperature=1e-30)[0].text
        assert PROMPT + answer.choices[0].text == expected

    def test_null_is_no_choice(self, client) -> None:
        whole = client.completions.create(model="tiny", prompt=PROMPT, seed=3)
        nothing = dict.fromkeys(
            ("suffix", "max_tokens", "n", "temperature", "top_p", "stop", "echo")
        )
        again = client.completions.create(model="tiny", prompt=PROMPT, seed=3, **nothing)
        assert again.choices == whole.choices

    @pytest.mark.parametrize("field", [{"logprobs": 2}, {"echo": True}, {"best_of": 3}])
    def test_what_cannot_be_is_said(self, client, field) -> None:
        with pytest.raises(openai.BadRequestError, match=f"{next(iter(field))} .*not supported"):
            client.completions.create(model="tiny", prompt=PROMPT, **field)

    def test_models_are_listed_and_others_are_not_there(self, client) -> None:
        assert [model.id for model in client.models.list()] == ["tiny"]
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-9': this is 'tiny'"):
            client.completions.create(model="gpt-9", prompt=PROMPT)


class TestInfilling:
    def test_is_what_python_gives(self, service) -> None:
        asked = {"template": TEMPLATE, "n": 2, "seed": -3, "steps": 9, "top_p": 0.7}
        status, answer = service.call("/v1/infill", asked)
        assert status == 200
        expected = service.model.infill(TEMPLATE, 2, seed=-3, steps=9, top_p=0.7)
        assert [c["text"] for c in answer["choices"]] == [s.text for s in expected]
        assert [c["born"] for c in answer["choices"]] == [s.born for s in expected]
        assert all("".join(c["pieces"]) == c["text"] for c in answer["choices"])

    def test_what_is_not_chosen_is_as_the_model_suggests(self) -> None:
        model = tiny_model()
        model.defaults = {
            "top_p": 0.5,
            "temperature": 0.7,
            "rate_scale": 1.3,
            "repeats": False,
            "position_temperature": 0.8,
        }
        with serving(model) as service:
            assert service.call("/v1/models")[1]["data"][0]["defaults"] == model.defaults
            for chosen in ({}, {"top_p": 1.0}, {"temperature": 1.2}):
                asked = {"template": TEMPLATE, "seed": 4, "steps": 9, **chosen}
                [choice] = service.call("/v1/infill", asked)[1]["choices"]
                options = {**model.defaults, **chosen}
                [expected] = model.plain().infill(TEMPLATE, seed=4, steps=9, **options)
                assert choice["text"] == expected.text

    def test_events_tell_how_it_grows(self, service) -> None:
        asked = {"template": TEMPLATE, "n": 2, "seed": 8, "steps": 9, "stream": True}
        events = service.events("/v1/infill", asked)
        (first, start), *steps, (last, end) = events
        assert (first, last) == ("start", "done")
        texts = [list(start["tokens"]) for _ in range(start["samples"])]
        assert len(start["open"]) == len(start["tokens"]) + 1
        assert sum(start["open"]) == 3
        seen = [0, 0]
        for name, step in steps:
            assert name == "step"
            assert step["step"] == seen[step["sample"]] + 1
            seen[step["sample"]] += 1
            for place, token, text in step["insert"]:
                assert isinstance(text, str)
                texts[step["sample"]].insert(place, token)
        assert texts == [choice["tokens"] for choice in end["choices"]]
        assert seen == [choice["steps"] for choice in end["choices"]]

    def test_a_seed_is_drawn_and_named(self, service) -> None:
        _, one = service.call("/v1/infill", {"template": "[...]"})
        _, other = service.call("/v1/infill", {"template": "[...]"})
        assert one["seed"] != other["seed"]
        _, again = service.call("/v1/infill", {"template": "[...]", "seed": one["seed"]})
        assert again["choices"] == one["choices"]


class TestQuestions:
    def test_a_score_is_pythons(self, service) -> None:
        asked = {"text": "Once upon a time", "given": "Once [...]", "draws": 16, "seed": 2}
        status, answer = service.call("/v1/score", asked)
        expected = service.model.score("Once upon a time", "Once [...]", 16, 2)
        assert status == 200
        assert answer["log_likelihood"] == pytest.approx(expected.log_likelihood)
        assert answer["tokens"] == expected.tokens

    def test_gaps_are_pythons(self, service) -> None:
        status, answer = service.call("/v1/gaps", {"text": PROMPT, "t": 0.3, "top": 2})
        expected = service.model.gaps(PROMPT, 0.3, 2)
        assert status == 200
        assert [gap["rate"] for gap in answer["gaps"]] == pytest.approx([g.rate for g in expected])
        assert [gap["likely"][0]["text"] for gap in answer["gaps"]] == [
            g.likely[0][0] for g in expected
        ]

    def test_nothing_is_missing_in_closed_gaps(self, service) -> None:
        tokens = service.model.tokenizer.encode(PROMPT).tolist()
        gaps = [False] * len(tokens) + [True]
        asked = {"tokens": tokens, "given": [True] * len(tokens), "open": gaps, "t": 0.9}
        status, answer = service.call("/v1/gaps", asked)
        assert status == 200
        rates = [gap["rate"] for gap in answer["gaps"]]
        assert rates[:-1] == [0.0] * len(tokens)
        assert rates[-1] > 0

    def test_an_animation_can_be_kept(self, service) -> None:
        [sample] = service.model.generate(PROMPT, seed=1, steps=4)
        times = [1 - i / sample.steps for i in range(sample.steps + 1)]
        asked = {"tokens": sample.tokens, "born": sample.born, "times": times}
        status, gif = service.call("/v1/animation", asked)
        assert status == 200
        assert gif.startswith(b"GIF89a")
        wrong = {**asked, "born": sample.born[1:]}
        assert service.call("/v1/animation", wrong)[0] == 400


def test_texts_do_not_depend_on_what_else_is_asked(service) -> None:
    """Requests of all kinds at the same time, and each gets what it gets alone."""
    settings = [
        {"steps": steps, "temperature": temperature, "top_p": top_p}
        for steps in (3, 10, 30)
        for temperature in (0.5, 1.0)
        for top_p in (0.8, 1.0)
    ]
    templates = [TEMPLATE, "[...]", "Once [...] happily.", "[...3] time [_]"]
    asked = [
        {"template": templates[i % 4], "seed": i, "n": 1 + i % 3, **settings[i % len(settings)]}
        for i in range(24)
    ]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda each: service.call("/v1/infill", each), asked))
    assert {status for status, _ in answers} == {200}
    texts, expected = [], []
    for each, (_, answer) in zip(asked, answers, strict=True):
        texts += [choice["text"] for choice in answer["choices"]]
        expected += [
            sample.text
            for sample in service.model.infill(
                each["template"], each["n"], each["seed"], **settings[each["seed"] % len(settings)]
            )
        ]
    same = sum(one == other for one, other in zip(texts, expected, strict=True))
    assert same >= 0.995 * len(texts)
    passes = service.value("didlm_passes_total")
    assert service.value("didlm_text_passes_total") > 2 * passes  # they were together


def test_texts_of_one_length_are_served_too() -> None:
    with serving(tiny_model(length=16)) as service:
        asked = {"template": "Once [...]", "n": 2, "seed": 3, "steps": 6}
        status, answer = service.call("/v1/infill", asked)
        assert status == 200
        expected = service.model.infill("Once [...]", 2, 3, steps=6)
        assert [c["text"] for c in answer["choices"]] == [s.text for s in expected]
        assert {len(c["tokens"]) for c in answer["choices"]} == {16}
        assert {c["finish_reason"] for c in answer["choices"]} == {"stop"}
        status, answer = service.call("/v1/infill", {**asked, "max_tokens": 3})
        assert status == 400
        assert "all texts of this model have one length" in answer["error"]["message"]


@pytest.mark.parametrize("name", ["ar", "ilm", "radd"])
def test_other_methods_are_served_too(name) -> None:
    model = model_for(name, tiny_model().tokenizer)
    with serving(model) as service:
        asked = [
            {"template": "Once[...]", "n": 2, "seed": seed, "steps": 3 + 5 * seed, "stream": True}
            for seed in range(4)
        ]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda each: service.events("/v1/infill", each), asked))
        for each, events in zip(asked, answers, strict=True):
            expected = model.infill("Once[...]", 2, each["seed"], steps=each["steps"])
            choices = events[-1][1]["choices"]
            assert [c["text"] for c in choices] == [s.text for s in expected]
            grown = [list(events[0][1]["tokens"]) for _ in choices]
            for _, step in events[1:-1]:
                for place, token, _ in step["insert"]:
                    grown[step["sample"]].insert(place, token)
            for text, choice in zip(grown, choices, strict=True):
                assert text[: len(choice["tokens"])] == choice["tokens"]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("path", "body", "words"),
        [
            ("completions", {"prompt": [1, 2]}, "tokens are not taken"),
            ("completions", {"prompt": []}, "tokens are not taken"),
            ("completions", {"prompt": "a", "n": 0}, "'n': input should be greater"),
            ("completions", {"prompt": "a", "n": 17}, "one request may ask for 16 texts: got 17"),
            ("completions", {"stop": ["a"] * 5}, "'stop': list should have at most 4 items"),
            ("completions", {"stop": 5}, "'stop': input should be a valid string"),
            ("completions", {"promt": "a"}, "there is no field 'promt'"),
            ("completions", {"top_p": 0}, "'top_p': input should be greater than 0"),
            ("completions", {"temperature": "1"}, "'temperature': input should be a valid number"),
            ("completions", {"prompt": "word " * 900}, "more than the 256 that the model can read"),
            ("completions", {"logit_bias": {"1": 2}}, "logit_bias is not supported"),
            ("infill", {"template": "no blank"}, "there is no blank in the template"),
            ("infill", {"template": "[...5-2]"}, "is impossible"),
            ("infill", {"template": "a [...0]"}, "the blank [...0] has no room for any token"),
            ("infill", {"template": "[...]", "steps": -1}, "'steps': input should be greater"),
            ("infill", {"template": "[...]", "steps": 10**9}, "at most 1024 steps are taken"),
            ("infill", {"template": "a[_]" * 10_000}, "may have 64 blanks: got 10000"),
            ("infill", {"template": "[...300-300]"}, "more than the maximum of 256"),
            ("infill", {}, "'template' is missing"),
            ("infill", [], "the body is not a JSON object"),
            ("infill", {"template": "\ud800[...]"}, "unable to parse raw data as a unicode string"),
            ("score", {"text": "a", "draws": 4096}, "a score may take 256 draws"),
            ("score", {"text": "abc", "given": "x[...]"}, "does not match the template"),
            ("gaps", {}, "give either a text or its tokens"),
            ("gaps", {"tokens": [10**6]}, "there is no token 1000000"),
            ("gaps", {"tokens": [1], "given": [True, True]}, "'given' needs as many entries"),
            ("gaps", {"text": "a", "t": 0}, "'t': input should be greater than 0"),
            ("gaps", {"text": "word " * 900}, "trained on texts of at most 256"),
        ],
    )
    def test_is_said_in_a_sentence(self, service, path, body, words) -> None:
        status, answer = service.call(f"/v1/{path}", body)
        assert status == 400
        assert words in answer["error"]["message"]
        assert len(answer["error"]["message"]) <= 400
        assert service.call("/healthz")[0] == 200

    def test_other_addresses_and_methods(self, service) -> None:
        assert service.call("/v1/nothing")[0] == 404
        assert service.call("/v1/infill")[0] == 405
        assert service.call("/../../etc/passwd")[0] == 404

    @pytest.mark.parametrize("path", ["/", "/page.js", "/healthz", "/v1/models", "/v1/infill"])
    def test_the_head_of_an_answer_can_be_had_alone(self, service, path) -> None:
        heads, bodies = [], []
        for method in ("GET", "HEAD"):
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
            connection.request(method, path)
            answer = connection.getresponse()
            heads.append((answer.status, {**answer.headers, "date": ""}))
            bodies.append(answer.read())
            connection.close()
        assert heads[0] == heads[1]
        assert len(bodies[0]) == int(heads[1][1]["content-length"])
        assert bodies[1] == b""


class TestStrangers:
    @pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "[::1]"])
    def test_our_own_names_are_answered(self, service, name) -> None:
        assert service.call("/healthz", headers={"host": name})[0] == 200
        assert service.call("/healthz", headers={"host": f"{name}:{service.port}"})[0] == 200

    @pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "192.0.2.1", ""])
    def test_others_are_not(self, service, name) -> None:
        assert service.call("/healthz", headers={"host": name})[0] == 421
        assert service.call("/healthz", headers={"host": f"{name}:{service.port}"})[0] == 421

    def test_a_token_is_asked_for(self) -> None:
        with serving(tiny_model(), token="secret", loopback=False) as service:
            assert service.call("/healthz", headers={"host": "elsewhere"})[0] == 200
            assert service.call("/")[0] == 200
            for path in ("/v1/models", "/metrics", "/openapi.json"):
                status, answer = service.call(path, headers={"authorization": "Bearer wrong"})
                assert status == 401
                assert "needs its token" in answer["error"]["message"]
                assert service.call(path, headers={"authorization": "Bearer secret"})[0] == 200
            with openai.OpenAI(base_url=f"{service.url}/v1", api_key="secret") as client:
                assert client.models.list().data[0].id == "tiny"


def test_the_page_comes_from_here_alone(service: Service) -> None:
    for path, kind in (("/", b"<!doctype html>"), ("/page.css", b":root"), ("/page.js", b"use")):
        status, content = service.call(path)
        assert status == 200
        assert kind in content
        assert b"http://" not in content.replace(b"http://www.w3.org", b"")
        assert b"https://" not in content


def test_metrics_count_requests_and_texts(service) -> None:
    before = service.value("didlm_texts_total")
    service.call("/v1/infill", {"template": "[...]", "n": 3})
    assert service.value("didlm_texts_total") == before + 3
    text = service.call("/metrics")[1].decode()
    assert 'didlm_requests_total{route="/v1/infill",status="200"}' in text
    assert "# TYPE didlm_request_seconds histogram" in text
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
    assert {"didlm_batch_texts", "didlm_waiting_texts", "didlm_tokens_total"} <= names


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="batch must be at least 1: got 0"):
        Limits(batch=0)
