"""Where a model wants to insert: the rate of every gap of a text, and its likeliest tokens."""

from dataclasses import dataclass

import numpy as np
import torch

from didlm.data.tokenizer import Tokenizer
from didlm.generate.scorer import Scorer
from didlm.objectives import sparse
from didlm.packed import Packed


@dataclass(frozen=True)
class Gap:
    """One gap of a text."""

    position: int  # tokens before it
    before: str  # the token before it; empty at the beginning
    rate: float  # how many tokens are missing here, in expectation
    likely: list[tuple[str, float]]  # the likeliest tokens with their probabilities


@torch.no_grad()
def gaps_of(
    scorer: Scorer,
    tokenizer: Tokenizer,
    x_t: Packed,
    time: float,
    length: int | None,
    top: int,
) -> list[Gap]:
    """All gaps of a text, from left to right.

    Args:
        scorer: the model.
        tokenizer: its tokenizer.
        x_t: the text, alone in its batch, on the model's device; in closed gaps nothing is missing.
        time: the probability of deletion: how much of the text is thought to be missing.
        length: of the complete text, for models of fixed-length text.
        top: how many of the likeliest tokens to name.
    """
    if not 0 < time <= 1:
        raise ValueError(f"the time must be above 0 and at most 1: got {time}")
    if top < 0:
        raise ValueError(f"cannot name {top} tokens")
    device, tokens = x_t.tokens.device, x_t.tokens[1:].tolist()
    answer = scorer.read(x_t, torch.full((1,), time, device=device))
    log_rate = answer.log_rate
    if scorer.normalised:
        missing = max(0, (length or 0) - len(tokens))
        log_rate = sparse.normalise(log_rate, torch.tensor([missing], device=device), x_t)
    before = ["", *map(tokenizer.token_text, tokens)]
    likely: list[list[tuple[str, float]]] = []
    for rows in answer.features.split(64):  # never all rows times all tokens
        logits = scorer.logits(rows)[:, : scorer.vocabulary].double()
        chance, token = logits.softmax(-1).topk(min(top, scorer.vocabulary), -1)
        likely += [
            [(tokenizer.token_text(t), p) for t, p in zip(*row, strict=True)]
            for row in zip(token.tolist(), chance.tolist(), strict=True)
        ]
    rates = np.exp(log_rate.double().masked_fill(~x_t.open, -torch.inf).cpu().numpy()).tolist()
    columns = zip(before, rates, likely, strict=True)
    return [Gap(position, *column) for position, column in enumerate(columns)]
