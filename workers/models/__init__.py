"""One file a model family, and the registry that finds it by name."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from regroup.workers.models.roles import Plan

_FAMILIES = {"transformer": "regroup.workers.models.transformer:build"}


@runtime_checkable
class Model(Protocol):
    """What a family's module offers beside `forward(tokens) -> logits`. Cut, a stage gives and takes the residual
    stream, (batch, sequence, `dim`)."""

    layers: nn.ModuleDict
    """Blocks by absolute index: the unit of sharding and activation checkpointing."""

    depth: int
    """Blocks of the whole model, also where it is cut."""
    tensor_plan: Plan
    """What each module is to tensor parallelism."""

    stream_parts: int
    """So many ranks share the residual stream along the sequence: what comes into a pipeline stage is one part."""

    def cut(self, blocks: range) -> None:
        """Become a pipeline stage of these blocks, and of what stands before the first and behind the last of all."""
        ...

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """The first value of the parameter with this canonical name, whole, in float32 on the CPU."""
        ...


def build_model(config: Mapping[str, Any], vocab_size: int) -> nn.Module:
    """The model of `config["family"]` on the meta device: no memory is taken, nothing is drawn.

    Raises:
        ValueError: unknown family, or fewer vocabulary rows than the tokenizer has tokens.
    """
    family = str(config["family"])
    if family not in _FAMILIES:
        raise ValueError(f"unknown model family {family!r}; known: {', '.join(sorted(_FAMILIES))}")
    rows = config.get("vocab_size") or vocab_size
    if rows < vocab_size:
        raise ValueError(
            f"model.vocab_size is {rows} but the tokenizer has {vocab_size} tokens; leave it out or raise it"
        )
    module, function = _FAMILIES[family].split(":")
    build = cast(Callable[[Mapping[str, Any]], nn.Module], getattr(import_module(module), function))
    with torch.device("meta"):
        return build({**config, "vocab_size": rows})
