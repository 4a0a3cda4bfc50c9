"""DID: its own code is not public yet; this is what the paper says of it, in the names of its base.

Networks "follow RADD"; those of variable length have adaptive norms as in DiT and SEDD. So the
names are taken to be those of RADD and SEDD, and every output to be the log score of inserting that
token after that row, as the paper's one network with one output has it. BOS is read like any token.
"""

import torch
from torch import Tensor

from didlm.convert.naming import (
    Rule,
    Wishes,
    check_vocabulary,
    count_layers,
    length_of,
    size,
    take_over,
)
from didlm.convert.radd import BLOCK, ENDS, ROTARY, heads_of, sizes_of
from didlm.convert.radd import RULES as RADD_RULES
from didlm.convert.reading import Source
from didlm.data.tokenizer import Tokenizer
from didlm.methods.did import DID, FixedDID
from didlm.model.config import ModelConfig
from didlm.model.dialect import Dialect
from didlm.model.transformer import SIGMA_FEATURES, Network
from didlm.pretrained import Model


def _first_modulation(weight: Tensor) -> Tensor:
    return _modulation(weight.chunk(2)[0])


def _second_modulation(weight: Tensor) -> Tensor:
    return _modulation(weight.chunk(2)[1])


def _modulation(weight: Tensor) -> Tensor:
    """Shift, scale, gate -> scale, shift, gate - 1: our gates are what is added to one."""
    shift, scale, gate = weight.chunk(3)
    return torch.cat([scale, shift, gate - (1 if weight.ndim == 1 else 0)])


def _final_modulation(weight: Tensor) -> Tensor:
    shift, scale = weight.chunk(2)
    return torch.cat([scale, shift])


# C condition, S features of the noise.
ADAPTIVE = "blocks.{}.adaLN_modulation"
TIMED_RULES = [
    *ENDS,
    *BLOCK,
    Rule("sigma_map.mlp.0.weight", "time.features_in.weight", "C S"),
    Rule("sigma_map.mlp.0.bias", "time.features_in.bias", "C"),
    Rule("sigma_map.mlp.2.weight", "time.condition_out.weight", "C C"),
    Rule("sigma_map.mlp.2.bias", "time.condition_out.bias", "C"),
    *(
        Rule(f"{ADAPTIVE}.{kind}", f"blocks.{{}}.{norm}.modulation.{kind}", shape, change)
        for kind, shape in (("weight", "6D C"), ("bias", "6D"))
        for norm, change in (
            ("attention_norm", _first_modulation),
            ("feed_forward_norm", _second_modulation),
        )
    ),
    *(
        Rule(
            f"output_layer.adaLN_modulation.{kind}",
            f"final_norm.modulation.{kind}",
            shape,
            _final_modulation,
        )
        for kind, shape in (("weight", "2D C"), ("bias", "2D"))
    ),
]


def convert(source: Source, tokenizer: Tokenizer, wishes: Wishes) -> Model:
    """A model of texts of any lengths.

    Raises:
        ValueError: if the weights are not as expected, or do not fit the tokenizer.
    """
    length = length_of(source, wishes, "length")
    network = _network(source, tokenizer, wishes, timed=True)
    return Model(network, tokenizer, DID.build(tokenizer), longest=length)


def convert_fixed(source: Source, tokenizer: Tokenizer, wishes: Wishes) -> Model:
    """A model of texts of one length.

    Raises:
        ValueError: if the weights are not as expected, or do not fit the tokenizer.
    """
    length = length_of(source, wishes, "length")
    network = _network(source, tokenizer, wishes, timed=False)
    method = FixedDID.build(tokenizer, fixed_length=length)
    return Model(network, tokenizer, method, longest=length)


def _network(source: Source, tokenizer: Tokenizer, wishes: Wishes, timed: bool) -> Network:
    sizes = sizes_of(source)
    width = sizes["D"]
    check_vocabulary(tokenizer, sizes["V"], [0, 1])  # the row of MASK may have been left there
    condition = size(source, "sigma_map.mlp.0.weight", 0) if timed else None
    config = ModelConfig(
        vocabulary=tokenizer.vocabulary,
        layers=count_layers(source, "blocks."),
        width=width,
        heads=heads_of(source, width, wishes),
        feed_forward=sizes["F"],
        condition=condition,
        normalised=not timed,
        flags=False,
        marks=sizes["V"] - tokenizer.vocabulary,
        dialect=Dialect(biases=True, joint=True, sigma=timed),
    )
    sizes |= {"C": condition or 0, "S": SIGMA_FEATURES, "2D": 2 * width, "6D": 6 * width}
    rules = TIMED_RULES if timed else RADD_RULES
    return take_over(Network(config), source, rules, sizes, [ROTARY])
