"""The records of what a job is assigned: nodes, layout, and a change of them that is in progress.

The controller writes a `JobAssignment` to the allocation row of the job's supervisor, and a successor reads it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.policy.placement.demand import PlacementChoice
from regroup.workers.contract.codec import build, plain


@dataclass(frozen=True)
class NodeAssignment:
    """One node of a job, with its ranks and devices."""

    node_id: str
    name: str
    address: str
    ranks: int
    devices: tuple[int, ...] = ()
    """Indexes of the CUDA devices on the node. Empty: `0..ranks-1`."""
    reservations: dict[str, int] = field(default_factory=dict[str, int])
    """Name of each reservation that holds its devices → ranks that fit in the reservation."""
    domain: tuple[str, ...] = ()
    """Failure domains of the node, the largest first."""
    numbers: tuple[int, ...] = ()
    """Ranks on the node. Empty: they follow those of the previous node."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "NodeAssignment":
        """Parse the output of `to_json`."""
        return build(cls, data)


@dataclass(frozen=True)
class SizeChange:
    """The layouts of a resize."""

    before: Layout
    after: Layout

    def to_json(self) -> dict[str, Any]:
        """Return plain data for people."""
        return {"before": self.before.to_json(), "after": self.after.to_json()}


@dataclass(frozen=True)
class PlannedChange:
    """A change of a job's nodes or size that its supervisor prepares while training continues."""

    leaving: dict[str, str]
    """Node id → name, of nodes that may be gone after the deadline."""
    why: str
    noticed_s: float
    """Unix seconds."""
    deadline_s: float | None
    """Unix seconds; None: there is no hurry."""
    is_requeue: bool = False
    """The job saves its state, releases all nodes and queues again."""
    reason: Reason = Reason.DRAINED
    sizes: SizeChange | None = None
    """Set for a resize."""

    @property
    def evidence(self) -> dict[str, Any]:
        """The change as an incident shows it."""
        sizes = self.sizes.to_json() if self.sizes else {}
        nodes = sorted(self.leaving.values())
        return {"nodes": nodes, "noticed_s": self.noticed_s, "deadline_s": self.deadline_s, **sizes}


@dataclass(frozen=True)
class Drain:
    """A drain in progress: the job moves to other nodes."""

    planned: PlannedChange
    added: dict[str, str]
    """Node id → name, of the nodes that replace those that leave."""
    nodes_before: tuple[NodeAssignment, ...]
    """Empty: the nodes on which the job was placed."""


@dataclass(frozen=True)
class Resize:
    """A resize in progress: the job moves to another layout."""

    planned: PlannedChange
    added: tuple[str, ...]
    """Names of the allocations that were added for it."""
    layout_before: Layout
    nodes_before: tuple[NodeAssignment, ...]


@dataclass(frozen=True)
class JobAssignment:
    """The nodes and the layout of a job, as desired by the controller."""

    layout: Layout
    attempt: int
    """Number of times that the job was placed before."""
    nodes: tuple[NodeAssignment, ...] = ()
    """In the order of ranks. Empty: the nodes on which the job was placed."""
    change: Drain | Resize | None = None
    """At most one change is in progress."""
    is_user_size: bool = False
    """A person chose the size, so the controller does not grow the job."""
    choice: PlacementChoice | None = None
    """Why the job was placed on these nodes."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JobAssignment":
        """Parse the output of `to_json`."""
        return build(cls, data)

    def without_change(self) -> "JobAssignment":
        """Return this assignment with its change done."""
        return replace(self, change=None)
