"""What a job runs: the tagged union of workloads, and what each is made of."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.quantities import Part, Positive


class TransformerModel(Part):
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


class TextData(Part):
    """Text that is turned once, by content hash, into a token file under `storage_uri`."""

    train: Annotated[list[str], Field(min_length=1)]
    """Files, folders, globs or fsspec URIs."""
    validation: list[str] = []
    """Held-out files; what matches here is left out of `train`."""
    tokenizer: str = "byte"
    """`byte`, or path or URI of a `tokenizers` JSON file."""


class BuiltinWorkload(Part):
    """The built-in trainer on the built-in model families."""

    kind: Literal["builtin"]
    """Which workload this is."""
    model: TransformerModel = TransformerModel()
    data: TextData


Workload = Annotated[BuiltinWorkload, Field(discriminator=None)]
"""A tagged union by `kind`; `script`, `function` and `ray_train` join it."""
