"""One file a model family, and the registry that finds it by name."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from regroup.workers.models.roles import Plan, Tiny

_FAMILIES = {family: f"regroup.workers.models.{family}" for family in ("transformer", "convnet")}
"""Each is a module with `build(config, symbols)` and `tiny()`."""


@runtime_checkable
class Model(Protocol):
    """What a family's module offers beside `forward(inputs) -> logits`.

    Cut, a stage gives and takes the residual stream instead: what goes from block to block, and is added to.
    """

    layers: nn.ModuleDict
    """Blocks by absolute index: the unit of sharding, activation checkpointing and pipeline stages."""

    depth: int
    """Blocks of the whole model, also where it is cut."""

    outputs: int
    """Logits of a label."""

    tensor_plan: Plan
    """What each module is to tensor parallelism."""

    stream_parts: int
    """So many ranks share the residual stream along the sequence: what comes into a pipeline stage is one part."""

    def stream_shape(self, inputs: torch.Size) -> tuple[int, ...]:
        """Shape of the residual stream, or of a rank's part of it, where the model's inputs have this one."""
        ...

    def cut(self, blocks: range) -> None:
        """Become a pipeline stage of these blocks, and of what stands before the first and behind the last of all."""
        ...

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """The first value of the parameter or buffer with this canonical name, whole, in float32 on the CPU."""
        ...


def build_model(config: Mapping[str, Any], symbols: int) -> nn.Module:
    """The model of `config["family"]` on the meta device: no memory is taken, nothing is drawn.

    Args:
        config: the fields of the family's part of the spec.
        symbols: token ids, or classes, of the data are below this.

    Raises:
        ValueError: unknown family, or fewer outputs than the data has symbols.
    """
    build = cast(Callable[[Mapping[str, Any], int], nn.Module], _family(config).build)
    with torch.device("meta"):
        return build(config, symbols)


def tiny_of(config: Mapping[str, Any]) -> Tiny:
    """The tiny example of the family."""
    return cast(Tiny, _family(config).tiny())


def _family(config: Mapping[str, Any]) -> Any:
    family = str(config["family"])
    if family not in _FAMILIES:
        raise ValueError(f"unknown model family {family!r}; known: {', '.join(sorted(_FAMILIES))}")
    return import_module(_FAMILIES[family])
