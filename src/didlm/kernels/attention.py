"""Attention within each sequence of a packed batch: one function, two paths.

Legend: T rows, S sequences, H heads, C channels per head.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: Tensor,
    longest: int,
    causal: bool = False,
    query_offsets: Tensor | None = None,
) -> Tensor:
    """Softmax attention among the rows of each sequence [T, H, C].

    On CUDA in 16 bits this is torch's kernel for sequences of different lengths; elsewhere a loop
    over the sequences, which on a CPU beats masks and nested tensors several times.

    Args:
        query: [T, H, C].
        key: [T, H, C].
        value: [T, H, C].
        offsets: [S + 1] where each sequence starts, and the end.
        longest: no sequence has more rows than this.
        causal: whether a row sees only the rows before it and itself.
        query_offsets: [S + 1] where the queries of each sequence start, if only its last rows ask.
    """
    asking = offsets if query_offsets is None else query_offsets
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _varlen(query, key, value, offsets, longest, causal, asking)
    return attention_plain(query, key, value, offsets, longest, causal, asking)


def attention_plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: Tensor,
    longest: int,
    causal: bool = False,
    query_offsets: Tensor | None = None,
) -> Tensor:
    """The same, one sequence after the other, on any device in any dtype."""
    lengths = offsets.diff().tolist()
    asking = lengths if query_offsets is None else query_offsets.diff().tolist()
    parts = zip(query.split(asking), key.split(lengths), value.split(lengths), strict=True)
    results = [
        scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=_causal_mask(q, k) if causal and 1 < len(q) < len(k) else None,
            is_causal=causal and len(q) == len(k),
        )[0].transpose(0, 1)
        for q, k, v in parts
        if q.shape[0]
    ]
    return torch.cat(results) if results else torch.zeros_like(query)


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """Which rows [K] each of the last rows [Q] of a sequence may see."""
    places = torch.arange(len(key), device=key.device)
    return places <= places[-len(query) :, None]


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: Tensor,
    longest: int,
    causal: bool,
    query_offsets: Tensor,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    starts, asking = offsets.to(torch.int32), query_offsets.to(torch.int32)
    window = (-1, 0) if causal else (-1, -1)  # where fewer rows ask, they are the last ones
    result = varlen_attn(query, key, value, asking, starts, longest, longest, window_size=window)
    assert isinstance(result, Tensor)
    return result
