"""The built-in model families as a spec writes them."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.layout_rules import ModelSizes
from regroup.service.spec.types import Positive, SpecModel


class TransformerModel(SpecModel):
    """Decoder-only transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

    family: Literal["transformer"] = "transformer"
    """Model family."""
    dim: Positive = 128
    """Width of the residual stream; divides by `heads` into an even head size."""
    layers: Positive = 4
    """Transformer blocks."""
    heads: Positive = 4
    """Attention heads."""
    kv_heads: Positive | None = None
    """Key and value heads; as many as `heads` if absent."""
    ffn_dim: Positive | None = None
    """Hidden width of SwiGLU; 8/3 of dim rounded up to a multiple of 32 if absent."""
    vocab_size: Positive | None = None
    """The tokenizer's if absent."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary position frequencies."""
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added under the root of RMSNorm."""
    tie_embeddings: bool = False
    """The output head shares the embedding's weights."""

    def sizes(self, vocab_size: int | None) -> ModelSizes:
        """What a layout must divide. `vocab_size` is the tokenizer's, None where only the nodes can see it."""
        return ModelSizes(
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn_dim=self.ffn_dim or -(-self.dim * 8 // 3 // 32) * 32,
            layers=self.layers,
            vocab_size=self.vocab_size or vocab_size,
            tie_embeddings=self.tie_embeddings,
        )

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise PydanticCustomError(
                "heads",
                "dim must divide by heads into an even head size: dim={dim}, heads={heads}",
                {"dim": self.dim, "heads": self.heads},
            )
        if self.heads % (self.kv_heads or self.heads):
            raise PydanticCustomError(
                "kv_heads",
                "heads must divide by kv_heads: heads={heads}, kv_heads={kv_heads}",
                {"heads": self.heads, "kv_heads": self.kv_heads},
            )
        return self


class ConvnetModel(SpecModel):
    """Classifier of images: depthwise convolutions and inverted bottlenecks with batch normalisation."""

    family: Literal["convnet"]
    """Model family."""
    channels: Positive = 3
    """Of an image."""
    classes: Positive
    """How many there are; labels are below this."""
    dim: Positive = 32
    """Channels of the residual stream."""
    layers: Positive = 4
    """Blocks."""
    ffn_dim: Positive | None = None
    """Channels inside of a block; four times `dim` if absent."""
    norm_over: Literal["micro_batch", "global_batch"] = "micro_batch"
    """What batch normalisation takes for a batch. Over the global batch it is synchronised between ranks."""
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added to the variance."""
    norm_momentum: float = Field(default=0.1, gt=0, le=1)
    """How far running statistics move to those of a step."""

    def sizes(self) -> ModelSizes:
        """What a layout must divide."""
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
"""By `family`; a transformer if it is absent."""
