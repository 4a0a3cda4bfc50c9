"""What happens to every request before and after anything looks at it.

The gate refuses strangers and bodies that are too large or too slow, counts, and keeps a log in
which nothing stands that a client has sent.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from didlm.serve.faults import internal
from didlm.serve.limits import Limits
from didlm.serve.metrics import Metrics
from didlm.serve.refusals import refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("didlm.serve")
DISCARDED = 2**25  # bytes of a body that is too large are read, so that the client hears why
OURSELVES = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Gate:
    """An ASGI application around another."""

    def __init__(
        self, app: App, limits: Limits, metrics: Metrics, token: str | None, names: bool
    ) -> None:
        """Take an application.

        Args:
            app: what answers.
            limits: for the body.
            metrics: where to count.
            token: that clients must know, if any.
            names: whether only names of this very machine may be used to reach it, so that a page
                from elsewhere cannot make a browser ask for it under a name of its own.
        """
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token, self.names = token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is None:
                body, refused = await self._body(scope, receive)
            if refused is not None:
                await refusal(*refused)(scope, receive, noted)
                return
            await self.app(scope, _replayed(body, receive), noted)
        except _Gone:
            pass
        except Exception as error:
            message = internal(error)
            if not status:
                await refusal(500, message)(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - began
            self.metrics.count("didlm_requests_total", route=route, status=str(status or 499))
            self.metrics.observe("didlm_request_seconds", seconds, route=route)
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            log.info("%s %s %d %.3f s", method, route, status or 499, seconds)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.names and host.rsplit(":", 1)[0] not in OURSELVES and host not in OURSELVES:
            return 421, "this service answers to 127.0.0.1 and localhost only"
        guarded = scope["path"].startswith(("/v1", "/metrics", "/openapi"))
        if self.token is not None and guarded:
            sent = headers.get(b"authorization", b"")
            wanted = b"Bearer " + self.token.encode()
            if not hmac.compare_digest(sent, wanted):
                return 401, "this service needs its token: send it as 'Authorization: Bearer ...'"
        return None

    async def _body(self, scope: Scope, receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
        """All of the body, or why it is refused."""
        most, parts, size, more = self.limits.body, list[bytes](), 0, True
        too_large = 413, f"a request may have {most:,} bytes"
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > DISCARDED:
            return b"", too_large
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while more and size <= DISCARDED:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if size <= most:
                        parts.append(message.get("body", b""))
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g}"
            return b"", (408, f"the request did not come whole within {seconds} seconds")
        return b"".join(parts), too_large if size > most else None


class _Gone(Exception):
    """The client left before it had asked anything."""


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
