"""State of the objects that training code tracks: tensors by canonical name, plus small facts.

- `layers.0.weight`: parameter of the module tracked as `model`.
- `NAME.layers.0.weight`: parameter of a module tracked by another name.
- `buffer.…`: persistent buffer of either module.
- `optim.PARAMETER.exp_avg`: state of the optimizer tracked as `optimizer`.
- `optim:NAME.PARAMETER.exp_avg`: state of an optimizer tracked by another name.
- `state:NAME.KEY…`: tensor in the state_dict() of any other object.

All other state is a small fact: plain JSON data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from regroup.workers.parallel.mesh import Alike, zeros_like
from regroup.workers.parallel.parameter_names import buffers_of, parameters_of
from regroup.workers.state.rng_state import random_state, set_random_state
from regroup.workers.state.snapshot import Source, plan_of
from regroup.workers.state.state_tree import Leaf, Lifted, StateError, leaves, lift, put_back
from regroup.workers.state.tensor_names import BUFFER, OPTIM, OTHER_OPTIM, STATE

_MAIN_MODULE, _MAIN_OPTIMIZER = "model", "optimizer"
_NOT_FOR_MODULES = ("buffer", "optim")
_Saved = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


@runtime_checkable
class Stateful(Protocol):
    """Any other object that must survive: a schedule, a scaler, averaged weights, a metric."""

    def state_dict(self) -> Any:
        """Return the state: tensors and plain data."""
        ...

    def load_state_dict(self, state: Any, /) -> object:
        """Restore the state."""
        ...


@runtime_checkable
class _Sharding(Protocol):
    """Optimizer whose state may be sharded differently from its parameters."""

    def state_like(self, parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor: ...


class TrainingState:
    """Modules, optimizers and other stateful objects, by the names under which they are tracked."""

    def __init__(
        self,
        things: Mapping[str, object],
        device: torch.device,
        alike: Alike | None = None,
        *,
        is_stage: bool = False,
    ) -> None:
        self.alike = alike
        """Ranks with equal copies of unsharded tensors; all ranks if None."""
        self._device = device
        self._is_stage = is_stage
        """True if the saved state also has parameters of other pipeline stages."""
        self._optimizers = {name: thing for name, thing in things.items() if isinstance(thing, Optimizer)}
        self._stateful: dict[str, Stateful] = {}
        self._buffers: dict[str, Tensor] = {}
        self.parameters: dict[str, nn.Parameter] = {}
        """Parameters of all modules by canonical name, without repetitions."""
        for name, thing in things.items():
            if isinstance(thing, nn.Module):
                self._add_module(name, thing)
            elif isinstance(thing, Stateful):
                if name not in self._optimizers:
                    self._stateful[name] = thing
            else:
                raise StateError(
                    f"{name!r} is a {type(thing).__qualname__} without state_dict() and load_state_dict(), "
                    "so it cannot be tracked"
                )
        self._names = {id(parameter): name for name, parameter in self.parameters.items()}
        for name, optimizer in self._optimizers.items():
            self._check_parameters(name, optimizer)

    def check(self) -> None:
        """Check before the first snapshot that the whole state can be saved.

        Raises:
            StateError: A part cannot be saved; the message names the object and the key.
        """
        self._lifted()
        self._groups()

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the state. Optimizer state exists after the first step."""
        found = self._first_tensors()
        for name, optimizer in self._optimizers.items():
            for key, parameter, value in _entries(optimizer):
                if isinstance(value, Tensor):
                    full = f"{_prefix(name)}{self._names[id(parameter)]}.{key}"
                    if isinstance(value, DTensor) and value.shape != parameter.shape:
                        raise StateError(
                            f"{full} is sharded but does not have the shape of its parameter, so it cannot be saved"
                        )
                    found[full] = value
        return found

    def buffer_bytes(self) -> int:
        """Return the memory of one snapshot buffer, equal before the first step and after a restore.

        The estimate counts two moments for each parameter for optimizer state that does not exist yet. A buffer grows
        if necessary.
        """
        first = self._first_tensors()
        plan = plan_of(first)
        parameters = [entry for entry in plan.entries if entry.name in self.parameters or entry.name in self._buffers]
        moments = 2 * sum(entry.nbytes + 128 for entry in parameters) if self._optimizers else 0
        return plan.buffer_bytes + moments

    def facts(self, step: int) -> dict[str, Any]:
        """Return the state other than tensors. It repeats `samples_digest` at the top level for the manifest."""
        stateful = {name: lifted.plain for name, lifted in self._lifted().items()}
        groups = self._groups()
        states = [cast(dict[str, Any], state) for state in stateful.values() if isinstance(state, dict)]
        digests = [state["samples_digest"] for state in states if "samples_digest" in state]
        return {
            "step": step,
            "stateful": stateful,
            "groups": groups.pop(_MAIN_OPTIMIZER, []),
            "groups_of": groups,
            "optimizer_facts": self._optimizer_facts(),
            "random": random_state(self._device),
            "samples_digest": digests[0] if digests else "",
        }

    def restore(self, source: Source, rank: int, world_size: int) -> None:
        """Restore everything from a source; the random state comes last, because the rest may draw from it.

        Raises:
            StateError: The source lacks a tensor, or a shape differs.
        """
        facts = source.extra(rank, world_size)
        saved = source.tensors()
        for name in self._stateful:
            if name not in facts["stateful"]:
                raise StateError(f"the saved state has no {name!r}; it was written by another training function")
        targets: dict[str, Tensor] = {**self.parameters, **self._buffers}
        targets |= self._optimizer_targets(saved)
        for name, target in targets.items():
            if name not in saved:
                raise StateError(f"the saved state has no {name!r}; it was written by another model")
            if saved[name][1] != tuple(target.shape):
                raise StateError(
                    f"{name!r} has shape {saved[name][1]} in the saved state and {tuple(target.shape)} in the model"
                )
        lifted = self._stateful_targets(saved, facts["stateful"])
        source.read({**targets, **lifted})
        for name, item in self._stateful.items():
            item.load_state_dict(put_back(facts["stateful"][name], lifted))
        self._restore_groups({_MAIN_OPTIMIZER: facts["groups"], **facts.get("groups_of", {})})
        for name, entries in facts.get("optimizer_facts", {}).items():
            for owner, values in entries.items() if name in self._optimizers else ():
                self._optimizers[name].state[self.parameters[owner]].update(put_back(values, {}))
        if "random" in facts:
            set_random_state(facts["random"], self._device)

    def _add_module(self, name: str, module: nn.Module) -> None:
        if name in _NOT_FOR_MODULES:
            raise StateError(f"a module cannot be tracked as {name!r}: this prefix is reserved for other saved tensors")
        prefix = "" if name == _MAIN_MODULE else f"{name}."
        tracked = {id(parameter) for parameter in self.parameters.values()}
        for own, parameter in parameters_of(module):
            if id(parameter) not in tracked:
                self._refuse_twice(prefix + own, self.parameters)
                self.parameters[prefix + own] = parameter
        for own, buffer in buffers_of(module):
            self._refuse_twice(f"{BUFFER}{prefix}{own}", self._buffers)
            self._buffers[f"{BUFFER}{prefix}{own}"] = buffer

    def _refuse_twice(self, name: str, tracked: Mapping[str, Tensor]) -> None:
        if name in tracked:
            raise StateError(f"two tracked modules have a tensor {name!r}; track one of them under another name")

    def _check_parameters(self, name: str, optimizer: Optimizer) -> None:
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                if id(parameter) not in self._names:
                    raise StateError(
                        f"{name!r} updates a parameter of shape {tuple(parameter.shape)} (group {number}) that no "
                        "tracked module has: track its module too, and create the optimizer after wrapping the module"
                    )

    def _first_tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {**self.parameters}
        # A forward pass changes buffers and metrics while the copy may still run: only optimizers wait for the copy.
        changing = {**self._buffers, **{k: v for lifted in self._lifted().values() for k, v in lifted.tensors.items()}}
        for name, tensor in changing.items():
            found[name] = tensor.detach().clone() if tensor.is_cuda else tensor
        return found

    def _lifted(self) -> dict[str, Lifted]:
        return {name: lift(item.state_dict(), f"{STATE}{name}") for name, item in self._stateful.items()}

    def _groups(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for name, optimizer in self._optimizers.items():
            found[name] = []
            for number, group in enumerate(optimizer.param_groups):
                plain = {
                    key: float(value) if isinstance(value, Tensor) else value
                    for key, value in group.items()
                    if key != "params"
                }
                lift(plain, f"{name}.param_groups.{number}")  # raises for values that JSON cannot represent
                found[name].append(plain)
        return found

    def _restore_groups(self, saved: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        for name, optimizer in self._optimizers.items():
            groups = saved.get(name, ())
            if len(groups) != len(optimizer.param_groups):
                raise StateError(
                    f"the saved state has {len(groups)} parameter groups of {name!r}, but the optimizer "
                    f"has {len(optimizer.param_groups)}"
                )
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                for key, value in values.items():
                    if isinstance(group.get(key), Tensor):
                        group[key].fill_(value)
                    else:
                        group[key] = tuple(cast(list[Any], value)) if isinstance(value, list) else value

    def _optimizer_facts(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return optimizer state other than tensors, such as a counter, by optimizer and parameter."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for name, optimizer in self._optimizers.items():
            for key, parameter, value in _entries(optimizer):
                if isinstance(value, Tensor):
                    continue
                owner = self._names[id(parameter)]
                lifted = lift(value, f"{_prefix(name)}{owner}.{key}")
                if lifted.tensors:
                    raise StateError(
                        f"{next(iter(lifted.tensors))} is a tensor inside a list or dict, so it cannot be saved"
                    )
                found.setdefault(name, {}).setdefault(owner, {})[key] = lifted.plain
        return found

    def _optimizer_targets(self, saved: _Saved) -> dict[str, Tensor]:
        targets: dict[str, Tensor] = {}
        by_length = sorted(self.parameters, key=len, reverse=True)
        for optimizer_name, optimizer in self._optimizers.items():
            prefix = _prefix(optimizer_name)
            for name, (dtype, shape) in saved.items():
                if not name.startswith(prefix):
                    continue
                owner = next(
                    (parameter_name for parameter_name in by_length if name.startswith(f"{prefix}{parameter_name}.")),
                    None,
                )
                if owner is None and self._is_stage:
                    continue  # belongs to another pipeline stage
                if owner is None:
                    raise StateError(f"the saved state has {name!r} of a parameter that this model does not have")
                parameter = self.parameters[owner]
                like_parameter = shape == tuple(parameter.shape) and len(shape) > 0
                value = (
                    _like(optimizer, parameter, dtype)
                    if like_parameter
                    else torch.empty(shape, dtype=dtype, device=self._scalar_device(optimizer))
                )
                optimizer.state[parameter][name.removeprefix(f"{prefix}{owner}.")] = value
                targets[name] = value
        return targets

    def _stateful_targets(self, saved: _Saved, plain: Mapping[str, Any]) -> dict[str, Tensor]:
        targets: dict[str, Tensor] = {}
        for name, item in self._stateful.items():
            saved_leaves = leaves(plain[name])
            now = (
                lift(item.state_dict(), f"{STATE}{name}").tensors if any(leaf.sharded for leaf in saved_leaves) else {}
            )
            for leaf in saved_leaves:
                if leaf.name not in saved:
                    raise StateError(f"the saved state has no {leaf.name!r}: it is damaged")
                targets[leaf.name] = self._target(leaf, *saved[leaf.name], now.get(leaf.name))
        return targets

    def _target(self, leaf: Leaf, dtype: torch.dtype, shape: tuple[int, ...], now: Tensor | None) -> Tensor:
        if not leaf.sharded:
            device = torch.device("cpu") if leaf.device_type == "cpu" else self._device
            return torch.empty(shape, dtype=dtype, device=device)
        if not isinstance(now, DTensor) or tuple(now.shape) != shape:
            raise StateError(
                f"{leaf.name!r} was saved as a sharded tensor of shape {shape}, but here it is "
                f"{'missing' if now is None else f'of shape {tuple(now.shape)}'}: create it before the first step"
            )
        return zeros_like(now, dtype)

    def _scalar_device(self, optimizer: Optimizer) -> torch.device:
        # Step counters live on the device of the parameters for fused and capturable optimizers, otherwise on the host.
        on_device = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
        return self._device if on_device else torch.device("cpu")


def _like(optimizer: Optimizer, parameter: Tensor, dtype: torch.dtype) -> Tensor:
    return optimizer.state_like(parameter, dtype) if isinstance(optimizer, _Sharding) else zeros_like(parameter, dtype)


def _prefix(optimizer_name: str) -> str:
    return OPTIM if optimizer_name == _MAIN_OPTIMIZER else f"{OTHER_OPTIM}{optimizer_name}."


def _entries(optimizer: Optimizer) -> list[tuple[str, nn.Parameter, Any]]:
    """Return key, parameter and value of all state of an optimizer."""
    state = cast(Mapping[nn.Parameter, Mapping[str, Any]], optimizer.state)
    return [(key, parameter, value) for parameter, own in state.items() for key, value in own.items()]
