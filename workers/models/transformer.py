"""Decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

References: Vaswani et al. 2017; Zhang and Sennrich 2019 (RMSNorm); Su et al. 2021 (rotary positions); Ainslie et al.
2023 (grouped-query attention); Shazeer 2020 (SwiGLU).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name everybody reads)

from regroup.workers.models.roles import Role, Tiny

_INIT_STD = 0.02
_TENSOR_PLAN = {
    "embed": Role.EMBEDDING,
    "layers.*.*_norm": Role.STREAM,
    "layers.*.attention": Role.SPLIT,
    "layers.*.attention.query": Role.COLUMN,
    "layers.*.attention.key": Role.COLUMN,
    "layers.*.attention.value": Role.COLUMN,
    "layers.*.attention.out": Role.ROW,
    "layers.*.ffn": Role.SPLIT,
    "layers.*.ffn.gate": Role.COLUMN,
    "layers.*.ffn.up": Role.COLUMN,
    "layers.*.ffn.down": Role.ROW,
    "norm": Role.STREAM,
}


def build(config: Mapping[str, Any], symbols: int) -> "Transformer":
    """Return a transformer with the fields of `models.TransformerModel`, for at least `symbols` token ids.

    Raises:
        ValueError: fewer vocabulary rows than the tokenizer has tokens.
    """
    rows = int(config.get("vocab_size") or symbols)
    if rows < symbols:
        raise ValueError(f"model.vocab_size is {rows} but the tokenizer has {symbols} tokens; leave it out or raise it")
    dim, heads = int(config["dim"]), int(config["heads"])
    hidden = config.get("ffn_dim") or -(-dim * 8 // 3 // 32) * 32
    return Transformer(
        vocab_size=rows,
        dim=dim,
        layers=int(config["layers"]),
        heads=heads,
        kv_heads=int(config.get("kv_heads") or heads),
        hidden=int(hidden),
        rope_theta=float(config["rope_theta"]),
        norm_eps=float(config["norm_eps"]),
        tie_embeddings=bool(config["tie_embeddings"]),
    )


def tiny() -> Tiny:
    """Return the tiny example for the zygote's warm-up."""
    vocabulary, tokens = 16, torch.zeros((1, 8), dtype=torch.int64)
    config = {"dim": 8, "layers": 1, "heads": 2, "kv_heads": None, "ffn_dim": 16, "vocab_size": vocabulary}
    return Tiny(config, tokens, tokens, symbols=vocabulary)


class Transformer(nn.Module):
    """Token ids (batch, sequence) → logits (batch, sequence, vocabulary)."""

    def __init__(
        self,
        *,
        vocab_size: int,
        dim: int,
        layers: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        rope_theta: float,
        norm_eps: float,
        tie_embeddings: bool,
    ) -> None:
        super().__init__()
        self._theta = rope_theta
        self._head_dim = dim // heads
        self._dim = dim
        self.depth = layers
        self.outputs = vocab_size
        self.stream_parts = 1
        self.embed: nn.Module | None = nn.Embedding(vocab_size, dim)
        # A dict with absolute keys: names stay the same when a pipeline stage holds only some of the blocks.
        self.layers = nn.ModuleDict({str(i): Block(dim, heads, kv_heads, hidden, norm_eps) for i in range(layers)})
        self.norm: nn.Module | None = nn.RMSNorm(dim, eps=norm_eps)
        # Tied, the head is the embedding used twice and not a second name for it: nothing can untie it.
        self.head: nn.Module | None = TiedHead() if tie_embeddings else nn.Linear(dim, vocab_size, bias=False)
        self.tensor_plan = {**_TENSOR_PLAN, "head": Role.TIED_HEAD if tie_embeddings else Role.HEAD}

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next token at every position. A stage takes and gives the residual stream instead."""
        if self.embed is not None:
            length = x.shape[1]
            x = self.embed(x)
        else:
            length = x.shape[1] * self.stream_parts
        rotation = rotary(length, self._head_dim, self._theta, x.device, _at_least_float32(x.dtype))
        for block in self.layers.values():
            x = block(x, rotation)
        if self.norm is None or self.head is None:
            return x
        x = self.norm(x)
        if isinstance(self.head, TiedHead):
            assert self.embed is not None, "a pipeline does not cut a model with tied embeddings"
            return self.head(x, self.embed.weight)
        return self.head(x)

    def stream_shape(self, inputs: torch.Size) -> tuple[int, ...]:
        """(batch, sequence, dim); of the sequence a part, if ranks share it."""
        return (inputs[0], inputs[1] // self.stream_parts, self._dim)

    def cut(self, blocks: range) -> None:
        """Become a pipeline stage: only these blocks stay, with the embedding if the first is among them, and norm
        and head if the last is."""
        if 0 not in blocks:
            self.embed = None
        if self.depth - 1 not in blocks:
            self.norm = self.head = None
        for index in set(range(self.depth)) - set(blocks):
            del self.layers[str(index)]

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Norms start at one; matrices are normal, those that write to the residual stream scaled by its depth."""
        if len(shape) == 1:
            return torch.ones(shape)
        std = _INIT_STD
        if name.endswith(("attention.out.weight", "ffn.down.weight")):
            std /= math.sqrt(2 * self.depth)
        return torch.empty(shape).normal_(0.0, std, generator=generator)


class TiedHead(nn.Module):
    """Logits by the embedding's weights."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """x: (batch, sequence, dim); weight: (vocabulary, dim)."""
        return F.linear(x, weight)


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, dim: int, heads: int, kv_heads: int, hidden: int, norm_eps: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.attention = Attention(dim, heads, kv_heads)
        self.ffn_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.ffn = FeedForward(dim, hidden)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """x: (batch, sequence, dim); rotation: see `rotary`."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.ffn(self.ffn_norm(x))


class Attention(nn.Module):
    """Causal self-attention in which several query heads share one key and value head."""

    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self._head_dim = dim // heads
        self.query = nn.Linear(dim, heads * self._head_dim, bias=False)
        self.key = nn.Linear(dim, kv_heads * self._head_dim, bias=False)
        self.value = nn.Linear(dim, kv_heads * self._head_dim, bias=False)
        self.out = nn.Linear(heads * self._head_dim, dim, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """x: (batch, sequence, dim)."""
        # -1 heads: under tensor parallelism a rank holds only some of them.
        query, key, value = (
            projection(x).unflatten(-1, (-1, self._head_dim)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=key.shape[1] != query.shape[1])
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, sequence, dim)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


def rotary(
    length: int, head_dim: int, theta: float, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Cosines and sines (2, length, head_dim / 2), at least in float32: half precision cannot tell distant positions
    apart.

    Recomputed at every forward: cheaper than a buffer that meta-device building, casting and restoring must get right.
    """
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=dtype) / head_dim)
    angle = torch.outer(torch.arange(length, device=device, dtype=dtype), frequency)
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate pairs (i, i + head_dim / 2) of x (batch, heads, sequence, head_dim) by the angle of their position."""
    cos, sin = rotation[0], rotation[1]
    first, second = x.to(_at_least_float32(x.dtype)).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
