"""The demand of a job, and the two results of placement: slots on nodes, or the missing resources."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from regroup.service.domain.topology import ANY_KIND, Level, Node, NodeKind
from regroup.service.policy.placement.communication_cost import Axis, AxisCost


@dataclass(frozen=True)
class Demand:
    """Resources that a job requests at one layout."""

    ranks: int
    segment: int
    """Number of ranks of a TP group, which never leaves its domain of `segment_within`."""
    device: str
    """`cpu` or `cuda`."""
    cpus: int
    """Number of cores of each rank."""
    memory_bytes: int = 0
    """Host memory of each rank; 0 requests none."""
    segment_within: Level = Level.NODE
    """`node` or `gpu_domain`."""
    required: Level | None = None
    """Level of the one domain that must contain all ranks."""
    preferred: Level | None = None
    """Level of which as few domains as possible are used, at any other cost."""
    spread: Level | None = None
    """Level at which no domain has more than half of the nodes, so that mirrors are in other domains."""
    kind: NodeKind = ANY_KIND
    """Required kind of the nodes."""
    axes: tuple[Axis, ...] = ()
    """Communication axes, the innermost first; their degrees multiply to `ranks`. Empty: one ring of all ranks, and one
    of each segment."""

    def __str__(self) -> str:
        parts = [f"{self.cpus} CPU" + ("s" if self.cpus > 1 else "")]
        if self.device == "cuda":
            parts.insert(0, "1 CUDA device")
        if self.memory_bytes:
            parts.append(f"{self.memory_bytes / 2**30:.1f} GiB")
        within = "node" if self.segment_within is Level.NODE else str(self.segment_within)
        whole = f", in whole groups of {self.segment} per {within}" if self.segment > 1 else ""
        inside = f", all in one {self.required}" if self.required else ""
        apart = f", at most half of its nodes in one {self.spread}" if self.spread else ""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        where = f", on nodes with {self.kind}" if self.kind != ANY_KIND else ""
        return f"{ranks} of {' and '.join(parts)} each{whole}{inside}{apart}{where}"


@dataclass(frozen=True)
class RankSlot:
    """A number of ranks on one node."""

    node: Node
    ranks: int
    rank_numbers: tuple[int, ...] = ()
    """Ranks of this slot; empty if they follow those of the previous slot."""


@dataclass(frozen=True)
class RejectedPlacement:
    """An alternative placement, and the reason for its rejection."""

    what: str
    why: str


@dataclass(frozen=True)
class PlacementChoice:
    """Explanation of a placement."""

    inside: str
    """Smallest domain that contains all ranks, for example `rack b1/r7`; `the cluster` if there is none."""
    communication_s: float
    """Predicted communication time per step."""
    axes: tuple[AxisCost, ...] = ()
    """Cost of each axis, the innermost first."""
    broken: int = 0
    """Increase in free devices on nodes that other jobs use too; negative for a decrease."""
    rejected: tuple[RejectedPlacement, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the store and the API."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "PlacementChoice":
        """Parse the result of `to_json`."""
        axes = tuple(
            AxisCost(axis["name"], axis["degree"], axis["wire_bytes"], Level(axis["leaves"]), axis["seconds"])
            for axis in data["axes"]
        )
        rejected = tuple(RejectedPlacement(**each) for each in data["rejected"])
        return cls(data["inside"], data["communication_s"], axes, data["broken"], rejected)


@dataclass(frozen=True)
class Placement:
    """A device for every rank. Ranks are numbered through the slots in order, unless slots have rank numbers."""

    slots: tuple[RankSlot, ...]
    choice: PlacementChoice | None = None
    """Explanation; None if single nodes were replaced."""


class Shortage(StrEnum):
    """Reason why a job has no nodes; reason of its condition `Placeable`."""

    NO_NODES = "no_nodes"
    """No node of the cluster takes ranks."""
    TOO_LARGE = "too_large"
    """The job does not fit into the empty cluster. It waits for nodes to join and blocks no other job."""
    RESOURCES = "resources"
    """The job fits once other jobs have ended."""
    PRIORITY = "priority"
    """A job ahead in the queue has priority."""
    NODES_CLOSED = "nodes_closed"
    """The job fits only on nodes that are cordoned or quarantined. It waits for them and blocks no other job."""


@dataclass(frozen=True)
class NodeCapacity:
    """Capacity of one node: one line of the table that `regroup why` shows."""

    name: str
    free_ranks: int
    total_ranks: int
    limit: str
    """The scarcest resource, for example `CPU: 1 of 4 free`."""


@dataclass(frozen=True)
class Unplaceable:
    """Explanation of a missing placement, with details of the first nodes."""

    reason: Shortage
    message: str
    nodes: tuple[NodeCapacity, ...] = ()
