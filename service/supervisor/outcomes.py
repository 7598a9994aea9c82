"""How a life ends that is not the end of its job: on other nodes or of another size, or in the queue."""

from collections.abc import Iterable, Mapping, Sequence

from regroup.service.domain.job_events import JobMoved, decoded
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import SupervisorEvent

Shape = tuple[frozenset[tuple[str, int]], Layout]
"""Nodes of a job with the number of their ranks, and its layout."""


def shape_of(nodes: Iterable[NodeAssignment], layout: Layout) -> Shape:
    """Return the shape of a job that has these nodes and this layout."""
    return frozenset((node.node_id, node.ranks) for node in nodes), layout


class Relocated(Exception):
    """The job was given other nodes, or another size: carried to whoever makes its next life, which begins so."""

    def __init__(
        self,
        nodes: tuple[NodeAssignment, ...],
        layout: Layout,
        former: Mapping[str, str],
        *,
        is_recorded: bool = False,
    ) -> None:
        """Initialize the outcome.

        `former`: node id → name, of the nodes that the job leaves while they still hold its state. `is_recorded`: the
        journal has the move.
        """
        super().__init__("the job was given other nodes")
        self.nodes, self.layout, self.former, self.is_recorded = nodes, layout, former, is_recorded

    @classmethod
    def replay(cls, past: Sequence[SupervisorEvent], attempt: int, layout: Layout) -> "Relocated | None":
        """The last that is on record since the job was placed; None if there is none. `layout`: that of the job, for a
        record of a supervisor that knew no other."""
        moves = [event for event in decoded(past, JobMoved) if event.attempt == attempt]
        if not moves:
            return None
        last = moves[-1]
        nodes = tuple(NodeAssignment.from_json(node) for node in last.nodes)
        return cls(nodes, Layout(**last.layout) if last.layout else layout, last.former, is_recorded=True)

    @property
    def shape(self) -> Shape:
        """Of the life to come."""
        return shape_of(self.nodes, self.layout)

    @property
    def node_ids(self) -> frozenset[str]:
        """Of its nodes."""
        return frozenset(node.node_id for node in self.nodes)


class Requeued(Exception):
    """The job gives its nodes up and queues again, with its last step saved."""

    def __init__(self, why: str, reason: Reason = Reason.DRAINED) -> None:
        super().__init__(why)
        self.reason = reason
