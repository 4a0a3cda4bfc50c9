"""Their names to ours: a table of rules for each code base, and what must hold of the weights."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from didlm.convert.reading import Source
from didlm.data.tokenizer import Tokenizer
from didlm.model.transformer import Network

SHOWN = 3  # how many names an error lists
PUBLISHED_LENGTH = 1024


@dataclass(frozen=True)
class Wishes:
    """What a user says about weights that do not say it themselves."""

    heads: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Rule:
    """Where a weight comes from; `{}` in its names is the number of the layer."""

    theirs: str
    ours: str
    shape: str  # of theirs: sizes by name, as in "3D D"
    change: Callable[[Tensor], Tensor] | None = None


def size(source: Source, name: str, dimension: int) -> int:
    """One of the sizes of a weight.

    Raises:
        ValueError: if there is no such weight.
    """
    if name not in source.weights:
        raise ValueError(f"{source.file} has no weights '{name}': it is of another kind")
    shape = source.weights[name].shape
    if len(shape) <= dimension:
        raise ValueError(f"the weights '{name}' in {source.file} have the shape {tuple(shape)}")
    return shape[dimension]


def count_layers(source: Source, prefix: str) -> int:
    """How many layers there are, by the numbers after a prefix such as 'blocks.'."""
    numbers = [
        int(found[1])
        for name in source.weights
        if (found := re.match(rf"{re.escape(prefix)}(\d+)\.", name))
    ]
    if not numbers:
        raise ValueError(f"{source.file} has no weights '{prefix}0...': it is of another kind")
    return max(numbers) + 1


def check_rotary(source: Source, name: str, channels: int) -> None:
    """Refuse positions that are not as ours: all channels of a head turn, from base 10,000.

    Raises:
        ValueError: if only some do, or at another speed.
    """
    if name not in source.weights:
        return
    found = source.weights[name].float()
    if 2 * found.numel() != channels:
        raise ValueError(
            f"heads of {channels} channels of which {2 * found.numel()} turn with the position "
            "cannot be converted: all must (if the number of heads is wrong, say it with --heads)"
        )
    steps = torch.arange(0, channels, 2) / channels
    if not torch.allclose(found, 10_000**-steps, rtol=1e-2):
        raise ValueError(f"the positions of {source.file} do not turn from base 10,000 as ours do")


def check_heads(width: int, heads: object) -> int:
    """The number of heads, if the width can be split so."""
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise ValueError(f"a width of {width} cannot be split into {heads} heads")
    return heads


def length_of(source: Source, wishes: Wishes, name: str) -> int:
    """How many tokens texts have: as the user says, or config.json, else as all published have."""
    length = wishes.length or source.setting(name)
    return length if isinstance(length, int) and length > 0 else PUBLISHED_LENGTH


def check_vocabulary(tokenizer: Tokenizer, rows: int, marks: Iterable[int]) -> None:
    """Refuse a tokenizer that was not the one of these weights.

    Args:
        tokenizer: the tokenizer.
        rows: how many ids the weights know.
        marks: how many of these may be no tokens.

    Raises:
        ValueError: if it does not fit.
    """
    fitting = sorted(rows - extra for extra in marks)
    if tokenizer.vocabulary not in fitting:
        wanted = " or ".join(map(str, fitting))
        raise ValueError(
            f"the weights are for a vocabulary of {wanted} tokens, but the tokenizer has "
            f"{tokenizer.vocabulary}: they do not belong together"
        )


def take_over(
    network: Network,
    source: Source,
    rules: Sequence[Rule],
    sizes: Mapping[str, int],
    ignored: Sequence[str] = (),
) -> Network:
    """Fill a network with the weights, translated.

    Tables of which ours have more rows, for speed, get zeros there; of more rows of theirs, the
    first are taken. What no rule names stays at its start, which must be zero or one.

    Args:
        network: the network, new.
        source: the weights.
        rules: what becomes of each.
        sizes: the value of each size in the shapes of the rules.
        ignored: names that may be there and mean nothing to us; `{}` is a number.

    Raises:
        ValueError: if names are missing or not known, or a shape is wrong.
    """
    layers = range(network.config.layers)
    expected = [
        Rule(rule.theirs.format(layer), rule.ours.format(layer), rule.shape, rule.change)
        for rule in rules
        for layer in (layers if "{}" in rule.theirs else range(1))
    ]
    known = {rule.theirs for rule in expected} | {n.format(i) for n in ignored for i in layers}
    _refuse(source, sorted({r.theirs for r in expected} - set(source.weights)), "lacks")
    _refuse(source, sorted(set(source.weights) - known), "has unknown")
    state = network.state_dict()
    left = set(state)
    for rule in expected:
        weight = source.weights[rule.theirs].float()
        wanted = tuple(sizes[name] for name in rule.shape.split())
        if tuple(weight.shape) != wanted:
            raise ValueError(
                f"the weights '{rule.theirs}' in {source.file} have the shape "
                f"{tuple(weight.shape)}, not {wanted}"
            )
        weight = weight if rule.change is None else rule.change(weight)
        target = state[rule.ours]
        rows = min(len(weight), len(target))
        target.zero_()[:rows] = weight[:rows]
        left.remove(rule.ours)
    assert all(bool((state[name] == state[name].flatten()[0]).all()) for name in left), left
    return network.eval()


def _refuse(source: Source, names: Sequence[str], what: str) -> None:
    if names:
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        raise ValueError(
            f"{source.file} {what} weights ({len(names)}: {shown}): it is damaged, or of another "
            "kind"
        )
