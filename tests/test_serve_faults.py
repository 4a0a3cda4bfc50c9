"""What goes wrong around a service: it says so, never breaks, and answers the next request."""

import contextlib
import gc
import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from didlm.serve.command import serve_for_user
from didlm.serve.connections import Punctual
from didlm.serve.limits import Limits
from serving import Service, serving, tiny_model

ROOT = Path(__file__).parents[1]
SLOW = {"template": "[...]", "steps": 1024, "n": 4}  # with texts that take many passes
QUICK = {"template": "[...]", "steps": 2}


@pytest.fixture(scope="module")
def service():
    with serving(tiny_model(), limits=Limits(batch=64, waiting=99, body_seconds=1.0)) as running:
        yield running


@pytest.fixture(autouse=True)
def _it_answers_the_next_request(request):
    yield
    if "service" in request.fixturenames:
        assert request.getfixturevalue("service").call("/v1/infill", QUICK)[0] == 200


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def raw(service: Service, request: bytes, wait: float = 10.0) -> bytes:
    """What comes back for these bytes, until the service closes the connection."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=wait) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


class TestBodies:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"nonsense",
            b'{"template": "\xff\xfe[...]"}',
            b"\xff\xfe\x00",
            b'{"template": "[...]", "temperature": NaN}',
            b'{"template": "[...]", "seed": ' + b"9" * 5000 + b"}",
            b'{"template": "[...]", "steps": 1e400}',
            b"[" * 100_000,
            b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
            b"null",
        ],
        ids=range(11),
    )
    def test_that_are_no_request(self, service, body) -> None:
        status, answer = service.call("/v1/infill", body, method="POST")
        assert status == 400
        assert answer["error"]["message"]

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b'{"template": "\xff\xfe[...]"}', "the body is not UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"seed": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
            (b'{"template": "\x01"}', "the body is not JSON: Invalid control character"),
        ],
    )
    def test_that_cannot_be_read(self, service, body, words) -> None:
        status, answer = service.call("/v1/infill", body)
        assert status == 400
        assert words in answer["error"]["message"]

    def test_of_another_kind(self, service) -> None:
        body, kind = b'{"template": "[...]"}', {"content-type": "text/plain"}
        status, answer = service.call("/v1/infill", body, kind)
        assert status == 400
        assert "sent as application/json" in answer["error"]["message"]

    @pytest.mark.parametrize("megabytes", [10, 100])
    @pytest.mark.parametrize("connection", ["keep-alive", "close"])
    def test_that_are_too_large(self, service, megabytes, connection) -> None:
        """Such a client says everything before it listens, and still hears why."""
        headers = {"connection": connection}
        status, answer = service.call("/v1/infill", bytes(megabytes * 10**6), headers)
        assert status == 413
        assert "may have 262,144 bytes" in answer["error"]["message"]

    def test_that_do_not_tell_their_size(self, service) -> None:
        chunks = (bytes(65536) for _ in range(200))
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        connection.request("POST", "/v1/infill", chunks, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()

    def test_that_claim_to_be_endless_are_not_waited_for(self, service) -> None:
        head = b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
            connection.sendall(head)
            assert b" 413 " in connection.recv(65536)  # at once
            assert time.monotonic() - began < 0.9
            with contextlib.suppress(OSError):  # at last nobody listens any more
                while time.monotonic() - began < 10:
                    connection.sendall(bytes(10_000))
        assert time.monotonic() - began < 5

    def test_that_do_not_come(self, service) -> None:
        head = b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"
        answer = raw(service, head)
        assert b" 408 " in answer
        assert b"did not come whole within 1 seconds" in answer

    @pytest.mark.parametrize(
        "text", ["\0", "\x1b[2J\x07", "\r\n\r\ndata: x", "\u202e\u2028", "🙂é"]
    )
    def test_with_control_characters_are_text_like_any_other(self, service, text) -> None:
        asked = {"template": f"Once{text}[...3]", "seed": 1, "steps": 4}
        status, answer = service.call("/v1/infill", asked)
        assert status == 200
        assert answer["choices"][0]["text"].startswith(f"Once{text}")
        events = service.events("/v1/infill", {**asked, "stream": True})
        assert events[-1][1]["choices"] == answer["choices"]

    def test_of_a_client_that_leaves_before_it_has_asked(self, service) -> None:
        head = b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(head)


class TestHeadsThatAreSlow:
    """Their bytes come one by one, each in time."""

    @pytest.fixture(autouse=True)
    @staticmethod
    def hurry(monkeypatch) -> None:
        monkeypatch.setattr(Punctual, "head_seconds", 0.5)

    @staticmethod
    def drip(connection: socket.socket, head: bytes) -> tuple[bytes, float]:
        """What comes back, and after how many seconds."""
        began, answer = time.monotonic(), b""
        connection.settimeout(0.05)
        for byte in head * 1000:
            with contextlib.suppress(OSError):
                connection.sendall(bytes([byte]))
            try:
                part = connection.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:  # a byte came after the end; what was said is read by now
                break
            if not part:
                break
            answer += part
        return answer, time.monotonic() - began

    @staticmethod
    def answer(connection: socket.socket) -> bytes:
        """All of it: head and body may come apart."""
        read = b""
        while not read.endswith(b"}"):
            part = connection.recv(65536)
            assert part, read
            read += part
        return read

    def test_are_not_waited_for(self, service) -> None:
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            answer, seconds = self.drip(connection, b"GET / HTTP/1.1\r\nX: " + b"x" * 1000)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"head did not come whole within 0.5 seconds" in answer
        assert 0.4 < seconds < 10

    def test_are_not_waited_for_after_an_answer_either(self, service) -> None:
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            for _ in range(2):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in self.answer(connection)
                time.sleep(0.7)  # the next may be long in coming, but not slow
            answer, _ = self.drip(connection, b"GET / HTTP/1.1\r\nX: " + b"x" * 1000)
        assert b"HTTP/1.1 408 " in answer

    def test_who_says_nothing_is_not_answered(self, service) -> None:
        assert raw(service, b"") == b""

    def test_what_comes_after_a_refusal_is_not_read_without_end(self, service) -> None:
        head = b"POST /v1/infill HTTP/1.1\r\nHost: evil\r\nContent-Length: 999\r\n\r\n"
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(head)
            assert b" 421 " in self.answer(connection)
            answer, seconds = self.drip(connection, b"x" * 900)
        assert answer == b""
        assert seconds < 10

    def test_an_answer_may_take_its_time(self, service) -> None:
        status, _ = service.call("/v1/infill", {**SLOW, "n": 8})
        assert status == 200


class TestClientsThatVanish:
    @pytest.mark.parametrize("stream", [True, False])
    def test_are_noticed(self, service, stream, caplog) -> None:
        body = json.dumps({**SLOW, "stream": stream}).encode()
        head = (
            "POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        left = service.value("didlm_dropped_total", why="left")
        connections = []
        for _ in range(5):
            connection = socket.create_connection(("127.0.0.1", service.port))
            connection.sendall(head.encode() + body)
            connections.append(connection)
        wait_until(lambda: service.value("didlm_batch_texts") == 20)
        for connection in connections:
            connection.close()
        wait_until(lambda: service.value("didlm_dropped_total", why="left") == left + 5)
        wait_until(lambda: service.value("didlm_batch_texts") == 0)
        gc.collect()  # what nobody has asked about would be complained of now
        assert [r for r in caplog.records if r.name in ("asyncio", "uvicorn.error")] == []


class TestWhenThereIsTooMuch:
    def test_requests_are_turned_away(self) -> None:
        with serving(tiny_model(), limits=Limits(batch=2, waiting=4, texts=2)) as service:
            asked = [{"template": "[...]", "steps": 100, "n": 2, "seed": i} for i in range(12)]
            with ThreadPoolExecutor(12) as pool:
                answers = list(pool.map(lambda each: service.call("/v1/infill", each), asked))
            statuses = [status for status, _ in answers]
            assert set(statuses) == {200, 429}
            assert statuses.count(200) >= 3
            refused = next(answer for status, answer in answers if status == 429)
            assert "too many requests are waiting" in refused["error"]["message"]
            assert service.call("/v1/infill", QUICK)[0] == 200
            for each, (status, answer) in zip(asked, answers, strict=True):
                if status == 200:
                    expected = service.model.infill("[...]", 2, each["seed"], steps=100)
                    assert [c["text"] for c in answer["choices"]] == [s.text for s in expected]

    def test_what_takes_too_long_is_given_up(self) -> None:
        with serving(tiny_model(), limits=Limits(seconds=0.3)) as service:
            status, answer = service.call("/v1/infill", {**SLOW, "n": 16})
            assert status == 503
            assert "longer than 0.3 seconds" in answer["error"]["message"]
            events = service.events("/v1/infill", {**SLOW, "n": 16, "stream": True})
            assert events[-1][0] == "error"
            assert "longer than 0.3 seconds" in events[-1][1]["error"]["message"]
            assert service.value("didlm_dropped_total", why="late") == 2
            assert service.call("/healthz")[0] == 200


def test_no_more_texts_than_may_wait_are_taken() -> None:
    """Or they would be turned away for ever."""
    with serving(tiny_model(), limits=Limits(batch=8, waiting=2)) as service:
        status, answer = service.call("/v1/infill", {**QUICK, "n": 3})
        assert status == 400
        assert "one request may ask for 2 texts: got 3" in answer["error"]["message"]
        assert service.call("/v1/infill", {**QUICK, "n": 2})[0] == 200


def test_what_is_not_finished_at_the_end_is_told_so(monkeypatch, caplog) -> None:
    monkeypatch.setattr("didlm.serve.connections.DRAIN", 0.3)
    long = {**SLOW, "n": 16}
    limits = Limits(batch=16, waiting=99)
    with serving(tiny_model(300.0), limits=limits) as service, ThreadPoolExecutor(3) as pool:
        answers = [
            pool.submit(service.call, "/v1/infill", long),
            pool.submit(service.call, "/v1/infill", {**long, "stream": True}),
            pool.submit(service.call, "/v1/completions", {"steps": 1024, "n": 16, "stream": True}),
        ]
        wait_until(lambda: service.value("didlm_waiting_texts") == 32)
        service.server.should_exit = True
        (status, whole), *streams = [answer.result() for answer in answers]
    assert status == 503
    assert whole["error"]["message"] == "the service is shutting down"
    for status, text in streams:
        assert status == 200
        assert text.decode().split("event: error")[1].count("the service is shutting down") == 1
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_a_pass_that_goes_wrong_does_not_end_the_service(monkeypatch) -> None:
    with serving(tiny_model()) as service:
        head = service.model.network.token_head
        good = head.detach().clone()
        with torch.no_grad():
            head.fill_(float("nan"))
        status, answer = service.call("/v1/infill", {"template": "[...5-9]"})
        assert status == 500
        assert "the service could not go on" in answer["error"]["message"]
        with torch.no_grad():
            head.copy_(good)
        assert service.call("/v1/infill", QUICK)[0] == 200


def test_an_error_of_our_own_is_said_to_be_one(monkeypatch, caplog) -> None:
    def broken(*_):
        raise RuntimeError("secret words")

    monkeypatch.setattr("didlm.serve.service._prompts", broken)
    with serving(tiny_model()) as service:
        status, answer = service.call("/v1/completions", {"prompt": "secret"})
    assert status == 500
    assert answer["error"]["message"] == "the service could not go on (RuntimeError)"
    assert "in broken" in caplog.text
    assert "secret words" not in caplog.text.replace('RuntimeError("secret words")', "")


def test_nothing_that_is_sent_stands_in_the_log(service, caplog) -> None:
    with caplog.at_level(logging.DEBUG, "didlm"):
        service.call("/v1/infill", {"template": "secret words [...]", "steps": 2})
        service.call("/v1/infill?secret=words", {"secret": "words"})
        service.call("/secret/words")
        service.call("/healthz", method="SECRET")
        # A line is written when the answer is on its way already.
        wait_until(lambda: sum(r.name == "didlm.serve" for r in caplog.records) == 4)
    lines = [r.getMessage() for r in caplog.records if r.name == "didlm.serve"]
    assert not any("secret" in line.lower() for line in lines)
    assert any(re.fullmatch(r"POST /v1/infill 200 \d+\.\d+ s", line) for line in lines)


class TestTheCommand:
    @pytest.fixture(scope="class")
    @staticmethod
    def folder(tmp_path_factory):
        folder = tmp_path_factory.mktemp("model")
        tiny_model().save_pretrained(folder)
        return folder

    @staticmethod
    def start(folder) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-m", "didlm", "serve", "--model", str(folder), "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        line = process.stderr.readline()
        return process, int(line.rsplit(":", 1)[1])

    def test_sigterm_drains(self, folder) -> None:
        process, port = self.start(folder)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            asked = {"template": "[...]", "steps": 1024, "n": 8, "seed": 1, "stream": True}
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/infill", json.dumps(asked), headers)
            answer = connection.getresponse()
            assert b"start" in answer.readline()
            process.send_signal(signal.SIGTERM)
            rest = answer.read()
            assert b"event: done" in rest
            assert process.wait(30) == 0
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
        finally:
            connection.close()
            process.kill()
            process.wait()
            process.stderr.close()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_at_the_very_beginning_ends_it_too(self, folder, number) -> None:
        process, _ = self.start(folder)
        process.send_signal(number)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"model": "nowhere/at/all"}, "there is no folder nowhere/at/all"),
            ({"host": "0.0.0.0"}, "set DIDLM_TOKEN in the environment"),
            ({"host": "192.0.2.1"}, "set DIDLM_TOKEN in the environment"),
        ],
    )
    def test_says_what_is_wrong(self, arguments, words, monkeypatch) -> None:
        monkeypatch.delenv("DIDLM_TOKEN", raising=False)
        usual = {"model": "stories", "host": "127.0.0.1", "port": 0, "device": "cpu"}
        with pytest.raises(ValueError, match=words):
            serve_for_user(**{**usual, "dtype": "fp32", "limits": Limits(), **arguments})

    def test_an_address_that_is_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1, port {port}"):
                serve_for_user("stories", "127.0.0.1", port, "cpu", "fp32", Limits())

    def test_libraries_that_are_missing(self, monkeypatch) -> None:
        monkeypatch.delitem(sys.modules, "didlm.serve.connections", raising=False)
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        with pytest.raises(ValueError, match=r"pip install 'didlm\[serve\]'"):
            serve_for_user("stories", "127.0.0.1", 0, "cpu", "fp32", Limits())


def fuzz(service: Service, examples: int) -> int:
    """Requests after the service's own description of itself, right and wrong ones."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    calls = 0

    def check(case: schemathesis.Case) -> None:
        nonlocal calls
        calls += 1
        answer = case.call(timeout=30)
        case.validate_response(answer, checks=[not_a_server_error])

    many = settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            if operation.method == "post" or mode is schemathesis.GenerationMode.POSITIVE:
                many(given(operation.as_strategy(generation_mode=mode))(check))()
    return calls


def test_its_own_description_holds(service) -> None:
    assert fuzz(service, 6) > 30


@pytest.mark.long
def test_its_own_description_holds_for_longer(service) -> None:
    assert fuzz(service, 300) > 1500


def under_load(monkeypatch, clients: int, seconds: float) -> None:
    """Many clients at once, of which those that are turned away ask again."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from load import load, over_http

    requests = [
        ("/v1/completions", {"prompt": "Once", "steps": 8}),
        ("/v1/infill", {"template": "[...] a [_]", "steps": 20, "top_p": 0.9, "stream": True}),
        ("/v1/infill", {"template": "[...]", "steps": 4, "n": 2, "temperature": 0.5}),
        ("/v1/gaps", {"text": "Once upon a time"}),
        ("/v1/score", {"text": "Once upon a time", "draws": 8}),
    ]
    with serving(tiny_model(), limits=Limits(batch=8, waiting=16)) as service:
        connect = over_http(service.port, lambda number: requests[number % 5])
        # What is made once and kept, of all threads that there will be, is there after a while.
        load(connect, clients, seconds / 3)
        before = resident_mib()
        seen = load(connect, clients, seconds)
        assert seen.failed == []
        assert len(seen.latencies) > clients / 2
        assert resident_mib() - before < 50
        assert service.call("/v1/infill", QUICK)[0] == 200
        assert service.value("didlm_waiting_texts") == 0


def resident_mib() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    return int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]) / 1024


def test_it_stands_a_crowd(monkeypatch) -> None:
    under_load(monkeypatch, clients=32, seconds=2)


@pytest.mark.long
def test_it_stands_a_crowd_for_a_minute(monkeypatch) -> None:
    under_load(monkeypatch, clients=64, seconds=60)
