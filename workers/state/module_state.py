"""State of one tracked module: parameters, buffers, and all other entries of its `state_dict()`.

Each snapshot reads them again: code may replace a buffer, freeze a layer or add one between two snapshots. As in torch,
buffers that are not persistent do not belong to the state.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regroup.workers.parallel.parameter_names import Stages, canonical
from regroup.workers.state.state_error import StateError
from regroup.workers.state.state_tree import Lifted, lift
from regroup.workers.state.tensor_kind import is_sparse, reason_to_refuse
from regroup.workers.state.tensor_names import BUFFER, STATE

MAIN_MODULE = "model"
_RESERVED = ("buffer", "optim")


@dataclass(frozen=True)
class ModuleContent:
    """Present content of a module, by name in the saved state."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]
    """Persistent buffers that are dense; sparse ones are among the extras."""
    extras: dict[str, Any]
    """Everything else in its `state_dict()`, by canonical key: extra state, sparse buffers, entries of hooks."""
    modes: dict[str, list[str]]
    """`frozen`: parameters without gradients. `evaluated`: modules in evaluation mode. No `state_dict()` has them."""


class ModuleState:
    """The state of one module."""

    def __init__(self, name: str, module: nn.Module) -> None:
        """Describe a module.

        Raises:
            StateError: The name is reserved.
        """
        if name in _RESERVED:
            raise StateError(f"a module cannot be tracked as {name!r}: this prefix is reserved for other saved tensors")
        self.name = name
        self._module = module
        self._prefix = "" if name == MAIN_MODULE else f"{name}."
        self._names: dict[str, str] = {}
        """Name in torch → name in the saved state."""

    def read_content(self) -> ModuleContent:
        """Return what the module contains now.

        Raises:
            StateError: A tensor cannot be saved.
        """
        # First: this call makes FSDP register its sharded parameters.
        entries = cast(Mapping[str, Any], self._module.state_dict(keep_vars=True))
        named, evaluated = self._walk()
        parameters = {self._prefix + name: value for name, value in named}
        own_parameters = {id(value) for _, value in named}
        others = {key: value for key, value in entries.items() if id(value) not in own_parameters}
        # A model without persistent buffers saves the walk through its modules.
        registered = {id(value): self._name(key) for key, value in self._module.named_buffers()} if others else {}
        buffers: dict[str, Tensor] = {}
        extras: dict[str, Any] = {}
        for key, value in others.items():
            own = registered.get(id(value))
            if own is None or is_sparse(value):
                extras[self._name(key)] = value
            else:
                buffers[f"{BUFFER}{self._prefix}{own}"] = value
        for name, tensor in (*parameters.items(), *buffers.items()):
            if reason := reason_to_refuse(tensor):
                raise StateError(f"{name!r} of {self.name!r} is {reason}")
        modes = {
            "frozen": [name for name, value in named if not value.requires_grad],
            "evaluated": sorted(evaluated),
        }
        return ModuleContent(parameters, buffers, extras, modes)

    def lift_extras(self, content: ModuleContent) -> Lifted:
        """Split the extras into plain data and tensors.

        Raises:
            StateError: An extra cannot be saved; the message names it.
        """
        return lift(content.extras, f"{STATE}{self.name}")

    def load_extras(self, extras: Mapping[str, Any]) -> None:
        """Pass the saved extras to the module, whose tensors are restored already.

        Raises:
            StateError: The module has other extras, or does not accept them.
        """
        now = cast(Mapping[str, Any], self._module.state_dict(keep_vars=True))
        keys = {self._name(key): key for key in now}
        if missing := [name for name in extras if name not in keys]:
            raise StateError(
                f"the saved state has {missing[0]!r} of {self.name!r}, but its state_dict() has no such entry here"
            )
        buffers = {self._name(key): key for key, _ in self._module.named_buffers()}
        for name in extras.keys() & buffers.keys():
            # Not load_state_dict: torch cannot copy between compressed tensors that store another number of values.
            owner, _, own = buffers[name].rpartition(".")
            self._module.get_submodule(owner).register_buffer(own, extras[name])
        others = {keys[name]: value for name, value in extras.items() if name not in buffers}
        if not others:
            return
        try:
            # All entries, because a module may need the others to accept one. Tensors are copied to themselves.
            self._module.load_state_dict({**self._module.state_dict(keep_vars=True), **others})
        except Exception as error:
            raise StateError(f"{self.name!r} does not accept its saved state: {error}") from error

    def set_modes(self, modes: Mapping[str, list[str]]) -> None:
        """Restore the modes of parameters and modules."""
        frozen, evaluated = set(modes["frozen"]), set(modes["evaluated"])
        for key, parameter in self._module.named_parameters():
            if parameter.requires_grad == (self._name(key) in frozen):
                parameter.requires_grad_(not parameter.requires_grad)
        for key, module in self._modules():
            module.training = self._name(key) not in evaluated

    def resize_buffers(self, content: ModuleContent, shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> None:
        """Give each buffer the size that it has in the saved state: a queue or a codebook may have grown."""
        for name, buffer in content.buffers.items():
            if name in shapes and type(buffer) in (Tensor, nn.Buffer) and shapes[name][1] != tuple(buffer.shape):
                # The same object, because wrappers hold references to it.
                buffer.data = torch.empty(shapes[name][1], dtype=buffer.dtype, device=buffer.device)

    def _walk(self) -> tuple[list[tuple[str, nn.Parameter]], set[str]]:
        """Return the parameters, each once, as `named_parameters()` does, and the modules in evaluation mode."""
        named: list[tuple[str, nn.Parameter]] = []
        evaluated: set[str] = set()
        seen: set[int] = set()
        for path, module in self._modules():
            if not module.training:
                evaluated.add(self._name(path))
            # One walk for both, and no call for each module: a snapshot reads every module in every step.
            for key, parameter in module._parameters.items():  # pyright: ignore[reportPrivateUsage]
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    named.append((self._name(f"{path}.{key}" if path else key), parameter))
        if type(self._module).named_parameters is not nn.Module.named_parameters:
            named = [(self._name(key), value) for key, value in self._module.named_parameters()]
        return named, evaluated

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield all modules, each under all of its names."""
        return self._module.named_modules(remove_duplicate=False)

    def _name(self, key: str) -> str:
        if (name := self._names.get(key)) is None:
            name = self._names[key] = canonical(key.partition(".")[2] if isinstance(self._module, Stages) else key)
        return name


def join_contents(contents: Iterator[ModuleContent]) -> tuple[dict[str, nn.Parameter], dict[str, Tensor]]:
    """Return the parameters and buffers of all modules; a tensor that several share is listed once.

    Raises:
        StateError: Two different tensors have the same name.
    """
    parameters: dict[str, nn.Parameter] = {}
    buffers: dict[str, Tensor] = {}
    seen: set[int] = set()
    for content in contents:
        for found, into in ((content.parameters, parameters), (content.buffers, buffers)):
            for name, tensor in found.items():
                if id(tensor) in seen:
                    continue
                if name in into:
                    raise StateError(
                        f"two tracked modules have a tensor {name!r}; track one of them under another name"
                    )
                seen.add(id(tensor))
                cast(dict[str, Tensor], into)[name] = tensor
    return parameters, buffers
