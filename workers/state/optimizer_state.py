"""State of one tracked optimizer: tensors of each parameter, entries of the optimizer itself, and parameter groups.

Each snapshot reads them again: state appears with the first update, and groups may be added during training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from regroup.workers.parallel.mesh import empty_like
from regroup.workers.state.state_error import StateError
from regroup.workers.state.state_tree import Lifted, lift
from regroup.workers.state.tensor_kind import is_ordinary, is_sparse, reason_to_refuse
from regroup.workers.state.tensor_names import OPTIM, OTHER_OPTIM, STATE

MAIN_OPTIMIZER = "optimizer"
_KEPT = frozenset({"state", "param_groups"})
"""Keys that torch documents for the `state_dict()` of an optimizer."""


@runtime_checkable
class _Sharding(Protocol):
    """Optimizer whose state may be sharded differently from its parameters."""

    def state_like(self, parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor: ...


@dataclass(frozen=True)
class OptimizerContent:
    """Present content of an optimizer."""

    tensors: dict[str, Tensor]
    """State of parameters that consists of one tensor, by name in the saved state."""
    lifted: Lifted
    """Everything else. `groups`: settings and members. `entries`: parameter → key → value. `own`: entries under other
    keys. `host`: keys whose tensors are in host memory although the parameter is on a device."""


class OptimizerState:
    """The state of one optimizer."""

    def __init__(self, name: str, optimizer: Optimizer) -> None:
        self.name = name
        self._optimizer = optimizer
        self._prefix = OPTIM if name == MAIN_OPTIMIZER else f"{OTHER_OPTIM}{name}."

    def check(self) -> None:
        """Check before the first step that torch knows no other part of the state.

        Raises:
            StateError: `state_dict()` has an entry that a restore would lose.
        """
        if others := sorted(set(map(str, self._optimizer.state_dict())) - _KEPT):
            raise StateError(
                f"the state_dict() of {self.name!r} has an entry {others[0]!r} next to state and param_groups. It "
                "cannot be kept: move it into `optimizer.state` or a parameter group, or track an object that has it"
            )

    def read_content(self, names: Mapping[int, str], *, is_stage: bool) -> OptimizerContent:
        """Return what the optimizer contains now.

        Args:
            names: id of a parameter → its name in the saved state.
            is_stage: Other pipeline stages have other parameters in the same groups.

        Raises:
            StateError: A part cannot be saved, or a parameter belongs to no tracked module.
        """
        groups = [self._group(number, names, is_stage=is_stage) for number in range(len(self._groups()))]
        tensors: dict[str, Tensor] = {}
        entries: dict[str, dict[str, Any]] = {}
        own: dict[Any, Any] = {}
        host: set[str] = set()
        for owner, values in cast(Mapping[Any, Any], self._optimizer.state).items():
            if not isinstance(owner, Tensor):
                own[owner] = values
                continue
            if id(owner) not in names:
                raise self._unknown(owner, "its state")
            name = names[id(owner)]
            on_device, prefix = owner.is_cuda, f"{self._prefix}{name}."
            for key, value in cast(Mapping[str, Any], values).items():
                is_plain = isinstance(value, Tensor) and is_ordinary(value)
                if not is_plain and (not isinstance(value, Tensor) or is_sparse(value)):
                    entries.setdefault(name, {})[key] = value
                    continue
                full = f"{prefix}{key}"
                if not is_plain and (reason := reason_to_refuse(value)):
                    raise StateError(f"{full} is {reason}")
                if isinstance(value, DTensor) and value.shape != owner.shape:
                    raise StateError(
                        f"{full} is sharded but does not have the shape of its parameter, so it cannot be saved"
                    )
                tensors[full] = value
                if (on_device or not value.ndim) and not value.is_cuda:
                    host.add(key)
        content = {"groups": groups, "entries": entries, "own": own, "host": sorted(host)}
        lifted = lift(content, f"{STATE}{self.name}")
        if sharded := next((name for name, tensor in lifted.tensors.items() if isinstance(tensor, DTensor)), None):
            raise StateError(f"{sharded} is a sharded tensor inside a list or dict, so it cannot be saved")
        return OptimizerContent(tensors, lifted)

    def add_groups(
        self, groups: Sequence[Mapping[str, Any]], parameters: Mapping[str, nn.Parameter], *, is_stage: bool
    ) -> None:
        """Add the parameter groups that training code had added before the state was saved.

        Code that adds such a group again is not an error: it may not know that it runs for the second time.

        Raises:
            StateError: The optimizer has other groups.
        """
        names = {id(parameter): name for name, parameter in parameters.items()}
        if len(self._groups()) > len(groups):
            raise self._other_groups(len(groups))
        for number, group in enumerate(self._groups()):
            members = groups[number].get("members")
            if not is_stage and members is not None and members != self._members(group, names):
                raise StateError(
                    f"parameter group {number} of {self.name!r} has {len(group['params'])} parameters here and "
                    f"{len(members)} in the saved state, or others: create the optimizer as before"
                )
        for number in range(len(self._groups()), len(groups)):
            self._add_group(groups[number], len(groups), parameters)

    def restore_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Restore the settings of every group, such as the learning rate."""
        for group, saved in zip(self._groups(), groups, strict=True):
            for key, value in saved["values"].items():
                if isinstance(group.get(key), Tensor):
                    group[key].copy_(torch.as_tensor(value))
                else:
                    group[key] = value

    def restore_targets(
        self,
        saved: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
        parameters: Mapping[str, nn.Parameter],
        host: Sequence[str],
        *,
        is_stage: bool,
    ) -> dict[str, Tensor]:
        """Replace the state of every parameter by tensors to fill, and return them.

        Raises:
            StateError: The saved state belongs to a parameter that this model does not have.
        """
        by_length = sorted(parameters, key=len, reverse=True)
        targets: dict[str, Tensor] = {}
        fresh: dict[nn.Parameter, dict[str, Any]] = {}
        for name, (dtype, shape) in saved.items():
            if not name.startswith(self._prefix):
                continue
            owner = next((some for some in by_length if name.startswith(f"{self._prefix}{some}.")), None)
            if owner is None and is_stage:
                continue  # belongs to another pipeline stage
            if owner is None:
                raise StateError(f"the saved state has {name!r} of a parameter that this model does not have")
            parameter = parameters[owner]
            key = name.removeprefix(f"{self._prefix}{owner}.")
            targets[name] = self._target(parameter, dtype, shape, on_host=key in host)
            fresh.setdefault(parameter, {})[key] = targets[name]
        for parameter in parameters.values():
            if parameter in self._optimizer.state:
                self._optimizer.state[parameter].clear()
            if parameter in fresh:
                self._optimizer.state[parameter].update(fresh[parameter])
        return targets

    def restore_entries(self, content: Mapping[str, Any], parameters: Mapping[str, nn.Parameter]) -> None:
        """Restore the state that is not one tensor of a parameter."""
        for name, values in content["entries"].items():
            if name in parameters:  # otherwise of another pipeline stage
                self._optimizer.state[parameters[name]].update(values)
        state = cast(dict[Any, Any], self._optimizer.state)
        for key in [key for key in state if not isinstance(key, Tensor)]:
            del state[key]
        state.update(content["own"])

    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def _group(self, number: int, names: Mapping[int, str], *, is_stage: bool) -> dict[str, Any]:
        group = self._groups()[number]
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise self._unknown(parameter, f"group {number}")
        values = {key: _number(value) for key, value in group.items() if key != "params"}
        return {"values": values} if is_stage else {"values": values, "members": self._members(group, names)}

    def _members(self, group: Mapping[str, Any], names: Mapping[int, str]) -> list[str]:
        return [names.get(id(parameter), "") for parameter in group["params"]]

    def _add_group(self, saved: Mapping[str, Any], count: int, parameters: Mapping[str, nn.Parameter]) -> None:
        used = {id(parameter) for group in self._groups() for parameter in group["params"]}
        members = [parameters.get(name) for name in saved.get("members", [""])]
        added = [parameter for parameter in members if parameter is not None and id(parameter) not in used]
        if len(added) < len(members):
            raise self._other_groups(count)
        self._optimizer.add_param_group({"params": added, **saved["values"]})
        _accept_again(self._optimizer, added)

    def _other_groups(self, count: int) -> StateError:
        return StateError(
            f"the saved state has {count} parameter groups of {self.name!r}, but the optimizer has "
            f"{len(self._groups())}"
        )

    def _unknown(self, parameter: Tensor, where: str) -> StateError:
        return StateError(
            f"{self.name!r} updates a parameter of shape {tuple(parameter.shape)} ({where}) that no tracked module "
            "has: track its module too, and create the optimizer after wrapping the module"
        )

    def _target(self, parameter: Tensor, dtype: torch.dtype, shape: tuple[int, ...], *, on_host: bool) -> Tensor:
        if shape == tuple(parameter.shape) and shape and not on_host:
            if isinstance(self._optimizer, _Sharding):
                return self._optimizer.state_like(parameter, dtype)
            return empty_like(parameter, dtype)
        # Fused and capturable optimizers need step counters on the device, even if the state was saved by another kind.
        if not shape and any(group.get("fused") or group.get("capturable") for group in self._groups()):
            on_host = False
        return torch.empty(shape, dtype=dtype, device=torch.device("cpu") if on_host else parameter.device)


def _number(value: object) -> object:
    return value.item() if isinstance(value, Tensor) and value.ndim == 0 else value


def _accept_again(optimizer: Optimizer, added: Sequence[nn.Parameter]) -> None:
    """Let code add a group once more that a restore has added already."""
    add = optimizer.add_param_group
    restored = {id(parameter) for parameter in added}

    def add_param_group(group: dict[str, Any]) -> None:
        given = group["params"]
        members = [given] if isinstance(given, Tensor) else list(cast(Iterator[Tensor], given))
        if {id(parameter) for parameter in members} != restored:
            add({**group, "params": members})

    cast(Any, optimizer).add_param_group = add_param_group
