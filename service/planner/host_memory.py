"""Host memory that the ranks of a job need on a node: for snapshots and mirrors, and on CPUs for training itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import JobCapacity
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.planner.memory_model import host_bytes, host_sets, peak_bytes
from regroup.service.planner.stored_values import read_mapping, read_number
from regroup.service.planner.types import Plan
from regroup.service.spec.job import JobSpec

_GIGA = 1e9


@dataclass(frozen=True)
class HostMemory:
    """Need of the node with most ranks of a job, and the memory of the smallest node."""

    ranks: int
    """Number of ranks on the node."""
    sets: int
    """Sets of snapshots that the node stores for each rank, with mirrors of another node's ranks."""
    rank_bytes: float
    """Bytes of these sets for one rank. Ranks with the same state share them."""
    training_bytes: float
    """Bytes that training itself needs for one rank: 0 on GPUs."""
    node_bytes: float
    """Memory of the smallest node; 0: unknown."""

    @property
    def needed_bytes(self) -> float:
        """Bytes that the ranks of the node need together."""
        return self.ranks * (self.rank_bytes + self.training_bytes)

    @property
    def fits(self) -> bool:
        """True if the node has enough memory, or if its memory is unknown."""
        return not self.node_bytes or self.needed_bytes <= self.node_bytes


def find_host_memory(spec: JobSpec, layout: Layout, capacity: JobCapacity) -> HostMemory:
    """Return the host memory of a job with this layout on these nodes.

    Raises:
        SpecError: the planner cannot model the job.
    """
    return host_memory_of(spec, plan_of(spec, layout), capacity)


def host_memory_of(spec: JobSpec, plan: Plan, capacity: JobCapacity) -> HostMemory:
    """Return the host memory of a job with this plan on these nodes."""
    assert spec.training is not None, "a job that the planner models has one"
    work, ranks = work_of(spec), min(max(capacity.ranks), plan.layout.world_size)
    has_mirrors = spec.snapshot.mirror != "off" and plan.layout.world_size > ranks
    rank_bytes = host_bytes(work, plan, ranks, mirror=has_mirrors) / ranks
    training_bytes = 0.0
    if capacity.device.name == "cpu":
        constants = capacity.constants.on(capacity.device)
        training_bytes = peak_bytes(work, plan, constants, state_bytes_of(spec.training))
    return HostMemory(ranks, host_sets(mirror=has_mirrors), rank_bytes, training_bytes, capacity.node_memory_bytes)


def describe_host_memory(memory: HostMemory) -> str:
    """Return the need for people, for example `3.2 GB per rank: 4 sets of 0.8 GB for snapshots and mirrors`."""
    kinds = "snapshots and mirrors" if memory.sets > host_sets(mirror=False) else "snapshots"
    sets = f"{memory.sets} sets of {memory.rank_bytes / memory.sets / _GIGA:.3g} GB for {kinds}"
    training = f", and {memory.training_bytes / _GIGA:.3g} GB for training" if memory.training_bytes else ""
    return f"{(memory.rank_bytes + memory.training_bytes) / _GIGA:.3g} GB per rank: {sets}{training}"


def describe_shortage(memory: HostMemory) -> str:
    """Return the shortage with a remedy; empty if the memory suffices."""
    if memory.fits:
        return ""
    mirror = "set snapshot.mirror: off, " if memory.sets > host_sets(mirror=False) else ""
    return (
        f"{memory.ranks} ranks of a node need {memory.needed_bytes / _GIGA:.3g} GB of host memory "
        f"({describe_host_memory(memory)}), and the smallest node has {memory.node_bytes / _GIGA:.3g} GB: {mirror}"
        "use fewer ranks on each node, or a layout that divides the state among more ranks"
    )


def host_memory_from(stored: Mapping[str, Any]) -> HostMemory | None:
    """Return the host memory in a stored prediction; None if it is not there, or has another form."""
    data = read_mapping(stored, "host_memory") or {}
    found = [value for each in fields(HostMemory) if (value := read_number(data, each.name)) is not None]
    if len(found) < len(fields(HostMemory)) or min(found[:2]) < 1:
        return None
    ranks, sets, *sizes = found
    return HostMemory(int(ranks), int(sets), *sizes)
