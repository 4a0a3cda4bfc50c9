"""ILM (Patel et al., 2025): the code of dhruvdcoder/ILM, and of xlm-core, which followed it.

Before a text stand [CLS], whose row says whether the text is complete, and [BOS]. The logits of all
tokens after all rows but [CLS] are one distribution: where the next token comes, and which it is.
"""

from torch import Tensor

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
from didlm.methods.ilm import ILM
from didlm.model.config import ModelConfig
from didlm.model.dialect import Dialect
from didlm.model.transformer import Network
from didlm.pretrained import Model

# Speeds of rotation do not tell how many heads there are: not all channels of a head need turn.
PUBLISHED_HEADS = {768: 12, 576: 8}  # by width
STOP_PROBABILITY = 0.9  # of its sampler
LEADING = (("[CLS]", "[BOS]"), ("<|cls|>", "<|bos|>"))
# What its tokenizers add to those of BERT and GPT-2, in this order.
ADDED = (
    ("[CLS]", ("[BOS]", "[EOS]")),
    ("<|endoftext|>", ("<|cls|>", "<|bos|>", "<|pad|>", "<|unk|>", "<|mask|>", "<|sep|>")),
)


def _odds(weight: Tensor) -> Tensor:
    """Two classes, of which the first is to stop -> the log odds of the first."""
    return weight[:1] - weight[1:]


# D width, F feed-forward, V ids.
RULES = [
    Rule("embed_tokens.weight", "token_embedding.weight", "V D"),
    Rule("encoder.{}.norm1.weight", "blocks.{}.attention_norm.weight", "D"),
    Rule("encoder.{}.norm1.bias", "blocks.{}.attention_norm.bias", "D"),
    Rule("encoder.{}.attn_qkv.weight", "blocks.{}.attention_in.weight", "3D D"),
    Rule("encoder.{}.o_proj.weight", "blocks.{}.attention_out.weight", "D D"),
    Rule("encoder.{}.norm2.weight", "blocks.{}.feed_forward_norm.weight", "D"),
    Rule("encoder.{}.norm2.bias", "blocks.{}.feed_forward_norm.bias", "D"),
    Rule("encoder.{}.mlp.0.weight", "blocks.{}.feed_forward_in.weight", "F D"),
    Rule("encoder.{}.mlp.0.bias", "blocks.{}.feed_forward_in.bias", "F"),
    Rule("encoder.{}.mlp.2.weight", "blocks.{}.feed_forward_out.weight", "D F"),
    Rule("encoder.{}.mlp.2.bias", "blocks.{}.feed_forward_out.bias", "D"),
    Rule("output_layer.linear.weight", "token_head", "V D"),
    Rule("length_output_layer.norm_final.weight", "stop_tower.norm.weight", "D"),
    Rule("length_output_layer.norm_final.bias", "stop_tower.norm.bias", "D"),
    Rule("length_output_layer.mlp.0.weight", "stop_tower.inner.weight", "2D D"),
    Rule("length_output_layer.mlp.0.bias", "stop_tower.inner.bias", "2D"),
    Rule("length_output_layer.mlp.2.weight", "stop_tower.outer.weight", "D 2D"),
    Rule("length_output_layer.mlp.2.bias", "stop_tower.outer.bias", "D"),
    Rule("length_output_layer.linear.weight", "stop_head.weight", "two D", _odds),
]
FINAL_NORM = [
    Rule("output_layer.norm_final.weight", "final_norm.weight", "D"),
    Rule("output_layer.norm_final.bias", "final_norm.bias", "D"),
]
ROTARY = "encoder.{}.rotary_emb.inv_freq"
# Kept by their code in order to load older checkpoints, and added to nothing.
IGNORED = [ROTARY, "type_embeddings.weight"]


def recognises(source: Source) -> bool:
    """Whether the names are those of ILM."""
    return {"embed_tokens.weight", "encoder.0.o_proj.weight"} <= set(source.weights)


def convert(source: Source, tokenizer: Tokenizer, wishes: Wishes) -> Model:
    """The model.

    Raises:
        ValueError: if the weights are no ILM with a stop, or do not fit the tokenizer.
    """
    rows, width = (size(source, "embed_tokens.weight", d) for d in (0, 1))
    inner = size(source, "encoder.0.mlp.0.weight", 0)
    tokenizer = _completed(tokenizer, rows)
    check_vocabulary(tokenizer, rows, [0])
    _check_settings(source)
    final_norm = "output_layer.norm_final.weight" in source.weights
    config = ModelConfig(
        vocabulary=rows,
        layers=count_layers(source, "encoder."),
        width=width,
        heads=_heads_of(source, width, wishes),
        feed_forward=inner,
        normalised=True,
        stop=True,
        flags=False,
        dialect=Dialect(
            biases=True,
            relu=source.setting("activation") != "gelu",
            final_norm=final_norm,
            joint=True,
            leading=_leading(tokenizer),
            stop_tower=True,
            stop_probability=STOP_PROBABILITY,
        ),
    )
    sizes = {"V": rows, "D": width, "2D": 2 * width, "3D": 3 * width, "F": inner, "two": 2}
    rules = [*RULES, *(FINAL_NORM if final_norm else [])]
    network = take_over(Network(config), source, rules, sizes, IGNORED)
    length = length_of(source, wishes, "max_length")
    # Its lengths count the two rows before the text.
    return Model(network, tokenizer, ILM.build(tokenizer), longest=max(1, length - 2))


def _completed(tokenizer: Tokenizer, rows: int) -> Tokenizer:
    """The tokenizer with what ILM adds to it, if exactly that is missing."""
    for has, added in ADDED:
        known = tokenizer.library.token_to_id(has) is not None
        new = [name for name in added if tokenizer.library.token_to_id(name) is None]
        if known and len(new) == len(added) == rows - tokenizer.vocabulary:
            tokenizer.library.add_special_tokens(new)
            return Tokenizer(tokenizer.library)
    return tokenizer


def _leading(tokenizer: Tokenizer) -> tuple[int, ...]:
    for names in LEADING:
        ids = [tokenizer.library.token_to_id(name) for name in names]
        if None not in ids:
            return tuple(number for number in ids if number is not None)
    raise ValueError(
        "the tokenizer has neither [CLS] and [BOS] nor <|cls|> and <|bos|>, with which texts of "
        "ILM begin"
    )


def _check_settings(source: Source) -> None:
    activation = source.setting("activation")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"the activation must be relu or gelu: config.json says '{activation}'")
    epsilon = source.setting("layer_norm_eps")
    if epsilon is not None and epsilon != 1e-5:
        raise ValueError(f"the epsilon of norms must be 1e-05: config.json says {epsilon}")


def _heads_of(source: Source, width: int, wishes: Wishes) -> int:
    heads = wishes.heads or source.setting("nhead") or PUBLISHED_HEADS.get(width)
    if heads is None:
        raise ValueError(f"{source.file} does not tell how many heads it has: give --heads")
    heads = check_heads(width, heads)
    check_rotary(source, ROTARY.format(0), width // heads)
    return heads
