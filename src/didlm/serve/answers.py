"""From finished samples to what a client gets of them."""

from collections.abc import Sequence

from didlm.data.tokenizer import Tokenizer
from didlm.display.pieces import pieces
from didlm.generate.results import Sample
from didlm.generate.writing import Task
from didlm.serve.wire import CompletionChoice, FinishReason, InfillChoice, Usage


def completion(
    task: Task, sample: Sample, prompt: str, suffix: str, stops: Sequence[str]
) -> CompletionChoice:
    """What stands between a prompt and a suffix, up to the first of the stops."""
    text = _between(sample, prompt, suffix, task.tokenizer)
    reason = _reason(task, sample)
    ends = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    if ends:
        text, reason = text[: min(ends)], "stop"
    return CompletionChoice(index=sample.number, text=text, finish_reason=reason)


def infilling(task: Task, sample: Sample) -> InfillChoice:
    """All of a text, with how it came to be."""
    return InfillChoice(
        index=sample.number,
        text=sample.text,
        finish_reason=_reason(task, sample),
        tokens=sample.tokens,
        born=sample.born,
        pieces=pieces(task.tokenizer, sample.tokens),
        steps=sample.steps,
        nfe=sample.nfe,
    )


def usage(samples: Sequence[Sample], given: int) -> Usage:
    """Tokens that were given, once, and those that were inserted, in all."""
    inserted = sum(born > 0 for sample in samples for born in sample.born)
    return Usage(prompt_tokens=given, completion_tokens=inserted, total_tokens=given + inserted)


def _between(sample: Sample, prompt: str, suffix: str, tokenizer: Tokenizer) -> str:
    if sample.exact:
        return sample.text[len(prompt) : len(sample.text) - len(suffix)]
    columns = zip(sample.tokens, sample.born, strict=True)
    return tokenizer.decode([token for token, born in columns if born > 0])


def _reason(task: Task, sample: Sample) -> FinishReason:
    free = task.method.length is None
    return "length" if free and len(sample.tokens) >= task.plan.longest else "stop"
