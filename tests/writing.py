"""A small model that writes, and what tests ask of texts."""

import re

import numpy as np
import pytest
import torch

from didlm.data.tokenizer import Tokenizer
from didlm.generate.template import CLOSED, start
from didlm.methods.did import DID, FixedDID
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.pretrained import Model

STORY = "Once upon a time there was happiness, and they lived happily. "
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##ing", "do", "not", "play", ","]


def small_model(
    tokenizer: Tokenizer, length: int | None = None, mean_length: float = 12.0, layers: int = 2
) -> Model:
    """An untrained model with opinions: neither its gaps nor its tokens are all alike."""
    config = ModelConfig(
        tokenizer.vocabulary,
        layers=layers,
        width=32,
        heads=2,
        feed_forward=64,
        condition=None if length else 16,
        normalised=length is not None,
        mean_length=mean_length,
    )
    generator = torch.Generator().manual_seed(3)
    network = Network(config)
    spreads = {"token_head": 0.3, "rate_head.weight": 0.1}
    if length is not None:  # rates that differ more would let texts of free length grow and grow
        spreads |= {"token_embedding.weight": 0.5, "rate_head.weight": 0.2}
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            spread = 0.02 if ".modulation." in name else spreads.get(name, 0.1)
            torch.nn.init.normal_(parameter, std=spread, generator=generator)
    method = FixedDID(tokenizer.bos, length) if length else DID(tokenizer.bos)
    return Model(network, tokenizer, method, length or 256)


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def texts(samples):
    return [sample.text for sample in samples]


def lengths(samples):
    return [len(sample) for sample in samples]


def is_given(sample):
    return np.array(sample.born, dtype=int) == 0


def inserted(sample):
    """How many tokens came into each gap of what is given, the ends included."""
    given = is_given(sample)
    return np.bincount(np.cumsum(given)[~given], minlength=given.sum() + 1)


def pattern(parts):
    """A template as a regular expression: what is given stands where it stood."""
    return re.compile(
        "".join(
            re.escape(part) if isinstance(part, str) else "" if part.closed else "(?:.*)"
            for part in parts
        ),
        re.DOTALL,
    )


def assert_filled(sample, parts, tokenizer) -> None:
    """Given tokens are all there, and the rest is in blanks whose limits it obeys."""
    begun = start(parts, tokenizer)
    assert pattern(parts).fullmatch(sample.text)
    assert sample.exact
    tokens, given = np.array(sample.tokens, dtype=int), is_given(sample)
    np.testing.assert_array_equal(tokens[given], begun.tokens)
    count = inserted(sample)
    assert len(count) == len(begun.blank)
    assert not count[begun.blank == CLOSED].any()
    in_blank = count[begun.blank != CLOSED]
    assert (in_blank >= begun.least).all()
    assert (in_blank <= begun.most).all()
