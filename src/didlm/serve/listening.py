"""Between the engine's thread and those who wait in the event loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest

from didlm.serve.engine import Done, Engine, Event, Failed, Full, Request
from didlm.serve.refusals import Refused


class Ear:
    """Hears what the engine tells about one request, in the event loop where it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def hear(self, event: Event) -> None:
        """For the engine's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def events(self, patience: float | None = None) -> AsyncIterator[Event | None]:
        """All events to the last, and None whenever there is none for `patience` seconds."""
        while True:
            # Events that are there already are not waited for: without this nobody else had a
            # turn while many are sent, nor was it noticed that their client has left.
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(patience):
                    event = await self._events.get()
            except TimeoutError:
                yield None
                continue
            yield event
            if isinstance(event, Done | Failed):
                return

    async def end(self) -> Done:
        """What the request comes to.

        Raises:
            Refused: if it comes to nothing.
        """
        async for event in self.events():
            if isinstance(event, Failed):
                raise Refused(event.status, event.reason)
            if isinstance(event, Done):
                return event
        raise AssertionError("every request ends")


def submit(engine: Engine, requests: Sequence[Request]) -> None:
    """Put requests in line.

    Raises:
        Refused: with status 429 if too many wait.
    """
    try:
        engine.submit(*requests)
    except Full:
        raise Refused(429, "too many requests are waiting: try again in a moment") from None


async def results(
    engine: Engine, requests: Sequence[Request], ears: Sequence[Ear], http: HttpRequest
) -> list[Done]:
    """What requests come to; if the client leaves, they are dropped.

    Raises:
        Refused: if one comes to nothing, or nobody waits for it any more.
    """
    leaving = asyncio.ensure_future(_left(http))
    ending = asyncio.ensure_future(_ends(ears))
    tasks: set[asyncio.Future[Any]] = {leaving, ending}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            raise Refused(499, "the client left")
        return ending.result()
    finally:
        for task in tasks:
            task.cancel()
        for request in requests:
            engine.drop(request)


async def _ends(ears: Sequence[Ear]) -> list[Done]:
    return [await ear.end() for ear in ears]


async def _left(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
