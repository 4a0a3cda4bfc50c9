"""A model as the evaluation harness sees it: bounds for likelihoods, infilling for generation.

Only whoever has the harness can import this; `didlm.harness.running` says what is missing.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from didlm.evaluate.choices import Question, option_scores
from didlm.generate.template import Blank, Parts
from didlm.pretrained import Model

MOST_TOKENS = 256  # of an answer, where a task sets no limit


class HarnessModel(LM):  # type: ignore[misc]  # the harness has no type information
    """Any model of ours.

    Log-likelihoods are lower bounds but for autoregressive models, and have the end of the text in
    them where lengths are free. All requests of one document share their noise. Nothing is ever
    called greedy.

    Args:
        model: the model.
        draws: noised states of each continuation.
        seed: of noise and samples.
        batch_size: texts written together.
        **controls: of generation, see `didlm.generate.controls.Controls`.
    """

    def __init__(
        self,
        model: Model,
        draws: int = 32,
        seed: int = 0,
        batch_size: int | None = None,
        **controls: Any,
    ) -> None:
        super().__init__()
        self.model, self.draws, self.seed = model, draws, seed
        self.batch_size, self.controls = batch_size, controls

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """The score of each continuation given its context, and False: whether it is greedy."""
        groups: dict[Hashable, list[int]] = {}
        for number, request in enumerate(requests):
            alone = request.doc_id is None
            key = request.args[0] if alone else (request.task_name, request.doc_id)
            groups.setdefault(key, []).append(number)
        pairs = [_split(*request.args) for request in requests]
        questions = [
            Question([pairs[n][0] for n in group], [pairs[n][1] for n in group])
            for group in groups.values()
        ]
        scores = option_scores(self.model, questions, self.draws, self.seed)
        found = np.zeros(len(requests))
        for group, score in zip(groups.values(), scores, strict=True):
            found[group] = score
        return [(value, False) for value in found.tolist()]

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """The score of each text; long ones are cut into pieces that know nothing of each other."""
        tokenizer, longest = self.model.tokenizer, self.model.longest
        pieces, owners = [], []
        for number, request in enumerate(requests):
            tokens = tokenizer.encode(request.args[0])
            for first in range(0, max(1, len(tokens)), longest):
                whole = len(tokens) <= longest
                text = tokenizer.decode(tokens[first : first + longest])
                pieces.append(request.args[0] if whole else text)
                owners.append(number)
        questions = [Question([""], [piece]) for piece in pieces]
        scores = option_scores(self.model, questions, self.draws, self.seed)
        found = np.zeros(len(requests))
        np.add.at(found, owners, [score[0] for score in scores])
        return found.tolist()

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """What the model fills in after each context, up to the first text that ends it."""
        prompts, blanks = [], []
        free = self.model.method.length is None
        for request in requests:
            most = min(request.args[1].get("max_gen_toks", MOST_TOKENS), self.model.longest - 1)
            # What leaves no room for an answer loses its beginning.
            prompts.append(self.model.tokenizer.end_of(request.args[0], self.model.longest - most))
            blanks.append(Blank(0, most) if free else Blank())
        templates: list[Parts] = [
            [prompt, blank] for prompt, blank in zip(prompts, blanks, strict=True)
        ]
        samples = self.model.infill_each(
            templates, seed=self.seed, batch_size=self.batch_size, **self.controls
        )
        answers = []
        for sample, prompt, request in zip(samples, prompts, requests, strict=True):
            ends = request.args[1].get("until", [])
            ends = [ends] if isinstance(ends, str) else ends
            answers.append(answer_of(self.model, sample.text, sample.tokens, prompt, ends))
        return answers


def answer_of(
    model: Model, text: str, tokens: Sequence[int], prompt: str, ends: Sequence[str] = ()
) -> str:
    """What follows the prompt in a text, up to the first of the texts that end it.

    A tokenizer that normalises does not give the prompt back: its tokens are left out then.
    """
    if text.startswith(prompt):
        answer = text[len(prompt) :]
    else:
        answer = model.tokenizer.decode(list(tokens)[len(model.tokenizer.encode(prompt)) :])
    for end in ends:
        answer = answer.split(end)[0] if end else answer
    return answer


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Spaces between the two belong to the continuation, as words carry them in training."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation
