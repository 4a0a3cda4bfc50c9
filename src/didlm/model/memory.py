"""What a causal network remembers of the rows it has read: their keys and values in every layer.

Legend: T rows of the packed batch, N rows not read yet, L layers, D width, H heads, C channels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from didlm.kernels.attention import packed_attention
from didlm.kernels.rotary_attention import Rotation, rotate
from didlm.packed import Packed

# Queries, keys and values [., 3, H, C], their rotation -> mixture [., H, C]
Attend = Callable[[Tensor, Rotation], Tensor]


@dataclass(frozen=True, eq=False)
class Memory:
    """Keys and values of all rows; those of the rows that are read now are filled in."""

    states: Tensor  # [T, L, 2, D], keys and values; anything at rows not read yet
    new: Tensor  # [N] rows to be read now: the last ones of their sequences, in rising order
    longest: int  # no sequence has more rows than this

    def asking(self, x_t: Packed) -> Tensor:
        """Where the new rows of each sequence start among them, and the end [S + 1]."""
        return torch.searchsorted(self.new, x_t.offsets)

    def attentions(self, x_t: Packed, layers: int) -> list[Attend]:
        """Attention of the new rows to all rows before them, in each layer."""
        asking = self.asking(x_t)

        def attend(layer: int, qkv: Tensor, rotation: Rotation) -> Tensor:
            query, key, value = qkv.unbind(1)
            query, key = rotate(query, rotation), rotate(key, rotation)
            self.states[self.new, layer, 0] = key.flatten(1).to(self.states.dtype)
            self.states[self.new, layer, 1] = value.flatten(1).to(self.states.dtype)
            keys, values = self.states[:, layer].unflatten(-1, key.shape[1:]).unbind(1)
            return packed_attention(
                query, keys, values, x_t.offsets, self.longest, causal=True, query_offsets=asking
            )

        return [partial(attend, layer) for layer in range(layers)]
