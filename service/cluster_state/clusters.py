"""The clusters of a server, with their state and their capacity."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.clusters import ClusterNames

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class ClusterState:
    """A cluster of the server."""

    name: str
    is_default: bool
    """True for the cluster of jobs that name none."""
    problem: str
    """Why the cluster does not answer; empty if it does."""
    nodes: tuple[Node, ...]
    """Nodes for ranks. Of a cluster that does not answer, the nodes of its last answer."""


async def list_clusters(cluster: Cluster, names: ClusterNames) -> list[ClusterState]:
    """Return all clusters of the server, the default one first."""
    nodes, problems = await _read(cluster, names)
    return [
        ClusterState(
            name,
            name == names.default,
            problems.get(key, ""),
            tuple(node for node in nodes if node.cluster == key and not node.is_control),
        )
        for name in names.all
        for key in (names.internal(name),)
    ]


async def _read(cluster: Cluster, names: ClusterNames) -> tuple[Sequence[Node], dict[str, str]]:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            nodes = await cluster.nodes()
            return nodes, dict(await cluster.unreachable())
    except (UnavailableError, TimeoutError) as error:
        problem = str(error) or f"no answer within {_PATIENCE_S:.0f} s"
        return (), {"": problem, **dict.fromkeys(names.others, problem)}
