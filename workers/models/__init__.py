"""Model families: one file per family, and the registry that finds it by name."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from regroup.workers.models.roles import Plan, Tiny

_FAMILIES = {family: f"regroup.workers.models.{family}" for family in ("transformer", "convnet")}
"""Each module defines `build(config, symbols)` and `tiny()`."""


@runtime_checkable
class Model(Protocol):
    """The interface of a model family, in addition to `forward(inputs) -> logits`.

    A pipeline stage takes and returns the residual stream instead.
    """

    layers: nn.ModuleDict
    """Blocks by absolute index: the unit of sharding, activation checkpointing and pipeline stages."""

    depth: int
    """Number of blocks of the whole model, even in a pipeline stage."""

    outputs: int
    """Number of logits per label."""

    tensor_plan: Plan
    """Role of each module in tensor parallelism."""

    stream_parts: int
    """Number of ranks that share the residual stream along the sequence. The input of a pipeline stage is one part."""

    def stream_shape(self, inputs: torch.Size) -> tuple[int, ...]:
        """Return the shape of a rank's part of the residual stream, for inputs of this shape."""
        ...

    def cut(self, blocks: range) -> None:
        """Become the pipeline stage of these blocks. The first and the last stage include the layers outside the
        blocks."""
        ...

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Return the initial value of the parameter or buffer with this canonical name.

        The value is whole, in float32, on the CPU.
        """
        ...


def build_model(config: Mapping[str, Any], symbols: int) -> nn.Module:
    """Return a model of the family `config["family"]` on the meta device, without memory or values.

    Args:
        config: the model's fields of the spec.
        symbols: number of token ids or classes in the data.

    Raises:
        ValueError: unknown family, or fewer outputs than symbols.
    """
    build = cast(Callable[[Mapping[str, Any], int], nn.Module], _family(config).build)
    with torch.device("meta"):
        return build(config, symbols)


def tiny_of(config: Mapping[str, Any]) -> Tiny:
    """Return the tiny example of the family."""
    return cast(Tiny, _family(config).tiny())


def _family(config: Mapping[str, Any]) -> Any:
    family = str(config["family"])
    if family not in _FAMILIES:
        raise ValueError(f"unknown model family {family!r}; known: {', '.join(sorted(_FAMILIES))}")
    return import_module(_FAMILIES[family])
