"""Clients that ask a service again and again, for a time."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

PAUSE = 1.0  # seconds before a client that was turned away asks again, as it is told to

# Makes the request of a number, waits for its answer, and gives its status of HTTP and, of one
# that failed, what was said.
Ask = Callable[[int], tuple[int, str]]
Connect = Callable[[], AbstractContextManager[Ask]]  # entered once by every client


@dataclass
class Load:
    """What the clients have seen."""

    latencies: list[float] = field(default_factory=list)  # seconds, of those that were answered
    turned_away: int = 0  # with status 429
    failed: list[str] = field(default_factory=list)  # anything else


def load(connect: Connect, clients: int, seconds: float) -> Load:
    """Ask from many clients at once, and wait until the last of them has its answer.

    Args:
        connect: how a client asks.
        clients: how many ask at the same time.
        seconds: after which none asks again.
    """
    seen, lock, until = Load(), threading.Lock(), time.monotonic() + seconds
    numbers = iter(range(10**6))  # no load is endless

    def client() -> None:
        with connect() as ask:
            while time.monotonic() < until:
                with lock:
                    number = next(numbers)
                began = time.monotonic()
                status, said = ask(number)
                with lock:
                    if status == 200:
                        seen.latencies.append(time.monotonic() - began)
                    elif status == 429:
                        seen.turned_away += 1
                    else:
                        seen.failed.append(f"{status} {said}")
                if status == 429:
                    time.sleep(PAUSE)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def over_http(port: int, request: Callable[[int], tuple[str, Any]]) -> Connect:
    """Clients of a service at 127.0.0.1.

    Args:
        port: of the service.
        request: an address and a body, by the number of the request.
    """

    @contextmanager
    def connect() -> Iterator[Ask]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)

        def ask(number: int) -> tuple[int, str]:
            path, body = request(number)
            try:
                headers = {"content-type": "application/json"}
                connection.request("POST", path, json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return 0, type(error).__name__
            return answer.status, "" if answer.status == 200 else repr(text[:200])

        with closing(connection):
            yield ask

    return connect
