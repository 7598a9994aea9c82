"""Shapes of models: decoder transformers by their sizes, and published models by name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Model:
    """Published sizes of a decoder-only transformer."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    ffn: int = 0
    """Inner width of the feed-forward; 0 for 4·hidden."""
    kv_heads: int = 0
    """Number of key/value heads; 0 for the number of `heads`."""
    gated: bool = False
    """Three matrices in the feed-forward instead of two (SwiGLU)."""
    tied: bool = False
    """The embedding and the output layer share their weights."""
    learned_positions: int = 0
    experts: int = 1
    """Number of experts per layer. `active_experts` of them process each token."""
    active_experts: int = 1
    head_dim: int = 0
    """0 for hidden / heads."""

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Inner width of the feed-forward."""
        return self.ffn or 4 * self.hidden

    @property
    def groups(self) -> int:
        """Number of key/value heads."""
        return self.kv_heads or self.heads

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer's attention matrices."""
        return self.hidden * self.width * (2 * self.heads + 2 * self.groups)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert's matrices."""
        return (3 if self.gated else 2) * self.hidden * self.inner

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, with norms and the router."""
        router = self.hidden * self.experts if self.experts > 1 else 0
        return self.attention_parameters + self.experts * self.expert_parameters + router + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        ends = self.embedding_parameters * (1 if self.tied else 2) + self.learned_positions * self.hidden + self.hidden
        return self.layers * self.layer_parameters + ends

    @property
    def active_parameters(self) -> int:
        """Parameters that process a token."""
        idle = self.layers * (self.experts - self.active_experts) * self.expert_parameters
        return self.parameters - idle

    def matmul_flops_per_token(self) -> float:
        """Return the forward operations of one layer's weight matrices per token: two per weight."""
        return 2.0 * (self.attention_parameters + self.active_experts * self.expert_parameters)

    def attention_flops_per_token(self, sequence: int) -> float:
        """Return the forward operations of one layer's attention per token, without credit for the causal mask."""
        return 4.0 * sequence * self.heads * self.width

    def step_flops(self, samples: int, sequence: int) -> float:
        """Return the model operations per step as MFU counts them (PaLM, appendix B).

        Backward is twice the forward, and recomputation does not count.
        """
        layer = self.matmul_flops_per_token() + self.attention_flops_per_token(sequence)
        return 3.0 * samples * sequence * (self.layers * layer + 2.0 * self.embedding_parameters)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Model:
    """Return a model of the GPT family: 4h feed-forward, tied embeddings, without learned positions."""
    return Model(layers, hidden, heads, vocabulary, tied=True)


def vit(layers: int, hidden: int, heads: int, classes: int = 1000) -> Model:
    """Return an image encoder (Dosovitskiy et al. 2020) with patches as tokens.

    Images of 224 pixels in patches of 16 are sequences of 197. The number of classes is the vocabulary size: the patch
    embedding and the head have about that many rows. Logits count for every token instead of one, which adds a third
    of a percent.
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
"""Published models with the sizes in their papers."""
