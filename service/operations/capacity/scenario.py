"""Scenarios: other nodes, quotas and jobs than those of now. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import DOMAIN_LEVELS, Node, domains_of
from regroup.service.policy.placement.place import Demand
from regroup.service.policy.scheduling.entries import Priority, Size, WaitingJob
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.spec.types import MAX_RANKS, Integer, Line, Name, Number, SpecModel

_Devices = Annotated[Integer, Field(ge=0, lt=2**53)]
MAX_HORIZON_S = 30 * 86_400.0


class AddedNodes(SpecModel):
    """More nodes of a type that the cluster has."""

    count: Annotated[Integer, Field(ge=1, le=4096)]
    """Number of nodes."""
    like: Line | None = None
    """Name of a node that they equal. Default: the node type that is most common."""


class ChangedQuota(SpecModel):
    """Other settings of a project. Absent settings stay as they are."""

    guaranteed: _Devices | None = None
    """Number of devices that the project always gets."""
    limit: _Devices | None = None
    """Largest number of devices that the project may use; null for no limit."""
    weight: Annotated[Number, Field(ge=1e-6, le=1e6)] | None = None
    """Share of the project compared with other projects."""


class AddedJob(SpecModel):
    """A job that would be submitted now."""

    name: Name
    """Name of the job in the answer."""
    project: Name = "default"
    """Project of the job."""
    ranks: Annotated[Integer, Field(ge=1, le=MAX_RANKS)]
    """Number of devices."""
    duration_s: Annotated[Number, Field(ge=1, le=MAX_HORIZON_S)]
    """Time of its training."""
    device: Literal["cpu", "cuda"] = "cuda"
    """Kind of its devices."""
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    """Priority class."""


class WhatIfRequest(SpecModel):
    """Changes to the cluster of now. Without any, the answer is the forecast of the queue as it is."""

    add_nodes: AddedNodes | None = None
    """Nodes to add."""
    drain: Annotated[list[Line], Field(max_length=4096)] = []
    """Nodes that leave: their names, or domains such as `rack:r1`."""
    quotas: Annotated[dict[Name, ChangedQuota], Field(max_length=100)] = {}
    """Project → other settings."""
    cancel: Annotated[list[Line], Field(max_length=1000)] = []
    """Ids of jobs that end now."""
    add_jobs: Annotated[list[AddedJob], Field(max_length=20)] = []
    """Jobs that are submitted now."""
    assumed_s: Annotated[Number, Field(ge=60, le=MAX_HORIZON_S)] = 3600.0
    """Remaining time of jobs about which nothing is known."""
    horizon_s: Annotated[Number, Field(ge=600, le=MAX_HORIZON_S)] = 7 * 86_400.0
    """Simulated time."""


@dataclass(frozen=True)
class ChangedNodes:
    """Nodes of a scenario."""

    nodes: list[Node]
    leaving: list[str]
    """Ids of nodes that leave at once."""


def change_nodes(nodes: Sequence[Node], request: WhatIfRequest) -> ChangedNodes:
    """Return the nodes with those that the scenario adds, and the ids of those that leave.

    Raises:
        SpecError: the cluster has no such node or domain.
    """
    usable = [node for node in nodes if not node.is_control]
    added = _added(usable, request.add_nodes) if request.add_nodes else []
    leaving = [node_id for index, name in enumerate(request.drain) for node_id in _leaving(usable, name, index)]
    return ChangedNodes([*usable, *added], list(dict.fromkeys(leaving)))


def change_quotas(quotas: Mapping[str, Quota], request: WhatIfRequest) -> dict[str, Quota]:
    """Return the quotas with the changes of the scenario."""
    found = dict(quotas)
    for name, change in request.quotas.items():
        before = found.get(name, Quota())
        given = change.model_dump(exclude_unset=True)
        found[name] = replace(
            before, **{field: value for field, value in given.items() if field == "limit" or value is not None}
        )
    return found


def job_to_add(job: AddedJob) -> WaitingJob:
    """Return an added job as the scheduler sees it."""
    demand = Demand(job.ranks, segment=1, device=job.device, cpus=1)
    size = Size(Layout(dp_shard=job.ranks), demand)
    added_id = f"added:{job.name}"
    return WaitingJob(added_id, job.name, (size,), job.project, Priority[job.priority], max_duration_s=job.duration_s)


def _added(nodes: Sequence[Node], change: AddedNodes) -> list[Node]:
    like = _node_like(nodes, change.like)
    return [
        replace(
            like, id=f"added:{number}", name=f"added-{number}", labels=like.labels, alive=True, is_draining=False,
            closed_reason="", free_cpus=like.cpus, free_gpus=like.gpus, free_memory_bytes=like.memory_bytes,
        )
        for number in range(1, change.count + 1)
    ]  # fmt: skip


def _node_like(nodes: Sequence[Node], name: str | None) -> Node:
    if name is not None:
        found = next((node for node in nodes if name in (node.name, node.id, node.machine)), None)
        if found is None:
            raise SpecError([FieldIssue.at(("add_nodes", "like"), "the cluster has no node of this name", name)])
        return found
    if not nodes:
        raise SpecError([FieldIssue.at(("add_nodes",), "the cluster has no node whose type could be added", None)])
    kinds = [(node.gpus, node.cpus, node.kind) for node in nodes]
    common = max(kinds, key=kinds.count) if len(kinds) < 500 else max(set(kinds), key=kinds.count)
    return nodes[kinds.index(common)]


def _leaving(nodes: Sequence[Node], name: str, index: int) -> list[str]:
    level, _, domain = name.partition(":")
    levels = [each.value for each in DOMAIN_LEVELS]
    if level in levels:
        at = levels.index(level)
        found = [node.id for node in nodes if domains_of(node)[at] == domain]
    else:
        found = [node.id for node in nodes if name in (node.name, node.id, node.machine)]
    if not found:
        message = "no such node or domain; expected the name of a node, or for example rack:r1"
        raise SpecError([FieldIssue.at(("drain", index), message, name)])
    return found
