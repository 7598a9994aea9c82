"""One candidate placement, and the interface that evaluates and changes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.placement.node_index import NodeIndex

CandidateSlots = tuple[tuple[int, int], ...]
"""(Index of the node, number of its ranks), in the order of positions."""


@dataclass(frozen=True)
class Candidate:
    """One way to place the job."""

    slots: CandidateSlots
    axes: tuple[Axis, ...]
    """Axes in the order in which positions are numbered, the innermost first."""
    communication_s: float
    fragmented_devices: int
    cost: tuple[int, int, float]
    """Number of domains of the preferred level; fragmented nodes beyond one; communication including the penalty for
    fragments."""


class PlacementJudge(Protocol):
    """Evaluates changes of a candidate."""

    demand: Demand
    index: NodeIndex
    capacities: Sequence[int]
    """Maximum number of ranks per node."""

    def evaluate(self, slots: CandidateSlots, *, every_order: bool = False) -> Candidate:
        """Return the candidate of these slots, in the order of the layout's axes or in the cheapest order."""
        ...

    def is_spread(self, slots: CandidateSlots) -> bool:
        """Return True if no domain has more of the nodes than mirroring allows."""
        ...

    def node_range(self, at: int) -> tuple[int, int]:
        """Return the range of nodes that a job with a rank on this node may use."""
        ...
