"""RADD (Ou et al., 2025): the code of ML-GSAI/RADD, which stems from SEDD.

No row stands before a text, MASK is the last id, and a masked token is predicted at its own row.
"""

from didlm.convert.naming import (
    Rule,
    Wishes,
    check_heads,
    check_rotary,
    check_vocabulary,
    count_layers,
    length_of,
    size,
    take_over,
)
from didlm.convert.reading import Source
from didlm.data.tokenizer import Tokenizer
from didlm.methods.radd import RADD
from didlm.model.config import ModelConfig
from didlm.model.dialect import Dialect
from didlm.model.transformer import Network
from didlm.pretrained import Model

ROTARY = "rotary_emb.inv_freq"
# D width, F feed-forward, V ids with MASK. A block without and with time has these in common.
BLOCK = [
    Rule("blocks.{}.norm1.weight", "blocks.{}.attention_norm.weight", "D"),
    Rule("blocks.{}.attn_qkv.weight", "blocks.{}.attention_in.weight", "3D D"),
    Rule("blocks.{}.attn_out.weight", "blocks.{}.attention_out.weight", "D D"),
    Rule("blocks.{}.norm2.weight", "blocks.{}.feed_forward_norm.weight", "D"),
    Rule("blocks.{}.mlp.0.weight", "blocks.{}.feed_forward_in.weight", "F D"),
    Rule("blocks.{}.mlp.0.bias", "blocks.{}.feed_forward_in.bias", "F"),
    Rule("blocks.{}.mlp.2.weight", "blocks.{}.feed_forward_out.weight", "D F"),
    Rule("blocks.{}.mlp.2.bias", "blocks.{}.feed_forward_out.bias", "D"),
]
ENDS = [
    Rule("vocab_embed.embedding", "token_embedding.weight", "V D"),
    Rule("output_layer.norm_final.weight", "final_norm.weight", "D"),
    Rule("output_layer.linear.weight", "token_head", "V D"),
    Rule("output_layer.linear.bias", "token_bias", "V"),
]
NORM_BIASES = [
    Rule("blocks.{}.norm1.bias", "blocks.{}.attention_norm.bias", "D"),
    Rule("blocks.{}.norm2.bias", "blocks.{}.feed_forward_norm.bias", "D"),
    Rule("output_layer.norm_final.bias", "final_norm.bias", "D"),
]
RULES = [*ENDS[:1], *BLOCK, *NORM_BIASES, *ENDS[1:]]


def recognises(source: Source) -> bool:
    """Whether the names are those of RADD."""
    return "vocab_embed.embedding" in source.weights and "blocks.0.norm1.bias" in source.weights


def convert(source: Source, tokenizer: Tokenizer, wishes: Wishes) -> Model:
    """The model.

    Raises:
        ValueError: if the weights are no RADD, or do not fit the tokenizer.
    """
    sizes = sizes_of(source)
    check_vocabulary(tokenizer, sizes["V"], [1])
    config = ModelConfig(
        vocabulary=tokenizer.vocabulary,
        layers=count_layers(source, "blocks."),
        width=sizes["D"],
        heads=heads_of(source, sizes["D"], wishes),
        feed_forward=sizes["F"],
        rates=False,
        flags=False,
        marks=1,
        dialect=Dialect(biases=True, leading=()),
    )
    network = take_over(Network(config), source, RULES, sizes, [ROTARY])
    length = length_of(source, wishes, "length")
    method = RADD.build(tokenizer, fixed_length=length)
    return Model(network, tokenizer, method, longest=length)


def sizes_of(source: Source) -> dict[str, int]:
    """The sizes that shapes are written in."""
    rows, width = (size(source, "vocab_embed.embedding", d) for d in (0, 1))
    inner = size(source, "blocks.0.mlp.0.weight", 0)
    return {"V": rows, "D": width, "3D": 3 * width, "F": inner}


def heads_of(source: Source, width: int, wishes: Wishes) -> int:
    """How many heads: as the user says, or config.json, or as the speeds of rotation tell.

    Raises:
        ValueError: if nobody says, or it cannot be.
    """
    heads = wishes.heads or source.setting("n_heads")
    if heads is None and ROTARY in source.weights:
        heads = width // max(1, 2 * source.weights[ROTARY].numel())
    if heads is None:
        raise ValueError(f"{source.file} does not tell how many heads it has: give --heads")
    heads = check_heads(width, heads)
    check_rotary(source, ROTARY, width // heads)
    return heads
