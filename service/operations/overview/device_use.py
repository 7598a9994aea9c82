"""Devices of the cluster by what they do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from regroup.service.domain.states import JobState
from regroup.service.operations.nodes import NodeState
from regroup.service.store.overview import LiveJob
from regroup.service.store.rows.records import HELD, Allocation, AllocationKind


class DeviceClass(StrEnum):
    """Present use of a device."""

    PRODUCTIVE = "productive"
    """A job trains on it."""
    STARTING = "starting"
    """A job starts on it."""
    RECOVERING = "recovering"
    """A job recovers or changes its size on it."""
    HELD = "held"
    """Reserved without training: a spare, a job that stops, or a failed job that holds its nodes."""
    IDLE = "idle"
    """No job has it."""
    CLOSED = "closed"
    """No job has it, and its node takes no ranks."""


_CLASSES: Mapping[JobState, DeviceClass] = {
    JobState.PLACING: DeviceClass.STARTING,
    JobState.STARTING: DeviceClass.STARTING,
    JobState.RUNNING: DeviceClass.PRODUCTIVE,
    JobState.RECOVERING: DeviceClass.RECOVERING,
    JobState.RESIZING: DeviceClass.RECOVERING,
}


@dataclass(frozen=True)
class DeviceUse:
    """Number of devices of each class."""

    kind: Literal["cuda", "cpu"]
    """`cuda`: GPUs are counted. `cpu`: the cluster has none, and cores are counted."""
    counts: Mapping[DeviceClass, float]

    @property
    def total(self) -> float:
        """Number of all devices."""
        return sum(self.counts.values())

    @property
    def used(self) -> float:
        """Number of devices that jobs have."""
        return self.total - self.counts[DeviceClass.IDLE] - self.counts[DeviceClass.CLOSED]


def measure_device_use(nodes: Sequence[NodeState], jobs: Sequence[LiveJob], rows: Sequence[Allocation]) -> DeviceUse:
    """Return the devices of each class.

    Args:
        nodes: all nodes for ranks, with what is free.
        rows: live allocations of the jobs.
    """
    kind = "cuda" if any(state.node is not None and state.node.gpus > 0 for state in nodes) else "cpu"
    by_id = {job.id: job for job in jobs}
    counts = dict.fromkeys(DeviceClass, 0.0)
    for row in rows:
        if row.kind is AllocationKind.RESERVATION:
            counts[_class_of(row, by_id.get(row.job_id))] += _devices_of(row, kind)
    for state in nodes:
        if state.node is not None:
            free = state.node.free_gpus if kind == "cuda" else state.node.free_cpus
            is_open = state.status == "open" and not state.node.is_draining
            counts[DeviceClass.IDLE if is_open else DeviceClass.CLOSED] += max(0.0, free)
    return DeviceUse(kind, counts)


def _class_of(row: Allocation, job: LiveJob | None) -> DeviceClass:
    if job is None or row.data.get("spare") or job.condition(HELD) is not None:
        return DeviceClass.HELD
    return _CLASSES.get(job.state, DeviceClass.HELD)


def _devices_of(row: Allocation, kind: str) -> float:
    if kind == "cuda":
        return float(row.data.get("ranks", 0)) if row.data.get("device_kind") == "cuda" else 0.0
    return float(row.data.get("cpus", 0.0))
