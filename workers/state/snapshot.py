"""Training state ↔ snapshot buffers.

Parameters, buffers and optimizer state go by canonical name and global offset, so a state can be restored from any set
of shards that covers it: the same layout is the special case in which every box meets exactly one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regroup.workers.parallel.mesh import Box, box_of, local, zeros_like
from regroup.workers.parallel.names import buffers_of, parameters_of
from regroup.workers.state.buffer import Entry, Plan, ShardBuffer
from regroup.workers.state.randomness import random_state, set_random_state

_OPTIM = "optim."
_BUFFER = "buffer."


class Stateful(Protocol):
    """Anything else that must survive, such as a data stream or a schedule; its state is plain JSON data."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Take the state back."""
        ...


class StateError(Exception):
    """A saved state does not fit the model that asks for it."""


class Source(Protocol):
    """Saved state that parts of tensors can be read from: shard buffers in memory, or a checkpoint."""

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Type and global shape by canonical name."""
        ...

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """The small facts, those of the same rank if the state was written by as many ranks."""
        ...

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Fill the local part of every target."""
        ...


class TrainingState:
    """What `Context.track` was told, seen as tensors by canonical name plus small facts."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer | None, stateful: Mapping[str, Stateful], device: torch.device
    ) -> None:
        self._parameters = dict(parameters_of(model))
        self._buffers = {_BUFFER + name: buffer for name, buffer in buffers_of(model)}
        self._optimizer = optimizer
        self._stateful = dict(stateful)
        self._device = device

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state. Optimizer state is there once the first step made it."""
        found: dict[str, Tensor] = {**self._parameters, **self._buffers}
        if self._optimizer is not None:
            state = cast(Mapping[Tensor, Mapping[str, Any]], self._optimizer.state)
            for name, parameter in self._parameters.items():
                for key, value in state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        found[f"{_OPTIM}{name}.{key}"] = value
        return found

    def buffer_bytes(self) -> int:
        """Memory of one snapshot buffer, the same before the first step and after a restore.

        Two moments for every parameter stand for optimizer state that is not there yet; a buffer grows if need be.
        """
        plan = plan_of({**self._parameters, **self._buffers})
        moments = 2 * sum(entry.nbytes + 128 for entry in plan.entries) if self._optimizer is not None else 0
        return plan.buffer_bytes + moments

    def facts(self, step: int) -> dict[str, Any]:
        """What is not a tensor. `samples_digest` is repeated where a manifest looks for it."""
        stateful = {name: item.state_dict() for name, item in self._stateful.items()}
        groups: list[dict[str, Any]] = []
        for group in self._optimizer.param_groups if self._optimizer is not None else []:
            groups.append(
                {
                    key: float(value) if isinstance(value, Tensor) else value
                    for key, value in group.items()
                    if key != "params"
                }
            )
        digests = [state["samples_digest"] for state in stateful.values() if "samples_digest" in state]
        return {
            "step": step,
            "stateful": stateful,
            "groups": groups,
            "random": random_state(self._device),
            "samples_digest": digests[0] if digests else "",
        }

    def restore(self, source: Source, rank: int, world_size: int) -> None:
        """Take everything from a source; random state last, because building the rest may draw from it.

        Raises:
            StateError: the source lacks a tensor or holds one of another shape.
        """
        facts = source.extra(rank, world_size)
        saved = source.tensors()
        targets: dict[str, Tensor] = {**self._parameters, **self._buffers}
        targets |= self._optimizer_targets(saved)
        for name, target in targets.items():
            if name not in saved:
                raise StateError(f"the saved state has no {name!r}; it was written by another model")
            if saved[name][1] != tuple(target.shape):
                raise StateError(
                    f"{name!r} has shape {saved[name][1]} in the saved state and {tuple(target.shape)} in the model"
                )
        source.read(targets)
        for name, item in self._stateful.items():
            if name not in facts["stateful"]:
                raise StateError(f"the saved state has no {name!r}; it was written by another training function")
            item.load_state_dict(facts["stateful"][name])
        for group, values in zip(
            self._optimizer.param_groups if self._optimizer is not None else [], facts["groups"], strict=True
        ):
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
        if "random" in facts:
            set_random_state(facts["random"], self._device)

    def _optimizer_targets(self, saved: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> dict[str, Tensor]:
        targets: dict[str, Tensor] = {}
        if self._optimizer is None:
            return targets
        by_length = sorted(self._parameters, key=len, reverse=True)
        for name, (dtype, shape) in saved.items():
            if not name.startswith(_OPTIM):
                continue
            owner = next((known for known in by_length if name.startswith(f"{_OPTIM}{known}.")), None)
            if owner is None:
                raise StateError(f"the saved state has {name!r} of a parameter this model does not have")
            parameter = self._parameters[owner]
            like_parameter = shape == tuple(parameter.shape) and len(shape) > 0
            value = (
                zeros_like(parameter, dtype)
                if like_parameter
                else torch.empty(shape, dtype=dtype, device=self._scalar_device())
            )
            self._optimizer.state[parameter][name.removeprefix(f"{_OPTIM}{owner}.")] = value
            targets[name] = value
        return targets

    def _scalar_device(self) -> torch.device:
        # Step counters live beside the parameters for fused and capturable optimizers, else on the host.
        assert self._optimizer is not None
        beside = any(group.get("fused") or group.get("capturable") for group in self._optimizer.param_groups)
        return self._device if beside else torch.device("cpu")


class Copier:
    """Copies a state into a buffer: at once on the CPU, on a side stream on CUDA. `finish` before the next update."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._plan: Plan | None = None
        self._targets: dict[int, tuple[Plan, tuple[int, int], list[Tensor]]] = {}
        """Buffer → its memory as tensors: made again only if the data lies elsewhere."""
        self._shape: tuple[tuple[str, torch.Size], ...] = ()

    @property
    def is_async(self) -> bool:
        """A copy goes on while training does; otherwise it is whole when `copy` returns."""
        return self._stream is not None

    def plan(self, tensors: Mapping[str, Tensor]) -> Plan:
        """Where these tensors go, made again only if there are other ones than last time."""
        shape = tuple((name, tensor.shape) for name, tensor in tensors.items())
        if self._plan is None or shape != self._shape:
            self._plan, self._shape = plan_of(tensors), shape
        return self._plan

    def copy(self, buffer: ShardBuffer, plan: Plan, tensors: Mapping[str, Tensor]) -> None:
        """Start copying into a buffer that was begun with this plan."""
        sources = [local(tensor) for tensor in tensors.values()]
        targets = self._memory_of(buffer, plan)
        if self._stream is None:
            torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage]
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for target, value in zip(targets, sources, strict=True):
                target.copy_(value, non_blocking=True)

    def _memory_of(self, buffer: ShardBuffer, plan: Plan) -> list[Tensor]:
        place = buffer.data_place()
        known = self._targets.get(id(buffer))
        if known is None or known[0] is not plan or known[1] != place:
            views = zip(buffer.views(plan.entries), plan.entries, strict=True)
            known = self._targets[id(buffer)] = (plan, place, [_over(view, entry) for view, entry in views])
        return known[2]

    def finish(self) -> None:
        """Wait until the last copy is whole."""
        if self._stream is not None:
            self._stream.synchronize()


class ShardSource:
    """State held in any set of complete shard buffers of one step."""

    def __init__(self, buffers: Sequence[ShardBuffer]) -> None:
        self._buffers = [(buffer, buffer.header(), buffer.index()) for buffer in buffers]
        self._holders: dict[str, list[tuple[ShardBuffer, Entry]]] = {}
        for buffer, _, index in self._buffers:
            for entry in index.tensors:
                self._holders.setdefault(entry.name, []).append((buffer, entry))

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Type and global shape by canonical name."""
        return {name: (_dtype(held[0][1]), held[0][1].global_shape) for name, held in self._holders.items()}

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        """Small facts of the same rank, else those of any without its random state."""
        for _, header, index in self._buffers:
            if (header.rank, header.world_size) == (rank, world_size):
                return index.extra
        facts = dict(self._buffers[0][2].extra)
        facts.pop("random", None)
        return facts

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Assemble the local part of every target from the boxes that meet it."""
        for name, target in targets.items():
            assemble(name, box_of(target), local(target), self._holders[name])


def assemble(name: str, box: Box, target: Tensor, holders: Iterable[tuple[ShardBuffer, Entry]]) -> None:
    """Fill `target`, which is `box` of a global tensor, from shards.

    Raises:
        StateError: the shards leave a part of it uncovered.
    """
    seen: set[tuple[tuple[int, int], ...]] = set()
    covered = 0
    for buffer, entry in holders:
        common = intersect(box.offset, box.shape, entry.offset, entry.shape)
        if common is None or common in seen:
            continue  # a replica of what is filled already
        seen.add(common)
        into = tuple(slice(start - at, stop - at) for (start, stop), at in zip(common, box.offset, strict=True))
        out_of = tuple(slice(start - at, stop - at) for (start, stop), at in zip(common, entry.offset, strict=True))
        part = tensor_in(buffer, entry)[out_of]
        target[into].copy_(part)
        covered += part.numel()
    if covered != target.numel():
        raise StateError(f"the shards at hand cover {covered} of {target.numel()} values of {name!r} on this rank")


def intersect(
    offset: Sequence[int], shape: Sequence[int], other_offset: Sequence[int], other_shape: Sequence[int]
) -> tuple[tuple[int, int], ...] | None:
    """The common part of two boxes as (start, stop) per dimension, or None."""
    common = tuple(
        (max(a, b), min(a + m, b + n)) for a, m, b, n in zip(offset, shape, other_offset, other_shape, strict=True)
    )
    return common if all(start < stop for start, stop in common) else None


def is_parameter(name: str) -> bool:
    """Whether a tensor of a saved state is a parameter, and not a buffer or optimizer state."""
    return not name.startswith((_OPTIM, _BUFFER))


def plan_of(tensors: Mapping[str, Tensor]) -> Plan:
    """One entry a tensor: the box of it that this rank holds."""
    entries: list[Entry] = []
    for name, tensor in tensors.items():
        box, part = box_of(tensor), local(tensor)
        entries.append(
            Entry(
                name,
                str(tensor.dtype).removeprefix("torch."),
                box.global_shape,
                box.offset,
                box.shape,
                part.numel() * part.element_size(),
                copy=box.copy,
                copies=box.copies,
            )
        )
    return Plan(entries)


def tensor_in(buffer: ShardBuffer, entry: Entry) -> Tensor:
    """The shard of an entry as a tensor over the buffer's memory."""
    return _over(buffer.view(entry), entry)


def _over(view: memoryview, entry: Entry) -> Tensor:
    if entry.nbytes == 0:
        return torch.empty(entry.shape, dtype=_dtype(entry))
    return torch.frombuffer(view, dtype=_dtype(entry)).view(entry.shape)


def _dtype(entry: Entry) -> torch.dtype:
    return cast(torch.dtype, getattr(torch, entry.dtype))
