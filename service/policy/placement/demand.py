"""What a job asks of nodes, and the two answers: seats on nodes, or what is missing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from regroup.service.domain.topology import ANY_KIND, Level, Node, NodeKind
from regroup.service.policy.placement.communication_cost import Axis, AxisCost


@dataclass(frozen=True)
class Demand:
    """What a job asks for at one layout."""

    ranks: int
    segment: int
    """Ranks of one TP group, which never leaves its domain of `segment_within`."""
    device: str
    """`cpu` or `cuda`."""
    cpus: int
    """Cores of each rank."""
    memory_bytes: int = 0
    """Host memory of each rank; 0 asks for none."""
    segment_within: Level = Level.NODE
    """`node` or `gpu_domain`."""
    required: Level | None = None
    """All ranks are in one domain of this level, or the job waits."""
    preferred: Level | None = None
    """As few domains of this level as can be, whatever else that costs."""
    spread: Level | None = None
    """No domain of this level has more than half of the nodes: mirrors are elsewhere then."""
    kind: NodeKind = ANY_KIND
    """What nodes have to be."""
    axes: tuple[Axis, ...] = ()
    """How its ranks talk, the innermost first; their degrees multiply to `ranks`. None: in one ring, and segments in
    theirs."""

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
    """Which ranks; none: those that follow the ranks of the seat before."""


@dataclass(frozen=True)
class RejectedPlacement:
    """Another way to place the job, and what spoke against it."""

    what: str
    why: str


@dataclass(frozen=True)
class PlacementChoice:
    """Why these nodes."""

    inside: str
    """The smallest domain that all ranks are in, e.g. `rack b1/r7`; `the cluster` if there is none."""
    communication_s: float
    """Predicted for a step."""
    axes: tuple[AxisCost, ...] = ()
    """The innermost first, as ranks follow each other on the ground."""
    broken: int = 0
    """Devices more than before that are free on nodes which others use, too; fewer if below 0."""
    rejected: tuple[RejectedPlacement, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store and the wire."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "PlacementChoice":
        """Read back what `to_json` wrote."""
        axes = tuple(
            AxisCost(axis["name"], axis["degree"], axis["wire_bytes"], Level(axis["leaves"]), axis["seconds"])
            for axis in data["axes"]
        )
        rejected = tuple(RejectedPlacement(**each) for each in data["rejected"])
        return cls(data["inside"], data["communication_s"], axes, data["broken"], rejected)


@dataclass(frozen=True)
class Placement:
    """Every rank has a device. Ranks are numbered through the seats in order, unless seats say otherwise."""

    slots: tuple[RankSlot, ...]
    choice: PlacementChoice | None = None
    """None where there was none: single nodes were replaced."""


class Shortage(StrEnum):
    """Why a job has no nodes; reason of its condition `Placeable`."""

    NO_NODES = "no_nodes"
    """No node of the cluster takes ranks."""
    TOO_LARGE = "too_large"
    """It would not fit even if nothing else ran. It waits for nodes to join and blocks nobody."""
    RESOURCES = "resources"
    """It fits once others have ended."""
    PRIORITY = "priority"
    """A job that came earlier has the next turn."""
    NODES_CLOSED = "nodes_closed"
    """It would fit if no node were cordoned or quarantined. It waits for them to open and blocks nobody."""


@dataclass(frozen=True)
class NodeCapacity:
    """What one node could give: a line of the table that `why` shows."""

    name: str
    free_ranks: int
    total_ranks: int
    limit: str
    """What there is too little of, e.g. `CPU: 1 of 4 free`."""


@dataclass(frozen=True)
class Unplaceable:
    """Why not, in words, and for the first nodes one by one."""

    reason: Shortage
    message: str
    nodes: tuple[NodeCapacity, ...] = ()
