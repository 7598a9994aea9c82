"""Records between controller and supervisor, from the plain data in which tests write them."""

from collections.abc import Iterable, Mapping
from typing import Any

from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.start_config import StartConfig
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


def start_config(job_id: str = "j1", *, name: str = "job", **more: Any) -> StartConfig:
    """Return the start configuration of a script on one node."""
    return StartConfig.from_json(
        {
            "job_id": job_id,
            "spec": {"name": name, "workload": {"kind": "script", "entrypoint": "/train.py"}},
            "nodes": [{"node_id": "n1", "name": "node-1", "address": "127.0.0.1", "ranks": 1}],
            "layout": {},
            "storage_uri": "file:///storage",
            "datasets_uri": "file:///datasets",
            **more,
        }
    )
