"""What happens to every request before and after anything looks at it.

The gate refuses strangers and bodies that are too large or too slow, counts, and keeps a log in
which nothing stands that a client has sent.
"""

import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable

from didlm.serve.body import Body, Gone, Message, Receive, Scope, Send
from didlm.serve.faults import internal
from didlm.serve.limits import Limits
from didlm.serve.loopback import is_loopback
from didlm.serve.metrics import Metrics
from didlm.serve.refusals import Refused, refusal

App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("didlm.serve")
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
        began, status, method = time.perf_counter(), 0, scope["method"]
        if method == "HEAD":  # the server itself leaves out the body of the answer
            scope = {**scope, "method": "GET"}

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        body = Body(scope, receive, self.limits)
        try:
            self._check(scope)
            await self.app(scope, _replayed(await body.whole(), receive), noted)
        except Refused as error:
            await refusal(error.status, error.message)(scope, receive, body.outlasted(noted))
        except Gone:
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
            method = method if method in ("GET", "HEAD", "POST") else "other"
            log.info("%s %s %d %.3f s", method, route, status or 499, seconds)

    def _check(self, scope: Scope) -> None:
        """Look at the head of a request.

        Raises:
            Refused: if it comes from a stranger.
        """
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = re.sub(r":\d*$", "", host).strip("[]")  # without the port
        if self.names and not is_loopback(name):
            raise Refused(421, "this service answers to 127.0.0.1 and localhost only")
        guarded = scope["path"].startswith(("/v1", "/metrics", "/openapi"))
        if self.token is not None and guarded:
            sent = headers.get(b"authorization", b"")
            wanted = b"Bearer " + self.token.encode()
            if not hmac.compare_digest(sent, wanted):
                raise Refused(
                    401, "this service needs its token: send it as 'Authorization: Bearer ...'"
                )


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
