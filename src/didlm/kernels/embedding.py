"""The rows that a network reads: the embedding of each token, plus that of its flags.

Torch adds two gathered tables in float32, and its gradient sorts the tokens first. On a GPU in 16
bits one kernel does the former, and one adds all gradients where they belong.

Legend: T rows, V tokens, D width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from didlm.kernels.here import narrow_dtype, runs_triton


def embed(tokens: Tensor, table: Tensor, flags: Tensor | None, flag_table: Tensor | None) -> Tensor:
    """Rows [T, D]; in the kernel, those of tokens or flags that do not exist are not numbers.

    Args:
        tokens: [T] int64.
        table: their embeddings [V, D].
        flags: [T] int64, if there are any.
        flag_table: their embeddings [4, D].
    """
    dtype = narrow_dtype(table)
    if dtype is None or not runs_triton(table):
        return embed_plain(tokens, table, flags, flag_table)
    tokens, flags = tokens.contiguous(), None if flags is None else flags.contiguous()
    return _Embed.apply(tokens, table, flags, flag_table, dtype)  # type: ignore[no-untyped-call]


def embed_plain(
    tokens: Tensor, table: Tensor, flags: Tensor | None, flag_table: Tensor | None
) -> Tensor:
    """The same, operation by operation, in the dtype of the table."""
    rows = embedding(tokens, table)
    if flags is not None and flag_table is not None:
        rows = rows + embedding(flags, flag_table)
    return rows


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        table: Tensor,
        flags: Tensor | None,
        flag_table: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        from didlm.kernels import embedding_triton

        ctx.save_for_backward(tokens, flags)
        ctx.sizes = table.shape, None if flag_table is None else flag_table.shape
        ctx.dtype = table.dtype
        return embedding_triton.forward(tokens, table, flags, flag_table, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from didlm.kernels import embedding_triton

        tokens, flags = ctx.saved_tensors
        if not any(ctx.needs_input_grad):
            return None, None, None, None, None
        of_tokens, of_flags = embedding_triton.backward(
            gradient.contiguous(), tokens, flags, *ctx.sizes
        )
        if of_flags is not None:
            of_flags = of_flags.to(ctx.dtype)
        return None, of_tokens.to(ctx.dtype), None, of_flags, None
