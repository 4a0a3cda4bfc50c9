"""The network: one transformer over packed sequences, with the heads that a method needs.

Legend: T rows of the packed batch, S sequences, D width, H heads, C channels per head.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, silu
from torch.utils.checkpoint import checkpoint

from didlm.kernels.add_norm import Branch, Layout, Modulation, add, add_norm
from didlm.kernels.embedding import embed
from didlm.kernels.feed_forward import feed_forward
from didlm.kernels.linear import linear
from didlm.kernels.rotary_attention import Rotation, rotary_angles, rotary_attention
from didlm.model.config import ModelConfig
from didlm.model.dialect import replace_bos
from didlm.model.length_prior import log_rate_prior
from didlm.model.memory import Attend, Memory
from didlm.packed import Packed

TIME_FEATURES = 128
SIGMA_FEATURES = 256  # of other people's networks
ROWS_AT_A_TIME = 1024  # whose logits are held at once to sum over all tokens


class Network(nn.Module):
    """Reads x_t; its hidden state at a row speaks for the gap after that row.

    `log_rate` turns hidden states into rates; the token distribution of a gap is the softmax of
    `logits` over the vocabulary, computed by the loss and the sampler where needed.
    """

    def __init__(self, config: ModelConfig, checkpointing: bool = False) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = checkpointing
        self.token_embedding = nn.Embedding(config.symbols, config.width)
        # For each token: is it given, and is the gap after it open?
        self.flag_embedding = nn.Embedding(4, config.width) if config.flags else None
        dialect = config.dialect
        condition = SigmaCondition if dialect.sigma else TimeCondition
        self.time = condition(config.condition) if config.condition else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = Norm(config, modulations=2) if dialect.final_norm else None
        has_rate_head = config.rates and not dialect.joint
        self.rate_head = nn.Linear(config.width, 1) if has_rate_head else None
        self.stop_tower = StopTower(config.width) if dialect.stop_tower else None
        self.stop_head = nn.Linear(config.width, 1) if config.stop else None
        self.token_head = nn.Parameter(torch.empty(config.padded_vocabulary, config.width))
        self.token_bias: nn.Parameter | None = None
        if dialect.biases:
            self.token_bias = nn.Parameter(torch.zeros(config.padded_vocabulary))
        self._initialise()

    def forward(self, x_t: Packed, deleted: Tensor, longest: int) -> Tensor:
        """Hidden states [T, D] of a batch.

        Where other rows stand in the place of BOS and one of them says when to stop, the states of
        these follow [T + S, D].

        Args:
            x_t: the batch.
            deleted: the probability of deletion u of each sequence [S]; unread without time.
            longest: no sequence has more rows than this.
        """
        leading = self.config.dialect.leading
        if leading is None:
            return self._read(x_t, deleted, longest)[1]
        read, place = replace_bos(x_t, leading)
        hidden, states = self._read(read, deleted, longest + max(0, len(leading) - 1))
        states = states[place]
        if not leading:
            return states.masked_fill(x_t.is_bos[:, None], 0)
        if not self.config.stop:
            return states
        return torch.cat([states, hidden[read.offsets[:-1]]])

    def _read(self, x_t: Packed, deleted: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """What the blocks say [T, D], before and after the last norm."""
        flags = flag_table = None
        if self.flag_embedding is not None:
            flags, flag_table = 2 * (x_t.given != 0) + x_t.open, self.flag_embedding.weight
        hidden = embed(x_t.tokens, self.token_embedding.weight, flags, flag_table)
        hidden = dropout(hidden, self.config.dropout, self.training)
        layout = Layout(x_t.sequence, x_t.offsets)
        position = torch.arange(x_t.rows, device=hidden.device) - x_t.offsets[:-1][x_t.sequence]
        rotation = rotary_angles(position, self.config.width // self.config.heads)
        times, last = self._times(deleted)
        attend = partial(
            rotary_attention,
            offsets=x_t.offsets,
            longest=longest,
            causal=self.config.causal,
            overwrite=True,
            slots=layout.slots,
        )
        stream = Stream(hidden)
        for block, time in zip(self.blocks, times, strict=True):
            arguments = (stream, time, layout, rotation, attend)
            if self.checkpointing and self.training:
                stream = checkpoint(block, *arguments, use_reentrant=False)
            else:
                stream = block(*arguments)
        return self._normed(stream, last, layout)

    def _times(self, deleted: Tensor) -> tuple[list["Times | None"], Tensor | None]:
        """What each block knows of time, and how it modulates the last norm."""
        if self.time is None:
            return [None] * len(self.blocks), None
        condition = self.time(deleted)
        layers: list[nn.Linear] = [
            norm.modulation  # type: ignore[misc, union-attr]
            for block in self.blocks
            for norm in (block.attention_norm, block.feed_forward_norm)
        ]
        layers += [self.final_norm.modulation] if self.final_norm else []  # type: ignore[list-item]
        if hasattr(layers[0].weight, "device_mesh"):  # spread over processes: each at its turn
            last = self.final_norm.modulated(condition) if self.final_norm else None
            return [Times(condition) for _ in self.blocks], last
        # One product for all: one by one, they are a hundred tiny ones.
        weight, bias = (
            torch.cat([getattr(x, name) for x in layers]) for name in ("weight", "bias")
        )
        parts = linear(condition, weight, bias).split([x.out_features for x in layers], -1)
        pairs = zip(parts[0::2], parts[1::2], strict=False)  # what is left is the last norm's
        return [Times(condition, pair) for pair in pairs], parts[-1] if self.final_norm else None

    def _normed(
        self, stream: "Stream", modulated: Tensor | None, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """The hidden states [T, D] before and after the last norm."""
        if self.final_norm is None:
            hidden = add(stream.hidden, stream.branch, layout)
            return hidden, hidden
        hidden, normed, _ = self.final_norm(stream, modulated, layout)
        return hidden, normed

    def extend(self, x_t: Packed, memory: Memory) -> Tensor:
        """Hidden states [N, D] of the rows that a causal network has not read yet.

        What later rows need of them is left in the memory.
        """
        assert self.config.causal
        sequence = x_t.sequence[memory.new]
        hidden = embed(x_t.tokens[memory.new], self.token_embedding.weight, None, None)
        position = memory.new - x_t.offsets[:-1][sequence]
        rotation = rotary_angles(position, self.config.width // self.config.heads)
        stream, layout = Stream(hidden), Layout(sequence, memory.asking(x_t))
        attentions = memory.attentions(x_t, len(self.blocks))
        for block, attend in zip(self.blocks, attentions, strict=True):
            stream = block(stream, None, layout, rotation, attend)
        return self._normed(stream, None, layout)[1]

    def logits(self, hidden: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the tokens [R, P], padding of the head included."""
        logits = hidden @ self.token_head.T.to(hidden.dtype)
        return logits if self.token_bias is None else logits + self.token_bias.to(hidden.dtype)

    def readout(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Features [R, F] and weights [P, F] whose product are the `logits`, for the token loss."""
        if self.token_bias is None:
            return hidden, self.token_head
        head = self.token_head.to(hidden.dtype)
        ones = hidden.new_ones(len(hidden), 1)
        bias = self.token_bias.to(hidden.dtype)[:, None]
        return torch.cat([hidden, ones], -1), torch.cat([head, bias], -1)

    def log_rate(self, hidden: Tensor, deleted: Tensor, x_t: Packed) -> Tensor:
        """Log of the insertion rate of each gap [T], in float32 or wider.

        Without time these are logits over the gaps of a sequence. With time they start at what the
        lengths of the data tell, so that training is at the right scale from the first step.
        """
        if self.config.dialect.joint:
            return self._log_total(hidden[: x_t.rows])
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
        """Log odds that each sequence is complete [S], read off its BOS, or its leading row."""
        assert self.stop_head is not None
        rows = hidden[x_t.offsets[:-1]]
        if self.config.dialect.leading is not None:
            rows = hidden[x_t.rows :]
        if self.stop_tower is not None:
            rows = self.stop_tower(rows)
        return self.stop_head(rows).squeeze(-1).float()

    def _log_total(self, hidden: Tensor) -> Tensor:
        """Log of the sum of the scores of all tokens [T]."""
        totals = []
        for some in hidden.split(ROWS_AT_A_TIME):
            logits = self.logits(some)[:, : self.config.vocabulary]
            logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
            totals.append(logits.logsumexp(-1))
        return torch.cat(totals)

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("attention_out.weight", "feed_forward_out.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers))
            if ".modulation." in name or name.startswith(("rate_head", "stop_head")):
                nn.init.zeros_(parameter)


class Stream(NamedTuple):
    """The hidden states between two blocks: what the last layer said is not added to them yet.

    The next norm adds it, so that the two are one pass over memory.
    """

    hidden: Tensor  # [T, D]
    rows: Tensor | None = None  # [T, D] what is to be added
    gate: Tensor | None = None  # [S, D] how much of it; one is added to it

    @property
    def branch(self) -> Branch | None:
        """What is to be added."""
        return None if self.rows is None else Branch(self.rows, self.gate)


class Times(NamedTuple):
    """What a block knows of time."""

    condition: Tensor  # [S, ...]
    of_block: tuple[Tensor, Tensor] | None = None  # what it makes of it, if that is known already


class Block(nn.Module):
    """Attention, then feed-forward, each around a residual connection with its norm in front."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.activation = "relu" if config.dialect.relu else "silu" if config.gated else "gelu"
        inner, biases = config.feed_forward, config.dialect.biases
        self.attention_norm = Norm(config, modulations=3)
        self.attention_in = nn.Linear(config.width, 3 * config.width, bias=False)
        self.attention_out = nn.Linear(config.width, config.width, bias=False)
        self.feed_forward_norm = Norm(config, modulations=3)
        self.feed_forward_in = nn.Linear(
            config.width, inner * (2 if config.gated else 1), bias=biases
        )
        self.feed_forward_out = nn.Linear(inner, config.width, bias=biases)

    def forward(
        self,
        stream: Stream,
        times: "Times | None",
        layout: Layout,
        rotation: Rotation,
        attend: Attend,
    ) -> Stream:
        """One layer."""
        first, second = self._modulations(times)
        hidden, normed, gate = self.attention_norm(stream, first, layout)
        qkv = linear(normed, self.attention_in.weight).unflatten(-1, (3, self.heads, -1))
        rows = linear(attend(qkv, rotation).flatten(1), self.attention_out.weight)
        stream = Stream(hidden, self._dropped(rows), gate)
        hidden, normed, gate = self.feed_forward_norm(stream, second, layout)
        inward, outward = self.feed_forward_in, self.feed_forward_out
        biases = None if inward.bias is None else (inward.bias, outward.bias)
        rows = feed_forward(normed, inward.weight, outward.weight, self.activation, biases)
        if gate is not None and times is not None and times.of_block is None:
            gate = gate.clone()  # what leaves a block that is spread over processes is no view
        return Stream(hidden, self._dropped(rows), gate)

    def _modulations(self, times: "Times | None") -> tuple[Tensor | None, Tensor | None]:
        if times is None:
            return None, None
        if times.of_block is not None:
            return times.of_block
        norms = self.attention_norm, self.feed_forward_norm
        first, second = (norm.modulated(times.condition) for norm in norms)
        return first, second

    def _dropped(self, rows: Tensor) -> Tensor:
        return dropout(rows, self.dropout, self.training) if self.dropout else rows


class Norm(nn.Module):
    """Layer or RMS norm; with time its scale and shift, and a gate for what follows, depend on it.

    The time part starts at zero: scale and gate are one, shift is nothing.
    """

    def __init__(self, config: ModelConfig, modulations: int) -> None:
        super().__init__()
        self.kind, self.modulations = config.norm, modulations
        self.weight = nn.Parameter(torch.ones(config.width))
        self.bias: nn.Parameter | None = None
        if config.dialect.biases:
            self.bias = nn.Parameter(torch.zeros(config.width))
        outputs = modulations * config.width
        self.modulation = nn.Linear(config.condition, outputs) if config.condition else None

    def modulated(self, condition: Tensor) -> Tensor:
        """Scale, shift and, if there is one, gate at a time, side by side [S, ...]."""
        assert self.modulation is not None
        return linear(condition, self.modulation.weight, self.modulation.bias)

    def forward(
        self, stream: Stream, modulated: Tensor | None, layout: Layout
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The stream in one [T, D], its norm [T, D], and a gate for what follows it [S, D]."""
        modulation, gate = None, None
        if modulated is not None:
            scale, shift, *gates = modulated.chunk(self.modulations, -1)
            modulation, gate = Modulation(scale, shift), gates[0] if gates else None
        hidden, normed = add_norm(
            stream.hidden, stream.branch, self.kind, self.weight, self.bias, modulation, layout
        )
        return hidden, normed, gate


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


class SigmaCondition(nn.Module):
    """The same for the total noise sigma = -log(1 - u), with the features of SEDD."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features_in = nn.Linear(SIGMA_FEATURES, width)
        self.condition_out = nn.Linear(width, width)

    def forward(self, deleted: Tensor) -> Tensor:
        """Vectors [S, width]."""
        count = SIGMA_FEATURES // 2
        steps = torch.arange(count, device=deleted.device, dtype=torch.float32)
        # Their log-linear schedule ends where one token in a thousand is left: sigma is finite.
        sigma = -torch.log1p(-deleted.float().clamp(max=1 - 1e-3))
        phase = sigma[:, None] * 10_000 ** (-steps / count)
        features = torch.cat([phase.cos(), phase.sin()], -1)
        features = features.to(self.features_in.weight.dtype)
        return silu(self.condition_out(silu(self.features_in(features))))


class StopTower(nn.Module):
    """What ILM puts before its stop head: a norm and a wide tanh layer around a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [S, D] -> [S, D]."""
        return rows + self.outer(self.inner(self.norm(rows)).tanh())


def non_embedding_parameters(network: nn.Module) -> int:
    """The count the paper reports: all but token embeddings and token head."""
    skipped = ("token_embedding", "token_head")
    return sum(p.numel() for name, p in network.named_parameters() if not name.startswith(skipped))
