"""What to insert: one token for each gap that fires, with the usual controls.

Shapes: R gaps that fire, V tokens of the vocabulary, padded as the network's head is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from didlm.generate.uniforms import once_more

BLOCK = 128  # tokens are drawn in two strides: first their block, then their place in it
COLDEST = 1e-30  # a temperature at which only the likeliest tokens are left, and what 0 means
NUCLEUS = 256  # how many of the likeliest tokens are tried first as the nucleus


@dataclass(frozen=True)
class TokenControls:
    """How the distribution over tokens is bent before one is drawn."""

    temperature: float | Tensor = 1.0  # of all rows, or of each [R, 1]; so is the next
    # Draw from the smallest set of likeliest tokens that has this probability.
    top_p: float | Tensor = 1.0
    top_k: int | None = None  # draw from so many of the likeliest tokens

    def __post_init__(self) -> None:
        if isinstance(self.temperature, Tensor) or isinstance(self.top_p, Tensor):
            return  # they were numbers once, and checked then
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"the temperature must be a number from 0 on: got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p must be above 0 and at most 1: got {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top-k must be at least 1: got {self.top_k}")


def draw_tokens(logits: Tensor, uniform: Tensor, controls: TokenControls) -> Tensor:
    """One token per row [R], by inversion of distribution functions in float64.

    A draw comes out otherwise where rounding has moved one of their steps across it, and the fewer
    steps there are, the less often that happens: so the block of a token and its place in the block
    have draws of their own. Of 4,096 tokens, other batches then change 14 draws in a million and
    not 199 (measured of the shipped model in float32).

    Float32 is too coarse for the sums: at large vocabularies the tail would never be drawn.

    Args:
        logits: unnormalised log-probabilities [R, V], minus infinity for tokens that must not come.
        uniform: one draw from [0, 1) per row [R], in float64.
        controls: temperature, top-p and top-k.
    """
    temperature, top_p = controls.temperature, controls.top_p
    if isinstance(temperature, Tensor) or temperature != 1:
        logits = logits - logits.amax(-1, keepdim=True)  # so that nothing overflows
        if isinstance(temperature, Tensor):
            logits = logits / temperature.clamp(min=COLDEST).to(logits.dtype)
        else:
            logits = logits / max(temperature, COLDEST)
    weights = logits.softmax(-1)
    if controls.top_k is not None and controls.top_k < weights.shape[-1]:
        least = weights.topk(controls.top_k, -1).values[:, -1:]
        weights.masked_fill_(weights < least, 0)
    if isinstance(top_p, Tensor):
        # A nucleus of nothing is one token, found at once; nobody asks for it.
        edge = _nucleus_edge(weights, torch.where(top_p < 1, top_p, 0))
        weights.masked_fill_((weights < edge) & (top_p < 1), 0)
    elif top_p < 1:
        weights.masked_fill_(weights < _nucleus_edge(weights, top_p), 0)
    return _invert(weights, uniform)


def _nucleus_edge(weights: Tensor, top_p: float | Tensor) -> Tensor:
    """The least weight [R, 1] in the nucleus: the tokens before it have less than `top_p`."""
    wanted = weights.sum(-1, keepdim=True, dtype=torch.float64) * top_p
    if weights.is_cuda:
        return _edge_by_halving(weights, wanted)
    tried = min(NUCLEUS, weights.shape[-1])
    edge, reached = _edge_among(weights.topk(tried, -1).values, wanted)
    short = (~reached).nonzero().squeeze(-1)
    if tried < weights.shape[-1] and short.numel():  # only flat distributions need a full sort
        edge[short], _ = _edge_among(weights[short].sort(-1, descending=True).values, wanted[short])
    return edge


def _edge_by_halving(weights: Tensor, wanted: Tensor) -> Tensor:
    """The same, in shapes that do not depend on the weights, and without any sorting.

    The bits of numbers that are not negative are in the same order as the numbers.
    """
    weights = weights.float()
    low = torch.zeros_like(wanted, dtype=torch.int32)  # here there is enough
    high = weights.amax(-1, keepdim=True).view(torch.int32)  # above there is nothing
    for _ in range(31):
        middle = high - (high - low) // 2
        there = torch.where(weights >= middle.view(torch.float32), weights, 0)
        enough = there.sum(-1, keepdim=True, dtype=torch.float64) >= wanted
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle - 1)
    return low.view(torch.float32)


def _edge_among(largest: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The first of the falling weights with which their sum reaches what is wanted, if it does."""
    total = largest.double().cumsum(-1)
    place = torch.searchsorted(total, wanted).clamp(max=largest.shape[-1] - 1)
    return largest.gather(-1, place), (total[:, -1:] >= wanted).squeeze(-1)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """A token as likely as its weight says [R], by two draws."""
    rest = -weights.shape[-1] % BLOCK
    blocks = (pad(weights, (0, rest)) if rest else weights).unflatten(-1, (-1, BLOCK))
    block = _passed(blocks.sum(-1, dtype=torch.float64), once_more(uniform))
    inside = blocks.gather(1, block[..., None].expand(-1, -1, BLOCK)).squeeze(1)
    return (block * BLOCK + _passed(inside.double(), uniform)).squeeze(-1)


def _passed(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first place [R, 1] at which the sum of the weights exceeds `uniform` of the total.

    Rounding may put what is wanted at the very end, behind which only zero weights follow: then it
    is the first place at which the sum is complete. What is no number passes at the last place.
    """
    total = weights.cumsum(-1)
    place = torch.searchsorted(total, uniform[:, None] * total[:, -1:], right=True)
    place = torch.minimum(place, torch.searchsorted(total, total[:, -1:].contiguous()))
    return place.clamp(max=total.shape[-1] - 1)
