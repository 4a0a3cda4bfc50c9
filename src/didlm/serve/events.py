"""Server-sent events: a text while it grows, and a completion, which comes all at once."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from didlm.display.pieces import pieces
from didlm.generate.joining import News
from didlm.serve.answers import infilling, usage
from didlm.serve.engine import Done, Engine, Failed, Request, Writing
from didlm.serve.listening import Ear
from didlm.serve.refusals import problem
from didlm.serve.wire import Completion

PATIENCE = 5.0  # seconds without news, after which a sign of life is sent
KEEP_ALIVE = ": keep-alive\n\n"


async def growth(engine: Engine, writing: Writing, ear: Ear, model: str) -> AsyncIterator[str]:
    """What a template starts from, what every step inserts, and what has become of it."""
    task = writing.task
    token_text = task.tokenizer.token_text
    try:
        yield _event("start", _beginning(writing))
        async for event in ear.events(PATIENCE):
            if event is None:
                yield KEEP_ALIVE
            elif isinstance(event, News):
                columns = zip(event.places, event.tokens, strict=True)
                step = {
                    "sample": event.number,
                    "step": event.step,
                    "time": round(event.time, 4),
                    "insert": [[place, token, token_text(token)] for place, token in columns],
                }
                yield _event("step", step)
            elif isinstance(event, Failed):
                yield _failure(event)
            else:
                end = {
                    "model": model,
                    "seed": task.seed,
                    "choices": [infilling(task, each).model_dump() for each in event.value],
                    "usage": usage(event.value, len(writing.starts[0].tokens)).model_dump(),
                }
                yield _event("done", end)
    finally:  # also if the client has left
        engine.drop(writing)


async def completed(
    engine: Engine, requests: Sequence[Request], ears: Sequence[Ear], answer: Any, counted: bool
) -> AsyncIterator[str]:
    """Signs of life, then each text in one chunk: what is inserted last may stand first.

    Args:
        engine: that writes.
        requests: what it writes.
        ears: that hear of them.
        answer: makes a `Completion` of what they come to.
        counted: whether the number of tokens is told in a chunk of its own.
    """
    ends: list[Done] = []
    try:
        for ear in ears:
            async for event in ear.events(PATIENCE):
                if event is None:
                    yield KEEP_ALIVE
                elif isinstance(event, Failed):
                    yield _failure(event)
                    return
                elif isinstance(event, Done):
                    ends.append(event)
        whole: Completion = answer(ends)
        for choice in whole.choices:
            yield _data(whole.model_copy(update={"choices": [choice], "usage": None}).model_dump())
        if counted:
            yield _data(whole.model_copy(update={"choices": []}).model_dump())
        yield "data: [DONE]\n\n"
    finally:
        for request in requests:
            engine.drop(request)


def _beginning(writing: Writing) -> dict[str, Any]:
    """The given tokens, which of the gaps around them are open, and what will be inserted."""
    start, task = writing.starts[0], writing.task
    return {
        "seed": task.seed,
        "samples": task.count,
        "tokens": start.tokens.tolist(),
        "pieces": pieces(task.tokenizer, start.tokens),
        "open": (start.blank >= 0).tolist(),
    }


def _failure(event: Failed) -> str:
    return _event("error", problem(event.status, event.reason).model_dump())


def _event(name: str, data: object) -> str:
    return f"event: {name}\n{_data(data)}"


def _data(data: object) -> str:
    # ASCII: nothing in a text can then be taken for the end of a line.
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"
