"""Canonical names: parameter names without the wrappers around modules."""

from collections.abc import Iterator

from torch import Tensor, nn

from regroup.workers.torch_internals.sharding import WRAPPERS


class Stages(nn.ModuleList):
    """The pipeline stages of a model on one rank. Parameter names are those of the whole model."""


def canonical(name: str) -> str:
    """Return `layers.0.norm.weight` for `module.layers.0._checkpoint_wrapped_module.norm.weight`."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters by canonical name, each once, in model order."""
    for name, parameter in model.named_parameters():
        yield _name_in(model, name), parameter


def buffers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the persistent buffers by canonical name."""
    # Wrappers remove their prefix from the names in a state_dict, but not from these.
    persistent = {canonical(name) for name in model.state_dict(keep_vars=True)}
    for name, buffer in model.named_buffers():
        if canonical(name) in persistent:
            yield _name_in(model, name), buffer


def _name_in(model: nn.Module, name: str) -> str:
    return canonical(name.partition(".")[2] if isinstance(model, Stages) else name)
