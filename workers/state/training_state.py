"""State of the objects that training code tracks: tensors by canonical name, plus small facts.

- `layers.0.weight`: parameter of the module tracked as `model`.
- `NAME.layers.0.weight`: parameter of a module tracked by another name.
- `buffer.…`: persistent buffer of either module.
- `optim.PARAMETER.exp_avg`: state of the optimizer tracked as `optimizer`.
- `optim:NAME.PARAMETER.exp_avg`: state of an optimizer tracked by another name.
- `state:NAME.KEY…`: any other tensor of the object tracked as NAME.

All other state is a small fact: plain JSON data. Each snapshot reads everything again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from regroup.workers.parallel.mesh import Alike, empty_like
from regroup.workers.state.module_state import ModuleContent, ModuleState, join_contents
from regroup.workers.state.optimizer_state import OptimizerContent, OptimizerState
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.rng_state import random_state, set_random_state
from regroup.workers.state.snapshot import plan_of
from regroup.workers.state.state_error import StateError
from regroup.workers.state.state_tree import Leaf, Lifted, leaves, lift, put_back
from regroup.workers.state.tensor_names import BUFFER, STATE, OwnCopy, is_parameter

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


@dataclass(frozen=True)
class CapturedState:
    """The whole state at one step."""

    tensors: dict[str, Tensor]
    """Every tensor by name. Parameters and optimizer state are the live tensors: copy them before the next update."""
    facts: dict[str, Any]
    """Everything else, as plain JSON data."""


@dataclass(frozen=True)
class _Contents:
    """Present content of the tracked objects."""

    modules: dict[str, ModuleContent]
    optimizers: dict[str, OptimizerContent]
    lifted: dict[str, Lifted]
    """Name → state of other objects, and the extras of modules."""
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]


class TrainingState:
    """Modules, optimizers and other stateful objects, by the names under which they are tracked."""

    def __init__(
        self,
        things: Mapping[str, object],
        device: torch.device,
        alike: Alike | None = None,
        *,
        is_stage: bool = False,
        rank: int = 0,
        per_rank: Collection[str] = (),
    ) -> None:
        """Describe what is tracked.

        Args:
            rank: this rank.
            per_rank: names of the objects that differ between ranks; each rank gets its own back.

        Raises:
            StateError: An object has no state that could be saved, or its name is reserved.
        """
        self.alike = alike
        """Ranks with equal copies of unsharded tensors; all ranks if None."""
        self._rank, self._per_rank = rank, frozenset(per_rank)
        self._device = device
        self._is_stage = is_stage
        """True if the saved state also has parameters of other pipeline stages."""
        self._modules: dict[str, ModuleState] = {}
        self._optimizers: dict[str, OptimizerState] = {}
        self._stateful: dict[str, Stateful] = {}
        for name, thing in things.items():
            if isinstance(thing, nn.Module):
                self._modules[name] = ModuleState(name, thing)
            elif isinstance(thing, Optimizer):
                self._optimizers[name] = OptimizerState(name, thing)
            elif isinstance(thing, Stateful):
                self._stateful[name] = thing
            else:
                raise StateError(
                    f"{name!r} is a {type(thing).__qualname__} without state_dict() and load_state_dict(), "
                    "so it cannot be tracked"
                )

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters of all modules by canonical name, without repetitions."""
        return join_contents(module.read_content() for module in self._modules.values())[0]

    def check(self) -> None:
        """Check before the first snapshot that the whole state can be saved.

        Raises:
            StateError: A part cannot be saved; the message names the object and the key.
        """
        for optimizer in self._optimizers.values():
            optimizer.check()
        self._own_names(self._read())

    def capture(self, step: int) -> CapturedState:
        """Return the state after `step`. Optimizer state exists after the first step.

        Raises:
            StateError: A part cannot be saved; the message names the object and the key.
        """
        contents = self._read()
        tensors = self._first_tensors(contents)
        for content in contents.optimizers.values():
            tensors |= content.tensors
        if self._per_rank:
            own = self._own_names(contents)
            tensors = {str(OwnCopy(self._rank, name)) if name in own else name: tensors[name] for name in tensors}
        return CapturedState(tensors, self._facts(step, contents))

    def buffer_bytes(self) -> int:
        """Return the memory of one snapshot buffer, equal before the first step and after a restore.

        The estimate counts two moments for each parameter for optimizer state that does not exist yet. A buffer grows
        if necessary.
        """
        contents = self._read()
        plan = plan_of(self._first_tensors(contents))
        owned = [entry for entry in plan.entries if entry.name in contents.parameters or entry.name in contents.buffers]
        moments = 2 * sum(entry.nbytes + 128 for entry in owned) if self._optimizers else 0
        return plan.buffer_bytes + moments

    def restore(self, source: RankSource) -> None:
        """Restore everything from a source; the random state comes last, because the rest may draw from it.

        Raises:
            StateError: The source lacks a part of the state or has another one, or a shape differs.
        """
        facts, saved = source.extra(), source.tensors()
        _check_names(facts, {"modules": self._modules, "optimizers": self._optimizers, "stateful": self._stateful})
        contents = self._read()
        for name, module in self._modules.items():
            module.resize_buffers(contents.modules[name], saved)
        targets: dict[str, Tensor] = {**contents.parameters, **contents.buffers}
        if source.unreadable:
            raise StateError(
                f"{sorted(source.unreadable)[0]!r} differs between ranks, and the ranks that wrote it had another "
                "number or layout: a job with such state cannot change its size; give its layout one size"
            )
        _check_targets(targets, saved, is_stage=self._is_stage or bool(facts["is_stage"]))
        plain = {**facts["stateful"], **facts["optimizers"]}
        plain |= {name: module["extras"] for name, module in facts["modules"].items()}
        lifted = self._lifted_targets(saved, plain, contents)
        for name, optimizer in self._optimizers.items():
            # Before the state of their parameters: the code of this run has not added the later groups yet.
            groups = put_back(plain[name]["groups"], lifted)
            optimizer.add_groups(groups, contents.parameters, is_stage=self._is_stage)
            targets |= optimizer.restore_targets(
                saved, contents.parameters, plain[name]["host"], is_stage=self._is_stage
            )
        source.read({**targets, **lifted})
        whole = {name: put_back(plain[name], lifted) for name in plain}
        for name, module in self._modules.items():
            module.load_extras(whole[name])
            if not (self._is_stage or facts["is_stage"]):
                module.set_modes(facts["modules"][name]["modes"])
        for name, item in self._stateful.items():
            item.load_state_dict(whole[name])
        for name, optimizer in self._optimizers.items():
            optimizer.restore_groups(whole[name]["groups"])
            optimizer.restore_entries(whole[name], contents.parameters)
        if "random" in facts:
            set_random_state(facts["random"], self._device)

    def _read(self) -> _Contents:
        modules = {name: module.read_content() for name, module in self._modules.items()}
        parameters, buffers = join_contents(iter(modules.values()))
        names = {id(parameter): name for name, parameter in parameters.items()}
        optimizers = {
            name: optimizer.read_content(names, is_stage=self._is_stage) for name, optimizer in self._optimizers.items()
        }
        lifted = {name: lift(item.state_dict(), f"{STATE}{name}") for name, item in self._stateful.items()}
        lifted |= {name: module.lift_extras(modules[name]) for name, module in self._modules.items()}
        contents = _Contents(modules, optimizers, lifted, parameters, buffers)
        if self._is_stage:
            _check_stage(contents)
        return contents

    def _own_names(self, contents: _Contents) -> set[str]:
        names: set[str] = set()
        for name in self._per_rank:
            found: dict[str, Any] = {}
            if name in contents.modules:
                found |= contents.modules[name].parameters | contents.modules[name].buffers
            if name in contents.optimizers:
                found |= contents.optimizers[name].tensors | contents.optimizers[name].lifted.tensors
            if name in contents.lifted:
                found |= contents.lifted[name].tensors
            if sharded := next((key for key, value in found.items() if isinstance(value, DTensor)), None):
                raise StateError(
                    f"{sharded!r} is sharded over ranks, so {name!r} cannot be tracked per rank: use track()"
                )
            names |= found.keys()
        return names

    def _first_tensors(self, contents: _Contents) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {**contents.parameters}
        # A forward pass changes buffers and metrics while the copy may still run: only optimizers wait for the copy.
        changing = {**contents.buffers}
        for lifted in (*contents.lifted.values(), *(content.lifted for content in contents.optimizers.values())):
            changing |= lifted.tensors
        for name, tensor in changing.items():
            found[name] = tensor.detach().clone() if tensor.is_cuda else tensor
        return found

    def _facts(self, step: int, contents: _Contents) -> dict[str, Any]:
        """Return the state other than tensors. It repeats `samples_digest` at the top level for the manifest."""
        stateful = {name: contents.lifted[name].plain for name in self._stateful}
        states = [cast(dict[str, Any], state) for state in stateful.values() if isinstance(state, dict)]
        digests = [state["samples_digest"] for state in states if "samples_digest" in state]
        return {
            "step": step,
            "is_stage": self._is_stage,
            "stateful": stateful,
            "modules": {
                name: {"extras": contents.lifted[name].plain, "modes": module.modes}
                for name, module in contents.modules.items()
            },
            "optimizers": {name: content.lifted.plain for name, content in contents.optimizers.items()},
            "random": random_state(self._device),
            "samples_digest": digests[0] if digests else "",
        }

    def _lifted_targets(self, saved: _Saved, plain: Mapping[str, Any], contents: _Contents) -> dict[str, Tensor]:
        targets: dict[str, Tensor] = {}
        for name, value in plain.items():
            now = contents.lifted[name].tensors if name in contents.lifted else {}
            for leaf in leaves(value):
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
        return empty_like(now, dtype)


def _check_names(facts: Mapping[str, Any], tracked: Mapping[str, Mapping[str, object]]) -> None:
    for kind, named in tracked.items():
        for name in named:
            if name not in facts[kind]:
                raise StateError(f"the saved state has no {name!r}; it was written by another training function")
        for name in facts[kind]:
            if name not in named:
                raise StateError(
                    f"the saved state has {name!r}, which is not tracked here: track the same objects as the training "
                    "function that wrote it"
                )


def _check_targets(targets: Mapping[str, Tensor], saved: _Saved, *, is_stage: bool) -> None:
    for name, target in targets.items():
        if name not in saved:
            raise StateError(f"the saved state has no {name!r}; it was written by another model")
        if saved[name][1] != tuple(target.shape):
            raise StateError(
                f"{name!r} has shape {saved[name][1]} in the saved state and {tuple(target.shape)} in the model"
            )
    for name in saved if not is_stage else ():
        if (is_parameter(name) or name.startswith(BUFFER)) and name not in targets:
            raise StateError(f"the saved state has {name!r}, which this model does not have: it was written by another")


def _check_stage(contents: _Contents) -> None:
    """Refuse state that only one rank of one stage would have."""
    for name, content in contents.modules.items():
        if content.extras:
            raise _only_of_stage(f"{next(iter(content.extras))!r} of {name!r}")
    for name, content in contents.optimizers.items():
        if values := {**content.lifted.plain["entries"], **content.lifted.plain["own"]}:
            raise _only_of_stage(f"the state of {name!r} for {next(iter(values))!r}")
    for lifted in contents.lifted.values():
        if lifted.tensors:
            raise _only_of_stage(next(iter(lifted.tensors)))


def _only_of_stage(what: str) -> StateError:
    return StateError(
        f"{what} cannot be kept with layout.pp above 1: a pipeline stage keeps parameters, buffers, and tensors of "
        "optimizers that belong to a parameter; use pp: 1, or leave it out of state_dict()"
    )
