"""Nodes of the Ray cluster: live ones with their resources, and lost ones."""

from collections.abc import Mapping
from typing import Any

import ray
from ray._private.state import available_resources_per_node, state
from ray.core.generated.common_pb2 import NodeDeathInfo  # pyright: ignore[reportAttributeAccessIssue]

from regroup.service.ports.cluster import Node

ROLE_LABEL = "regroup.io/role"
PLANNED_ENDS = frozenset(
    {
        NodeDeathInfo.EXPECTED_TERMINATION,
        NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED,
        NodeDeathInfo.AUTOSCALER_DRAIN_IDLE,
    }
)
"""Reasons of Ray for the end of a node that a person or the autoscaler requested."""


def list_nodes() -> list[Node]:
    """Return the live nodes with their free resources. Blocking."""
    free: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    draining: Mapping[str, int] = state.get_draining_nodes()
    return [_node(item, free.get(item["NodeID"], {}), draining) for item in ray.nodes() if item["Alive"]]


def _node(item: Mapping[str, Any], free: Mapping[str, float], draining: Mapping[str, int]) -> Node:
    total: Mapping[str, float] = item["Resources"]
    labels: Mapping[str, str] = item.get("Labels") or {}
    return Node(
        id=item["NodeID"],
        name=_name(item),
        address=item["NodeManagerAddress"],
        labels=dict(labels),
        cpus=total.get("CPU", 0.0),
        gpus=total.get("GPU", 0.0),
        memory_bytes=int(total.get("memory", 0.0)),
        free_cpus=free.get("CPU", 0.0),
        free_gpus=free.get("GPU", 0.0),
        free_memory_bytes=int(free.get("memory", 0.0)),
        is_control=labels.get(ROLE_LABEL) == "control",
        is_draining=item["NodeID"] in draining,
        drain_deadline_s=draining.get(item["NodeID"], 0) / 1000 or None,
    )


def list_lost_nodes() -> list[str]:
    """Return the names of the nodes that ended unexpectedly, unless a node with the same name lives. Blocking."""
    found: list[Mapping[str, Any]] = ray.nodes()
    alive = {_name(item) for item in found if item["Alive"]}
    lost = {_name(item) for item in found if not item["Alive"] and item.get("DeathReason") not in PLANNED_ENDS}
    return sorted(lost - alive)


def name_of_node(node_id: str) -> str:
    """Return the name of a node, live or not; the beginning of its id if Ray does not know it. Blocking."""
    found: list[Mapping[str, Any]] = ray.nodes()
    return next((_name(item) for item in found if item["NodeID"] == node_id), node_id[:8])


def _name(item: Mapping[str, Any]) -> str:
    return str(item.get("NodeName") or item["NodeManagerHostname"])
