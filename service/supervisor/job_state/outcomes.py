"""Outcomes of one run of a job's lifecycle: the job finished, moved to other nodes or another size, or queues again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regroup.service.domain.job_events import JobRelocated, decoded
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import SupervisorEvent

Shape = tuple[frozenset[tuple[str, int]], Layout]
"""Nodes of a job with the number of their ranks, and its layout."""


def shape_of(nodes: Iterable[NodeAssignment], layout: Layout) -> Shape:
    """Return the shape of a job that has these nodes and this layout."""
    return frozenset((node.node_id, node.ranks) for node in nodes), layout


class Finished(Exception):
    """The end of the job. The lifecycle catches it in one place and records it."""

    def __init__(
        self, reason: Reason, message: str, error: Mapping[str, Any] | None = None, *, is_requested: bool = False
    ) -> None:
        """Initialize the outcome. `is_requested`: a person or a limit ends the job, so ranks may save their work."""
        super().__init__(message)
        self.reason, self.message, self.error, self.is_requested = reason, message, error, is_requested


class Relocated(Exception):
    """A change of the job's nodes or size. The supervisor catches it and starts a new lifecycle with them."""

    def __init__(
        self,
        nodes: tuple[NodeAssignment, ...],
        layout: Layout,
        former: Mapping[str, str],
        *,
        is_recorded: bool = False,
    ) -> None:
        """Initialize the outcome.

        Args:
            former: node id → name of the nodes that the job leaves while they still have its state.
            is_recorded: the journal already has this relocation.
        """
        super().__init__("the controller assigned other nodes to the job")
        self.nodes, self.layout, self.former, self.is_recorded = nodes, layout, former, is_recorded

    @classmethod
    def replay(cls, past: Sequence[SupervisorEvent], attempt: int, layout: Layout) -> "Relocated | None":
        """Return the last recorded relocation since the job was placed, or None.

        Args:
            layout: the job's layout, for a record that contains none.
        """
        relocations = [event for event in decoded(past, JobRelocated) if event.attempt == attempt]
        if not relocations:
            return None
        last = relocations[-1]
        nodes = tuple(NodeAssignment.from_json(node) for node in last.nodes)
        return cls(nodes, Layout(**last.layout) if last.layout else layout, last.former, is_recorded=True)

    @property
    def shape(self) -> Shape:
        """Shape of the job after the relocation."""
        return shape_of(self.nodes, self.layout)

    @property
    def node_ids(self) -> frozenset[str]:
        """Ids of the job's nodes after the relocation."""
        return frozenset(node.node_id for node in self.nodes)


class Requeued(Exception):
    """The job releases its nodes and queues again, with its last step saved."""

    def __init__(self, why: str, reason: Reason = Reason.DRAINED) -> None:
        super().__init__(why)
        self.reason = reason
