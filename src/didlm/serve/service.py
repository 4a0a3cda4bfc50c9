"""What the addresses of the API do."""

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from didlm.generate.results import Sample
from didlm.generate.template import Blank, Parts, parse, start
from didlm.generate.writing import Task
from didlm.packed import Packed, pack
from didlm.serve import wire
from didlm.serve.animation import animate
from didlm.serve.answers import completion, infilling, usage
from didlm.serve.engine import Done, Engine, Question, Writing
from didlm.serve.events import completed, growth
from didlm.serve.listening import Ear, results, submit
from didlm.serve.refusals import Refused

Value = TypeVar("Value")


class Service:
    """The API over one engine."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.model, self.limits = engine.model, engine.limits
        self.drawing = asyncio.Semaphore(1)  # animations are drawn one at a time

    async def completions(self, asked: wire.CompletionRequest, http: Request) -> Any:
        """Fill the gap between a prompt and a suffix."""
        _refuse_unsupported(asked)
        if asked.model not in (None, self.name):
            raise Refused(404, f"there is no model '{asked.model}': this is '{self.name}'", "model")
        prompts = _prompts(asked.prompt)
        suffix = asked.suffix or ""
        self._check_writing(asked, len(prompts))
        ears = [Ear() for _ in prompts]
        parts: list[Parts] = [[prompt, Blank(), suffix] for prompt in prompts]
        writings = await _aside(lambda: self._writings(asked, parts, ears))
        submit(self.engine, writings)
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []

        def answer(ends: Sequence[Done]) -> wire.Completion:
            choices, samples, given = list[wire.CompletionChoice](), list[Sample](), 0
            for writing, prompt, end in zip(writings, prompts, ends, strict=True):
                for sample in end.value:
                    choice = completion(writing.task, sample, prompt, suffix, stops)
                    choices.append(choice.model_copy(update={"index": len(choices)}))
                samples += end.value
                given += len(writing.starts[0].tokens)
            return wire.Completion(
                id=f"cmpl-{uuid.uuid4().hex}",
                created=int(time.time()),
                model=self.name,
                choices=choices,
                usage=usage(samples, given),
                seed=writings[0].task.seed,
            )

        if asked.stream:
            counted = bool((asked.stream_options or {}).get("include_usage"))
            return _stream(completed(self.engine, writings, ears, answer, counted))
        return answer(await results(self.engine, writings, ears, http))

    async def infill(self, asked: wire.InfillRequest, http: Request) -> Any:
        """Fill the blanks of a template."""
        self._check_writing(asked, 1)
        parts = parse(asked.template)
        blanks = sum(isinstance(part, Blank) for part in parts)
        if blanks > self.limits.blanks:
            raise Refused(
                400, f"a template may have {self.limits.blanks} blanks: got {blanks}", "template"
            )
        ear = Ear()
        [writing] = await _aside(lambda: self._writings(asked, [parts], [ear], asked.stream))
        submit(self.engine, [writing])
        if asked.stream:
            return _stream(growth(self.engine, writing, ear, self.name))
        [end] = await results(self.engine, [writing], [ear], http)
        return wire.Infilling(
            model=self.name,
            seed=writing.task.seed,
            choices=[infilling(writing.task, sample) for sample in end.value],
            usage=usage(end.value, len(writing.starts[0].tokens)),
        )

    async def score(self, asked: wire.ScoreRequest, http: Request) -> Any:
        """Bound the likelihood of a text."""
        if asked.draws > self.limits.draws:
            raise Refused(
                400, f"a score may take {self.limits.draws} draws: got {asked.draws}", "draws"
            )

        def answer() -> wire.Scored:
            score = self.model.score(asked.text, asked.given, asked.draws, asked.seed)
            if not math.isfinite(score.log_likelihood):
                raise ValueError("the model gives this text no finite score")
            return wire.Scored(
                log_likelihood=score.log_likelihood,
                standard_error=score.standard_error,
                tokens=score.tokens,
                nats_per_token=score.nats_per_token,
            )

        return await self._ask(answer, http)

    async def gaps(self, asked: wire.GapsRequest, http: Request) -> Any:
        """Say where tokens are missing from a text, and which."""
        if asked.top > self.limits.top:
            raise Refused(400, f"at most {self.limits.top} tokens are named", "top")
        if (asked.text is None) == (asked.tokens is None):
            raise Refused(400, "give either a text or its tokens", "text")

        def answer() -> wire.Gaps:
            if asked.text is not None:
                gaps = self.model.gaps(asked.text, asked.t, asked.top)
            else:
                x_t = _packed(asked, self.model.tokenizer.bos, self.model.tokenizer.vocabulary)
                gaps = self.model.gaps_between(x_t, asked.t, asked.top)
            return wire.Gaps(
                gaps=[
                    wire.OneGap(
                        position=gap.position,
                        before=gap.before,
                        rate=min(gap.rate, 1e9),
                        likely=[
                            wire.LikelyToken(text=text, probability=p) for text, p in gap.likely
                        ],
                    )
                    for gap in gaps
                ]
            )

        return await self._ask(answer, http)

    async def animation(self, asked: wire.AnimationRequest) -> Response:
        """Draw how a text came to be."""
        if self.drawing.locked():
            raise Refused(429, "another animation is being drawn: try again in a moment")
        async with self.drawing:
            gif = await _aside(lambda: animate(asked, self.model))
        return Response(gif, media_type="image/gif")

    async def _ask(self, answer: Callable[[], Value], http: Request) -> Value:
        ear = Ear()
        question = Question(ear.hear, answer=answer)
        submit(self.engine, [question])
        [end] = await results(self.engine, [question], [ear], http)
        return end.value

    def _check_writing(self, asked: wire.Writing, templates: int) -> None:
        texts = asked.n * templates
        most = min(self.limits.texts, self.limits.batch, self.limits.waiting)
        if texts > most:
            raise Refused(400, f"one request may ask for {most} texts: got {texts}", "n")
        if asked.steps > self.limits.steps:
            raise Refused(
                400, f"at most {self.limits.steps} steps are taken: got {asked.steps}", "steps"
            )

    def _writings(
        self,
        asked: wire.Writing,
        templates: Sequence[Parts],
        ears: Sequence[Ear],
        watched: bool = False,
    ) -> list[Writing]:
        return [
            self.engine.prepare(self._task(asked, parts), ear.hear, watched)
            for parts, ear in zip(templates, ears, strict=True)
        ]

    def _task(self, asked: wire.Writing, parts: Parts) -> Task:
        given = len(start(parts, self.model.tokenizer).tokens)
        if given > self.model.longest:
            raise ValueError(
                f"what is given has {given} tokens, more than the {self.model.longest} that the "
                "model can read"
            )
        controls = asked.controls(given, self.model.longest)
        return self.model.task([parts], asked.n, asked.seed, controls)


def _refuse_unsupported(asked: wire.CompletionRequest) -> None:
    why = "a text that grows everywhere at once has no"
    if asked.logprobs is not None:
        raise Refused(400, f"logprobs are not supported: {why} probability of a token", "logprobs")
    if asked.echo:
        raise Refused(400, "echo is not supported: join prompt, text and suffix yourself", "echo")
    if asked.best_of not in (None, 1):
        raise Refused(
            400, "best_of is not supported: ask for n texts and for their scores", "best_of"
        )
    for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
        if getattr(asked, name):
            raise Refused(400, f"{name} is not supported", name)


def _prompts(prompt: Any) -> list[str]:
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""]
    if not prompt or not all(isinstance(each, str) for each in prompt):
        raise Refused(400, "a prompt is a text or a list of texts: tokens are not taken", "prompt")
    return prompt


def _packed(asked: wire.GapsRequest, bos: int, vocabulary: int) -> Packed:
    """The tokens as a batch of one text.

    Raises:
        ValueError: if they are not in the vocabulary, or the rest does not fit them.
    """
    tokens = np.array(asked.tokens, dtype=np.int64)
    if tokens.size and tokens.max() >= vocabulary:
        raise ValueError(f"there is no token {tokens.max()}: the ids are 0 to {vocabulary - 1}")
    given = asked.given or [False] * len(tokens)
    gaps = [True] * (len(tokens) + 1) if asked.open is None else asked.open
    if len(given) != len(tokens) or len(gaps) != len(tokens) + 1:
        raise ValueError(
            f"there are {len(tokens)} tokens: 'given' needs as many entries, 'open' one more"
        )
    x_t = pack([tokens], bos)
    spans = torch.tensor([False, *given]).long()
    return Packed(x_t.tokens, x_t.offsets, spans, torch.tensor(gaps))


def _stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _aside(work: Callable[[], Value]) -> Value:
    """Do it beside the event loop, which others wait for."""
    return await asyncio.to_thread(work)
