"""What the planner knows of a model: decoder transformers by shape, anything else by its counts; published ones by
name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer: sizes as its authors publish them."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    ffn: int = 0
    """Width between the feed-forward's products; 0 for 4·hidden."""
    kv_heads: int = 0
    """Heads of keys and values; 0 for as many as `heads`."""
    gated: bool = False
    """SwiGLU and its like: three products in the feed-forward, not two."""
    tied: bool = False
    """Embedding and output share their rows."""
    learned_positions: int = 0
    experts: int = 1
    """Feed-forwards of a layer, of which each token passes `active_experts`."""
    active_experts: int = 1
    head_dim: int = 0
    """0 for hidden / heads."""

    @property
    def width(self) -> int:
        """Of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Of the feed-forward."""
        return self.ffn or 4 * self.hidden

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def attention_parameters(self) -> int:
        """Matrices of one layer's attention."""
        return self.hidden * self.width * (2 * self.heads + 2 * self.groups)

    @property
    def expert_parameters(self) -> int:
        """Matrices of one feed-forward."""
        return (3 if self.gated else 2) * self.hidden * self.inner

    @property
    def layer_parameters(self) -> int:
        """Of one layer, norms and a router included."""
        router = self.hidden * self.experts if self.experts > 1 else 0
        return self.attention_parameters + self.experts * self.expert_parameters + router + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Of the token embedding alone."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        ends = self.embedding_parameters * (1 if self.tied else 2) + self.learned_positions * self.hidden + self.hidden
        return self.layers * self.layer_parameters + ends

    @property
    def active_parameters(self) -> int:
        """Those a token passes."""
        idle = self.layers * (self.experts - self.active_experts) * self.expert_parameters
        return self.parameters - idle

    def matmul_flops_per_token(self) -> float:
        """Forward operations of one layer's weight matrices on one token: two per weight."""
        return 2.0 * (self.attention_parameters + self.active_experts * self.expert_parameters)

    def attention_flops_per_token(self, sequence: int) -> float:
        """Forward operations of scores and values of one layer on one token, all of the sequence counted."""
        return 4.0 * sequence * self.heads * self.width

    def step_flops(self, samples: int, sequence: int) -> float:
        """Model operations of a step, backward twice the forward, nothing recomputed: what MFU counts (PaLM, app.
        B)."""
        layer = self.matmul_flops_per_token() + self.attention_flops_per_token(sequence)
        return 3.0 * samples * sequence * (self.layers * layer + 2.0 * self.embedding_parameters)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Model:
    """A model of the GPT family: 4h feed-forward, tied embeddings, learned positions left out."""
    return Model(layers, hidden, heads, vocabulary, tied=True)


def vit(layers: int, hidden: int, heads: int, classes: int = 1000) -> Model:
    """An encoder of images (Dosovitskiy et al. 2020), its patches as tokens: a sequence of 197 for 224 pixels in
    patches of 16.

    Classes stand for the vocabulary: patch embedding and head have about as many rows, and every token's logits are
    counted though only one is made, a third of a percent.
    """
    return Model(layers, hidden, heads, classes)


def _llama(layers: int, hidden: int, heads: int, ffn: int, kv_heads: int = 0, vocabulary: int = 32000) -> Model:
    return Model(layers, hidden, heads, vocabulary, ffn, kv_heads, gated=True)


PRESETS: Mapping[str, Model] = {
    "gpt2": Model(12, 768, 12, 50257, tied=True, learned_positions=1024),
    "gpt2-xl": Model(48, 1600, 25, 50257, tied=True, learned_positions=1024),
    "gpt3-1.3b": gpt(24, 2048, 16),
    "gpt3-175b": gpt(96, 12288, 96),
    "bloom-176b": gpt(70, 14336, 112, 250880),
    "mt-nlg-530b": gpt(105, 20480, 128),
    "llama2-7b": _llama(32, 4096, 32, 11008),
    "llama2-13b": _llama(40, 5120, 40, 13824),
    "llama-30b": _llama(60, 6656, 52, 17920),
    "llama2-70b": _llama(80, 8192, 64, 28672, 8),
    "llama3-8b": _llama(32, 4096, 32, 14336, 8, 128256),
    "llama3-70b": _llama(80, 8192, 64, 28672, 8, 128256),
    "llama3-405b": _llama(126, 16384, 128, 53248, 8, 128256),
    "vit-b16": vit(12, 768, 12),
    "vit-l16": vit(24, 1024, 16),
    "vit-h14": vit(32, 1280, 16),
    "mixtral-8x7b": replace(_llama(32, 4096, 32, 14336, 8), experts=8, active_experts=2),
}
"""Published models: their papers' tables of sizes."""
