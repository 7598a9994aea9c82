"""How a life ends that is not the end of its job: on other nodes, or in the queue."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from regroup.service.runtime.cluster import SupervisorEvent
from regroup.service.states import Reason


class Moved(Exception):
    """The job was given other nodes: carried to whoever makes its next life, which begins with them."""

    def __init__(
        self, nodes: Sequence[Mapping[str, Any]], former: Mapping[str, str], *, is_known: bool = False
    ) -> None:
        """`former`: node id → name, of those that it leaves while they still hold its state. `is_known`: on record."""
        super().__init__("the job was given other nodes")
        self.nodes, self.former, self.is_known = nodes, former, is_known

    @classmethod
    def recall(cls, past: Sequence[SupervisorEvent], attempt: int, nodes: Collection[str]) -> "Moved | None":
        """The last that is on record since the job was placed; None if there is none, or `nodes` are those."""
        moves = [event.data for event in past if event.type == "moved" and event.data["attempt"] == attempt]
        last = cls(moves[-1]["nodes"], moves[-1]["former"], is_known=True) if moves else None
        return None if last is None or last.ids == frozenset(nodes) else last

    @property
    def ids(self) -> frozenset[str]:
        """Of its nodes."""
        return frozenset(str(node["node_id"]) for node in self.nodes)


class Leave(Exception):
    """The job gives its nodes up and queues again, with its last step saved."""

    def __init__(self, why: str, reason: Reason = Reason.DRAINED) -> None:
        super().__init__(why)
        self.reason = reason
