"""A service on 127.0.0.1 for tests, over a model that is made here."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from didlm.data.tokenizer import Tokenizer
from didlm.pretrained import Model
from didlm.serve.app import create_app
from didlm.serve.connections import server_of
from writing import STORY, small_model


def tiny_model(mean_length: float = 12.0, length: int | None = None) -> Model:
    """Untrained; it writes words of a story in any order."""
    return small_model(Tokenizer.train_bpe([STORY] * 3, 330), length, mean_length)


class Service:
    """A running service, and a client of it without any library."""

    def __init__(self, model: Model, **options: Any) -> None:
        self.model = model
        self.app = create_app(model, "tiny", **options)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = server_of(self.app)

    def value(self, name: str, **labels: str) -> float:
        return self.app.state.metrics.value(name, **labels)

    def call(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, **kwargs: Any
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer; a body of bytes is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        method = kwargs.get("method") or ("GET" if body is None else "POST")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text

    def events(self, path: str, body: Any) -> list[tuple[str, Any]]:
        """All server-sent events of an answer."""
        status, text = self.call(path, body)
        assert status == 200, text
        blocks = [block.split("\n") for block in text.decode().strip().split("\n\n")]
        events = []
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
            if fields:
                data = fields["data"]
                parsed = data if data == "[DONE]" else json.loads(data)
                events.append((fields.get("event", ""), parsed))
        return events


@contextmanager
def serving(model: Model, **options: Any) -> Iterator[Service]:
    """Run a service in a thread of its own."""
    service = Service(model, **options)

    def run() -> None:
        asyncio.run(service.server.serve(sockets=[service.socket]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while not service.server.started:
            assert thread.is_alive()
            thread.join(0.02)
        yield service
    finally:
        service.server.should_exit = True
        thread.join(30)
        service.socket.close()
        assert not thread.is_alive()
