"""Built-in model families of a job spec."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.layout_rules import ModelSizes
from regroup.service.spec.types import Flag, Integer, Number, SpecModel

_Width = Annotated[Integer, Field(ge=1, le=2**20)]
_Blocks = Annotated[Integer, Field(ge=1, le=10_000)]
_Heads = Annotated[Integer, Field(ge=1, le=16_384)]
_Rows = Annotated[Integer, Field(ge=1, le=2**24)]
_Epsilon = Annotated[Number, Field(ge=1e-30, le=1)]


class TransformerModel(SpecModel):
    """Decoder-only transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

    family: Literal["transformer"] = "transformer"
    """Model family."""
    dim: _Width = 128
    """Width of the residual stream. Must be divisible by `heads`, and the head size must be even."""
    layers: _Blocks = 4
    """Number of transformer blocks."""
    heads: _Heads = 4
    """Number of attention heads."""
    kv_heads: _Heads | None = None
    """Number of key and value heads. Default: `heads`."""
    ffn_dim: _Width | None = None
    """Hidden width of SwiGLU. Default: 8/3 of `dim`, rounded up to a multiple of 32."""
    vocab_size: _Rows | None = None
    """Vocabulary size. Default: that of the tokenizer."""
    rope_theta: Number = Field(default=10_000.0, ge=1, le=1e12)
    """Base of the rotary position frequencies."""
    norm_eps: _Epsilon = 1e-5
    """Epsilon of RMSNorm."""
    tie_embeddings: Flag = False
    """Share the weights of the output head and the embedding."""

    def sizes(self, vocab_size: int | None) -> ModelSizes:
        """Return the sizes that a layout must divide.

        Args:
            vocab_size: that of the tokenizer; None if only the nodes can read it.
        """
        return ModelSizes(
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn_dim=self.ffn_dim or -(-self.dim * 8 // 3 // 32) * 32,
            layers=self.layers,
            vocab_size=self.vocab_size or vocab_size,
            tie_embeddings=self.tie_embeddings,
        )

    @model_validator(mode="after")
    def _check_head_sizes(self) -> Self:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise PydanticCustomError(
                "heads",
                "dim must be divisible by heads, with an even head size: dim={dim}, heads={heads}",
                {"dim": self.dim, "heads": self.heads},
            )
        if self.heads % (self.kv_heads or self.heads):
            raise PydanticCustomError(
                "kv_heads",
                "heads must be divisible by kv_heads: heads={heads}, kv_heads={kv_heads}",
                {"heads": self.heads, "kv_heads": self.kv_heads},
            )
        return self


class ConvnetModel(SpecModel):
    """Image classifier: depthwise convolutions and inverted bottlenecks with batch normalization."""

    family: Literal["convnet"]
    """Model family."""
    channels: _Width = 3
    """Number of input channels of an image."""
    classes: _Rows
    """Number of classes. Labels are below this number."""
    dim: _Width = 32
    """Number of channels of the residual stream."""
    layers: _Blocks = 4
    """Number of blocks."""
    ffn_dim: _Width | None = None
    """Number of channels inside a block. Default: four times `dim`."""
    norm_over: Literal["micro_batch", "global_batch"] = "micro_batch"
    """Batch over which batch normalization computes its statistics. `global_batch` synchronizes them between ranks."""
    norm_eps: _Epsilon = 1e-5
    """Epsilon added to the variance."""
    norm_momentum: Number = Field(default=0.1, gt=0, le=1)
    """Weight of a step's statistics in the running statistics."""

    def sizes(self) -> ModelSizes:
        """Return the sizes that a layout must divide."""
        return ModelSizes(
            layers=self.layers,
            ffn_dim=self.ffn_dim or 4 * self.dim,
            classes=self.classes,
            has_sequence=False,
            norm_over=self.norm_over,
        )


def _family(value: object) -> str:
    if isinstance(value, Mapping):
        return str(cast(Mapping[str, object], value).get("family", "transformer"))
    return str(getattr(value, "family", "transformer"))


FAMILIES = ("transformer", "convnet")
BuiltinModel = Annotated[
    Annotated[TransformerModel, Tag("transformer")] | Annotated[ConvnetModel, Tag("convnet")],
    Discriminator(_family),
]
"""A model family, selected by `family`. Default: transformer."""
