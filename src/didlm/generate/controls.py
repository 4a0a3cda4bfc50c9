"""All that a user can choose about generation, checked in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

from didlm._inputs import IntArray, whole_number
from didlm.data.tokenizer import Tokenizer
from didlm.generate.corrector import corrected
from didlm.generate.samplers import CAUTION
from didlm.generate.stages import Plan
from didlm.generate.template import NO_LIMIT, check_known
from didlm.generate.tokens import TokenControls
from didlm.methods.method import Method
from didlm.schedule import cosine_grid, uniform_grid

GRIDS = {"uniform": uniform_grid, "cosine": cosine_grid}
WHOLE = ("steps", "top_k", "length", "min_length", "max_length", "corrections", "correction_steps")
FIXED_ONLY = ("counted", "jump-chain")
# What a model may suggest, and what holds without: the distribution that it has learnt.
PLAIN: dict[str, float | bool] = {
    **dict.fromkeys(("temperature", "top_p", "position_temperature", "rate_scale"), 1.0),
    "repeats": True,
}


@dataclass(frozen=True)
class Controls:
    """How to write; what is not chosen is as the model suggests (`suited`), or as here.

    Args:
        steps: of the time grid; the adaptive samplers add shorter ones where much is missing.
        sampler: one that the method has, such as 'adaptive', 'tau-leaping', 'counted' or
            'jump-chain' (docs/sampling.md); by default its first.
        grid: 'uniform', or 'cosine', which takes shorter steps at the start.
        caution: how many tokens a gap may expect in one adaptive step: with more, up to 1, the
            network is called less often, and more tokens come that do not know of each other.
        temperature: of the tokens; below 1 for likelier ones, 0 for the likeliest.
        top_p: draw tokens from the smallest set that has this probability.
        top_k: draw tokens from so many of the likeliest.
        position_temperature: below 1 tokens come where the model is surer that some are missing.
        rate_scale: below 1 texts become shorter, above 1 longer, if their length is free: all rates
            are multiplied by it until the last step.
        repeats: whether a token may come right beside its equal. A small model stutters where it is
            unsure; without repeats it cannot, and neither can it write what has them. Equals may
            still meet where tokens between them are taken back, or marks beside each other filled
            at once.
        length: how many tokens a text is to have, given ones included; by default the model's own
            if it has one, else free.
        min_length: the fewest tokens of a text of free length.
        max_length: the most; by default as many as the model was trained on.
        banned: tokens that must not be inserted: ids, or texts that are one token.
        forced: what must occur somewhere in the result: ids, or texts exactly as written here.
        correct: share of the tokens to take back and insert again, for self-correction.
        corrections: how often to do so, evenly spread, the last time at the end.
        correction_steps: network calls in which they come back each time.
    """

    steps: int = 64
    sampler: str | None = None
    grid: str = "uniform"
    caution: float = CAUTION
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    position_temperature: float = 1.0
    rate_scale: float = 1.0
    repeats: bool = True
    length: int | None = None
    min_length: int = 0
    max_length: int | None = None
    banned: Sequence[str | int] = ()
    forced: Sequence[str | int] = ()
    correct: float = 0.0
    corrections: int = 1
    correction_steps: int = 8

    def __post_init__(self) -> None:
        _known("grid", self.grid, GRIDS)
        if not isinstance(self.repeats, bool):
            raise ValueError(f"repeats is either true or false: got {self.repeats!r}")
        for name in WHOLE:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(getattr(self, name), name))
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1: got {self.steps}")
        if not 0 < self.caution <= 1:
            raise ValueError(f"caution must be above 0 and at most 1: got {self.caution}")
        if not 0 < self.position_temperature < float("inf"):
            raise ValueError(
                f"the position temperature must be positive: got {self.position_temperature}"
            )
        if not 0 < self.rate_scale < float("inf"):
            raise ValueError(f"the scale of rates must be positive: got {self.rate_scale}")
        if self.length is not None and (self.min_length or self.max_length is not None):
            raise ValueError("give either a length, or its minimum and maximum, not both")
        if self.length is not None and self.length < 1:
            raise ValueError(f"a text cannot have {self.length} tokens")
        if self.min_length < 0:
            raise ValueError(f"the minimum length cannot be negative: got {self.min_length}")
        if self.max_length is not None and self.max_length < max(1, self.min_length):
            raise ValueError(
                f"the maximum length must be at least 1 and the minimum length, "
                f"{self.min_length}: got {self.max_length}"
            )
        for name, texts in (("banned", self.banned), ("forced", self.forced)):
            if isinstance(texts, str):
                raise ValueError(f"{name} takes a list of texts: write [{texts!r}]")
        self.token_controls()
        corrected(uniform_grid(1), self.correct, self.corrections, self.correction_steps)

    def forced_words(self, tokenizer: Tokenizer) -> list[IntArray]:
        """What must occur, as tokens.

        Raises:
            ValueError: if the tokenizer does not know it.
        """
        words = []
        for word in self.forced:
            if isinstance(word, str):
                check_known(word, tokenizer)
                words.append(tokenizer.encode(word))
            else:
                words.append(np.array(_token_ids([word], tokenizer)))
        return words

    def token_controls(self) -> TokenControls:
        """Those that bend the token distribution."""
        return TokenControls(self.temperature, self.top_p, self.top_k)

    def plan(
        self, tokenizer: Tokenizer, method: Method, longest: int, device: torch.device
    ) -> Plan:
        """What the driver needs to know.

        Args:
            tokenizer: of the model.
            method: of the model.
            longest: the length of the longest texts that the model was trained on.
            device: of the model.

        Raises:
            ValueError: if the model cannot do what is asked for.
        """
        fixed = method.length
        length = self._length(fixed, longest)
        _known("sampler", self.sampler, method.samplers, f"for the method '{method.name}'")
        sampler = self.sampler or next(iter(method.samplers))
        if self.correct and not method.corrects:
            raise ValueError(f"the method '{method.name}' cannot take tokens back to correct them")
        if sampler in FIXED_ONLY and length is None:
            raise ValueError(
                f"the sampler '{sampler}' needs to know the length of the text: give length=..."
            )
        # The paper's sampler may end short of the length; all others reach it.
        shortest, longest = length or self.min_length, length or self.max_length or longest
        if sampler == "tau-leaping" and fixed is not None:
            shortest = 0
        if method.keeps_length:  # a mark stands for every token from the start
            length, longest = None, NO_LIMIT
        forbidden = torch.zeros(tokenizer.vocabulary, dtype=torch.bool)
        forbidden[[*tokenizer.special(), *_token_ids(self.banned, tokenizer)]] = True
        if method.writes_separators:
            forbidden[tokenizer.separator] = tokenizer.separator in self.banned
        if bool(forbidden.all()):
            raise ValueError("every token of the vocabulary is banned: there is none to insert")
        return Plan(
            sampler=method.samplers[sampler],
            grid=self._times(sampler).tolist(),
            edit=method.edit,
            caution=self.caution,
            tokens=self.token_controls(),
            position_temperature=self.position_temperature,
            rate_scale=self.rate_scale,
            repeats=self.repeats,
            padding=tokenizer.separator,
            length=length,
            shortest=shortest,
            longest=longest,
            forbidden=forbidden.to(device),
            without_space=torch.from_numpy(~tokenizer.begins_with_space()).to(device),
            end=method.end,
        )

    def _length(self, fixed: int | None, longest: int) -> int | None:
        asked = self.length or self.max_length or self.min_length
        if asked > longest:
            raise ValueError(
                f"the model was trained on texts of at most {longest} tokens: "
                f"it cannot write {asked}"
            )
        if fixed is not None and (self.min_length or self.max_length):
            raise ValueError(
                "all texts of this model have one length: give length, not its minimum or maximum"
            )
        return self.length or fixed

    def _times(self, sampler: str) -> np.ndarray:
        # A step of the jump chain is a token: it needs no times in between.
        if sampler in ("jump-chain", "one-by-one"):
            return corrected(uniform_grid(1), self.correct, self.corrections, steps=1)
        times = GRIDS[self.grid](self.steps)
        return corrected(times, self.correct, self.corrections, self.correction_steps)


def _known(what: str, name: str | None, names: Mapping[str, Any], where: str = "") -> None:
    if name is not None and name not in names:
        near = get_close_matches(str(name), names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(names)}"
        raise ValueError(f"there is no {what} '{name}'{where and ' ' + where}: {hint}")


def _token_ids(tokens: Sequence[str | int], tokenizer: Tokenizer) -> list[int]:
    """Ids of tokens that are named by their ids or their texts."""
    numbers = []
    for token in tokens:
        if isinstance(token, str):
            check_known(token, tokenizer)
            ids = tokenizer.encode(token).tolist()
        else:
            ids = [whole_number(token, "the id of a token")]
        if len(ids) != 1:
            raise ValueError(
                f"{token!r} is {len(ids)} tokens of this vocabulary: only single tokens can be "
                "banned (words begin with their space, as in ' dog')"
            )
        if not 0 <= ids[0] < tokenizer.vocabulary:
            raise ValueError(
                f"there is no token {ids[0]}: the ids are 0 to {tokenizer.vocabulary - 1}"
            )
        numbers += ids
    return numbers


def suited(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What is chosen, or else what a model suggests, or else `PLAIN`; None is no choice."""
    return {**PLAIN, **defaults, **{n: value for n, value in options.items() if value is not None}}


def check_defaults(defaults: object) -> dict[str, float | bool]:
    """The defaults that a model brings, as they may be.

    Raises:
        ValueError: if they are something else.
    """
    if not isinstance(defaults, dict) or not defaults.keys() <= PLAIN.keys():
        raise ValueError(f"its defaults are {defaults!r}: they may be of {', '.join(PLAIN)}")
    kinds = {name: (bool,) if PLAIN[name] is True else (int, float) for name in defaults}
    if not all(type(value) in kinds[name] for name, value in defaults.items()):
        raise ValueError(
            f"its defaults are not all numbers, and true or false for repeats: {defaults!r}"
        )
    try:
        checked: dict[str, Any] = {
            name: value if kinds[name] == (bool,) else float(value)
            for name, value in defaults.items()
        }
    except OverflowError:
        raise ValueError("its defaults are numbers that no computer can hold") from None
    Controls(**checked)
    return checked
