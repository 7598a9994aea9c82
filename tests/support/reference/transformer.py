"""The logits of a decoder-only transformer, written from the formulas: dense, without modules and fused operations.

RMSNorm (Zhang and Sennrich 2019), rotary positions as rotations of complex numbers (Su et al. 2021), grouped-query
attention (Ainslie et al. 2023), SwiGLU (Shazeer 2020).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]
"""Values by canonical name. Without `head.weight` the head is tied to the embedding."""


def exact(x: Tensor) -> Tensor:
    """Return the value itself: nothing is rounded."""
    return x


@dataclass(frozen=True)
class Transformer:
    """The architecture, apart from what the shapes of the parameters say."""

    layers: int
    heads: int
    kv_heads: int
    rope_theta: float
    norm_eps: float
    stored: Callable[[Tensor], Tensor] = exact
    """Applied to every parameter and intermediate value: see `storage.py`."""

    def __call__(self, parameters: Parameters, tokens: Tensor) -> Tensor:
        """Return logits (batch, sequence, vocabulary) for token ids (batch, sequence)."""
        weights = {name: self.stored(value) for name, value in parameters.items()}
        x = weights["embed.weight"][tokens]
        for number in range(self.layers):
            prefix = f"layers.{number}."
            block = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            x = self.stored(x + self._attention(block, self._norm(x, block["attention_norm.weight"])))
            x = self.stored(x + self._feed_forward(block, self._norm(x, block["ffn_norm.weight"])))
        x = self._norm(x, weights["norm.weight"])
        return self._linear(x, weights.get("head.weight", weights["embed.weight"]))

    def _attention(self, block: Parameters, x: Tensor) -> Tensor:
        queries = self._split(self._linear(x, block["attention.query.weight"]), self.heads)
        keys = self._split(self._linear(x, block["attention.key.weight"]), self.kv_heads)
        values = self._split(self._linear(x, block["attention.value.weight"]), self.kv_heads)
        queries, keys = self.stored(self._rotated(queries)), self.stored(self._rotated(keys))
        shared = [head * self.kv_heads // self.heads for head in range(self.heads)]
        keys, values = keys[:, :, shared], values[:, :, shared]
        scores = torch.einsum("bihd,bjhd->bhij", queries, keys) / math.sqrt(queries.shape[-1])
        length = x.shape[1]
        future = torch.arange(length)[None, :] > torch.arange(length)[:, None]
        scores = scores.masked_fill(future, -math.inf)
        odds = torch.exp(scores - scores.amax(-1, keepdim=True))
        attended = torch.einsum("bhij,bjhd->bihd", odds / odds.sum(-1, keepdim=True), values)
        return self._linear(self.stored(attended).flatten(2), block["attention.out.weight"])

    def _feed_forward(self, block: Parameters, x: Tensor) -> Tensor:
        gate, up = self._linear(x, block["ffn.gate.weight"]), self._linear(x, block["ffn.up.weight"])
        opened = self.stored(gate / (1 + torch.exp(-gate)))
        return self._linear(self.stored(opened * up), block["ffn.down.weight"])

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        root_mean_square = torch.sqrt((x * x).mean(-1, keepdim=True) + self.norm_eps)
        return self.stored(x / root_mean_square * weight)

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.stored(torch.einsum("...i,oi->...o", x, weight))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, x.shape[-1] // heads))

    def _rotated(self, x: Tensor) -> Tensor:
        """Turn the pair (i, i + d/2) at position p by the angle p · theta^(-2i/d)."""
        _, length, _, size = x.shape
        half = size // 2
        frequency = torch.tensor([self.rope_theta ** (-2 * i / size) for i in range(half)], dtype=x.dtype)
        angle = torch.arange(length, dtype=x.dtype)[:, None] * frequency
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * angle)[:, None, :]
        return torch.cat((turned.real, turned.imag), dim=-1)
