"""The body of a request while it comes: read whole, or refused and let pass."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from didlm.serve.limits import Limits
from didlm.serve.refusals import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The client left before it had asked anything."""


class Body:
    """What one request brings; all of it must come in time."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        """Wait for nothing yet.

        Args:
            scope: of the request.
            receive: what comes next.
            limits: on size and time.
        """
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self.declared = int(declared) if declared.isdigit() else 0
        self.limits, self._receive = limits, receive
        self._due = asyncio.get_running_loop().time() + limits.body_seconds
        self._more = True

    async def whole(self) -> bytes:
        """All of it.

        Raises:
            Refused: if it is too large or too slow.
            Gone: if the client leaves.
        """
        parts, size, most = list[bytes](), 0, self.limits.body
        try:
            async with asyncio.timeout_at(self._due):
                while self._more and max(size, self.declared) <= most:
                    parts.append(await self._part())
                    size += len(parts[-1])
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g}"
            raise Refused(408, f"the request did not come whole within {seconds} seconds") from None
        if max(size, self.declared) > most:
            raise Refused(413, f"a request may have {most:,} bytes")
        return b"".join(parts)

    def outlasted(self, send: Send) -> Send:
        """Send an answer at once, but end it only when no more comes.

        Many clients listen only after they have said everything, and a connection that is closed
        before would take the answer with it.
        """

        async def patiently(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                await self._pass()
                message = {"type": "http.response.body"}
            await send(message)

        return patiently

    async def _pass(self) -> None:
        try:
            async with asyncio.timeout_at(self._due):
                while self._more:
                    await self._part()
        except (TimeoutError, Gone):
            return

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        self._more = message.get("more_body", False)
        return bytes(message.get("body", b""))
