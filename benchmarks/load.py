"""Clients that ask a service on this machine again and again, for a time."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PAUSE = 1.0  # seconds before a client that was turned away asks again, as it is told to


@dataclass
class Load:
    """What the clients have seen."""

    latencies: list[float] = field(default_factory=list)  # seconds, of those that were answered
    turned_away: int = 0  # with status 429
    failed: list[str] = field(default_factory=list)  # anything else


def load(
    port: int, clients: int, seconds: float, request: Callable[[int], tuple[str, Any]]
) -> Load:
    """Ask from many clients at once, and wait until the last of them has its answer.

    Args:
        port: of the service, on 127.0.0.1.
        clients: how many ask at the same time.
        seconds: after which none asks again.
        request: an address and a body, by the number of the request.
    """
    seen, lock, until = Load(), threading.Lock(), time.monotonic() + seconds
    numbers = iter(range(10**6))  # no load is endless

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
        while time.monotonic() < until:
            with lock:
                path, body = request(next(numbers))
            began = time.monotonic()
            try:
                headers = {"content-type": "application/json"}
                connection.request("POST", path, json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                with lock:
                    seen.failed.append(type(error).__name__)
                connection.close()
                continue
            with lock:
                if answer.status == 200:
                    seen.latencies.append(time.monotonic() - began)
                elif answer.status == 429:
                    seen.turned_away += 1
                else:
                    seen.failed.append(f"{answer.status} {text[:200]!r}")
            if answer.status == 429:
                time.sleep(PAUSE)
        connection.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen
