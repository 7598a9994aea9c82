"""Records between controller and supervisor, from the plain data in which tests write them."""

from collections.abc import Iterable, Mapping
from typing import Any

from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import Intents, SupervisorStatus
from regroup.workers.contract.codec import build


def intents(**data: Any) -> Intents:
    """Return intents, for example `intents(nodes=[{…}], change={…})`."""
    return build(Intents, data)


def status(**data: Any) -> SupervisorStatus:
    """Return the status of a supervisor."""
    return build(SupervisorStatus, data)


def assigned(nodes: Iterable[Mapping[str, Any]]) -> tuple[NodeAssignment, ...]:
    """Return the assignments of nodes."""
    return tuple(NodeAssignment.from_json(node) for node in nodes)
