"""One way to place a job, and what judges and changes of it need to know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.placement.node_index import NodeIndex

CandidateSlots = tuple[tuple[int, int], ...]
"""(Index of the node, its ranks), in the order of positions."""


@dataclass(frozen=True)
class Candidate:
    """One way to place the job."""

    slots: CandidateSlots
    axes: tuple[Axis, ...]
    """In the order in which positions are numbered, the innermost first."""
    communication_s: float
    fragmented_devices: int
    cost: tuple[int, int, float]
    """Domains of the preferred level; nodes beyond one that are broken up; communication with what is left over."""


class PlacementJudge(Protocol):
    """What a change of a way is judged by."""

    demand: Demand
    index: NodeIndex
    capacities: Sequence[int]
    """Ranks that each node may be given."""

    def evaluate(self, seats: CandidateSlots, *, every_order: bool = False) -> Candidate:
        """What these seats come to; in the order of the layout's axes, or the least costly one."""
        ...

    def is_spread(self, seats: CandidateSlots) -> bool:
        """No domain has more of the nodes than mirrors can do with."""
        ...

    def node_range(self, at: int) -> tuple[int, int]:
        """The nodes that a job with a rank on this one may be on, as a range."""
        ...
