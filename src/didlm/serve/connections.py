"""Connections: how many there may be, and how long they are waited for."""

import asyncio
import socket
from collections.abc import Callable

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from didlm.serve.refusals import refusal

DRAIN = 30  # seconds that requests have to finish after SIGTERM
FAREWELL = 5  # seconds in which those that have not are told so
CONNECTIONS = 1024  # at once; who comes then is told that the service is busy
HEAD = 10.0  # seconds in which the head of a request must come
NEXT = 30  # seconds for which a connection is kept after an answer


def server_of(app: FastAPI) -> uvicorn.Server:
    """What listens for an application."""
    config = uvicorn.Config(
        app,
        http=Punctual,
        ws="none",
        log_config=None,
        access_log=False,  # it would write down what clients send
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=NEXT,
        timeout_graceful_shutdown=DRAIN + FAREWELL,
    )
    return Draining(config, app.state.engine.end)


class Draining(uvicorn.Server):
    """All connections; of itself uvicorn would break off, without a word, what takes too long."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        """Take what is listened for.

        Args:
            config: of the server.
            end: has all requests answered at once, one way or another.
        """
        super().__init__(config)
        self._end = end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, and let what has begun finish, if it does in time."""
        ending = asyncio.get_running_loop().call_later(DRAIN, self._end)
        await super().shutdown(sockets)
        ending.cancel()


class Punctual(H11Protocol):
    """One connection; of itself uvicorn would wait for the head of a request without end."""

    head_seconds = HEAD
    _due: asyncio.TimerHandle | None = None  # while a head is waited for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Expect the next request from its first byte on, until its head is there."""
        last = self.cycle
        if self._due is None and last.response_complete:
            self._expect()
        super().data_received(data)
        if self.cycle is not last:
            self._expect_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing."""
        super().connection_lost(exc)
        self._expect_no_more()

    def _expect(self) -> None:
        self._due = self.loop.call_later(self.head_seconds, self._give_up)

    def _expect_no_more(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _give_up(self) -> None:
        # Who has not said anything is not answered: browsers connect before they have to ask.
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            seconds = f"{self.head_seconds:g}"
            answer = refusal(408, f"the request's head did not come whole within {seconds} seconds")
            start = h11.Response(
                status_code=408, headers=answer.raw_headers, reason="Request Timeout"
            )
            for event in (start, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
