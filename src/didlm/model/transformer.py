"""The network: one transformer over packed sequences, with the heads that a method needs.

Legend: T rows of the packed batch, S sequences, D width, H heads, C channels per head.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, layer_norm, rms_norm, silu
from torch.utils.checkpoint import checkpoint

from didlm.kernels.attention import packed_attention
from didlm.model.config import ModelConfig
from didlm.model.length_prior import log_rate_prior
from didlm.model.memory import Attend, Memory
from didlm.packed import Packed

TIME_FEATURES = 128


class Network(nn.Module):
    """Reads x_t; its hidden state at a row speaks for the gap after that row.

    `log_rate` turns hidden states into rates; the token distribution of a gap is the softmax of
    `hidden @ token_head.T` over the vocabulary, computed by the loss and the sampler where needed.
    """

    def __init__(self, config: ModelConfig, checkpointing: bool = False) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = checkpointing
        self.token_embedding = nn.Embedding(config.symbols, config.width)
        # For each token: is it given, and is the gap after it open?
        self.flag_embedding = nn.Embedding(4, config.width) if config.flags else None
        self.time = TimeCondition(config.condition) if config.condition else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = Norm(config, modulations=2)
        self.rate_head = nn.Linear(config.width, 1) if config.rates else None
        self.stop_head = nn.Linear(config.width, 1) if config.stop else None
        self.token_head = nn.Parameter(torch.empty(config.padded_vocabulary, config.width))
        self._initialise()

    def forward(self, x_t: Packed, deleted: Tensor, longest: int) -> Tensor:
        """Hidden states [T, D] of a batch.

        Args:
            x_t: the batch.
            deleted: the probability of deletion u of each sequence [S]; unread without time.
            longest: no sequence has more rows than this.
        """
        hidden = self.token_embedding(x_t.tokens)
        if self.flag_embedding is not None:
            hidden = hidden + self.flag_embedding(2 * (x_t.given != 0) + x_t.open)
        hidden = dropout(hidden, self.config.dropout, self.training)
        sequence = x_t.sequence
        position = torch.arange(x_t.rows, device=hidden.device) - x_t.offsets[:-1][sequence]
        rotation = rotary_angles(position, self.config.width // self.config.heads)
        condition = self.time(deleted) if self.time else None
        attend = partial(
            packed_attention, offsets=x_t.offsets, longest=longest, causal=self.config.causal
        )
        for block in self.blocks:
            arguments = (hidden, condition, sequence, rotation, attend)
            if self.checkpointing and self.training:
                hidden = checkpoint(block, *arguments, use_reentrant=False)
            else:
                hidden = block(*arguments)
        normed, _ = self.final_norm(hidden, condition, sequence)
        return normed

    def extend(self, x_t: Packed, memory: Memory) -> Tensor:
        """Hidden states [N, D] of the rows that a causal network has not read yet.

        What later rows need of them is left in the memory.
        """
        assert self.config.causal
        sequence = x_t.sequence[memory.new]
        hidden = self.token_embedding(x_t.tokens[memory.new])
        position = memory.new - x_t.offsets[:-1][sequence]
        rotation = rotary_angles(position, self.config.width // self.config.heads)
        for layer, block in enumerate(self.blocks):
            hidden = block(hidden, None, sequence, rotation, memory.attend(layer, x_t))
        normed, _ = self.final_norm(hidden, None, sequence)
        return normed

    def log_rate(self, hidden: Tensor, deleted: Tensor, x_t: Packed) -> Tensor:
        """Log of the insertion rate of each gap [T], in float32 or wider.

        Without time these are logits over the gaps of a sequence. With time they start at what the
        lengths of the data tell, so that training is at the right scale from the first step.
        """
        assert self.rate_head is not None
        output = self.rate_head(hidden).squeeze(-1)
        output = output.float() if output.dtype in (torch.bfloat16, torch.float16) else output
        if self.config.normalised:
            return output
        config = self.config
        log_prior = log_rate_prior(
            x_t, deleted.to(output.dtype), config.mean_length, config.length_dispersion
        )
        return output + log_prior[x_t.sequence]

    def stop_logit(self, hidden: Tensor, x_t: Packed) -> Tensor:
        """Log odds that each sequence is complete [S], read off its BOS."""
        assert self.stop_head is not None
        return self.stop_head(hidden[x_t.offsets[:-1]]).squeeze(-1).float()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("attention_out.weight", "feed_forward_out.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers))
            if ".modulation." in name or name.startswith(("rate_head", "stop_head")):
                nn.init.zeros_(parameter)


class Block(nn.Module):
    """Attention, then feed-forward, each around a residual connection with its norm in front."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout, self.gated = config.heads, config.dropout, config.gated
        inner = config.feed_forward
        self.attention_norm = Norm(config, modulations=3)
        self.attention_in = nn.Linear(config.width, 3 * config.width, bias=False)
        self.attention_out = nn.Linear(config.width, config.width, bias=False)
        self.feed_forward_norm = Norm(config, modulations=3)
        self.feed_forward_in = nn.Linear(
            config.width, inner * (2 if config.gated else 1), bias=False
        )
        self.feed_forward_out = nn.Linear(inner, config.width, bias=False)

    def forward(
        self,
        hidden: Tensor,
        condition: Tensor | None,
        sequence: Tensor,
        rotation: tuple[Tensor, Tensor],
        attend: Attend,
    ) -> Tensor:
        """One layer [T, D] -> [T, D]."""
        normed, gate = self.attention_norm(hidden, condition, sequence)
        query, key, value = self.attention_in(normed).unflatten(-1, (3, self.heads, -1)).unbind(1)
        query, key = rotate(query, rotation), rotate(key, rotation)
        mixed = attend(query, key, value)
        hidden = hidden + gate * dropout(
            self.attention_out(mixed.flatten(1)), self.dropout, self.training
        )
        normed, gate = self.feed_forward_norm(hidden, condition, sequence)
        inner = self.feed_forward_in(normed)
        if self.gated:
            left, right = inner.chunk(2, -1)
            inner = silu(left) * right
        else:
            inner = gelu(inner, approximate="tanh")
        return hidden + gate * dropout(self.feed_forward_out(inner), self.dropout, self.training)


class Norm(nn.Module):
    """Layer or RMS norm; with time its scale and shift, and a gate for what follows, depend on it.

    The time part starts at zero: scale and gate are one, shift is nothing.
    """

    def __init__(self, config: ModelConfig, modulations: int) -> None:
        super().__init__()
        self.kind, self.modulations = config.norm, modulations
        self.weight = nn.Parameter(torch.ones(config.width))
        outputs = modulations * config.width
        self.modulation = nn.Linear(config.condition, outputs) if config.condition else None

    def forward(
        self, hidden: Tensor, condition: Tensor | None, sequence: Tensor
    ) -> tuple[Tensor, Tensor | float]:
        """The normed rows [T, D], and the gate of the residual branch [T, D] (or 1)."""
        shape, weight = self.weight.shape, self.weight.to(hidden.dtype)
        norm = layer_norm if self.kind == "layer" else rms_norm
        normed = norm(hidden, shape, weight)
        if self.modulation is None or condition is None:
            return normed, 1.0
        scale, shift, *gate = self.modulation(condition).chunk(self.modulations, -1)
        normed = normed * (1 + scale)[sequence] + shift[sequence]
        return normed, (1 + gate[0])[sequence] if gate else 1.0


class TimeCondition(nn.Module):
    """A vector for the probability of deletion u [S], fine both in u and in log u.

    On complete texts the rates must vanish like u, so the network has to tell 1e-2 from 1e-4.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features_in = nn.Linear(TIME_FEATURES, width)
        self.condition_out = nn.Linear(width, width)

    def forward(self, deleted: Tensor) -> Tensor:
        """Vectors [S, width]."""
        count = TIME_FEATURES // 4
        frequency = torch.arange(1, count + 1, device=deleted.device) * (math.pi / 2)
        u = deleted.float().clamp(min=1e-9)
        # log u runs to about -10 in training: the same frequencies on a tenth of it.
        phase = torch.cat([u[:, None] * frequency, u.log()[:, None] * frequency / 10], -1)
        features = torch.cat([phase.sin(), phase.cos()], -1)
        features = features.to(self.features_in.weight.dtype)
        return silu(self.condition_out(silu(self.features_in(features))))


def rotary_angles(position: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, 1, C / 2] of the rotary position embedding."""
    steps = torch.arange(0, channels, 2, device=position.device, dtype=torch.float32)
    angle = position[:, None, None].float() * 10_000 ** (-steps / channels)
    return angle.cos(), angle.sin()


def rotate(vectors: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of channels [T, H, C] by its angle."""
    cosine, sine = (x.to(vectors.dtype) for x in rotation)
    first, second = vectors.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


def non_embedding_parameters(network: nn.Module) -> int:
    """The count the paper reports: all but token embeddings and token head."""
    skipped = ("token_embedding", "token_head")
    return sum(p.numel() for name, p in network.named_parameters() if not name.startswith(skipped))
