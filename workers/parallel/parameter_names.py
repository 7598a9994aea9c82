"""Canonical names: what a parameter is called without the wrappers around its module."""

from collections.abc import Iterator

from torch import Tensor, nn

_WRAPPERS = frozenset({"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


class Stages(nn.ModuleList):
    """The pipeline stages of a model that one rank holds. A parameter is called as in the whole model."""


def canonical(name: str) -> str:
    """`module.layers.0._checkpoint_wrapped_module.norm.weight` → `layers.0.norm.weight`."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by canonical name, each once, in the order of the model."""
    for name, parameter in model.named_parameters():
        yield _name_in(model, name), parameter


def buffers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers by canonical name."""
    # A wrapper takes itself out of the names of a state_dict, and not out of these.
    kept = {canonical(name) for name in model.state_dict(keep_vars=True)}
    for name, buffer in model.named_buffers():
        if canonical(name) in kept:
            yield _name_in(model, name), buffer


def _name_in(model: nn.Module, name: str) -> str:
    return canonical(name.partition(".")[2] if isinstance(model, Stages) else name)
