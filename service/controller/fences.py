"""Fences of silent nodes: a node is reused after proof that its ranks are dead, or when its fence expires."""

import asyncio

import structlog

from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings

_log = structlog.get_logger(__name__)


async def remove_fences(health: NodeHealth, cluster: Cluster, settings: Settings, now: float) -> None:
    """Ask a standby agent on each fenced node whether processes of the lost job still run there.

    A node that does not answer stays fenced, and so does every node without standby agents.

    Raises:
        UnavailableError: The database does not answer, or the cluster does not list its nodes.
    """
    if settings.standby and (fenced := await health.fenced_nodes(now)):
        await asyncio.gather(*(_remove_fence(health, cluster, settings, node, job_id, now) for node, job_id in fenced))


async def _remove_fence(
    health: NodeHealth, cluster: Cluster, settings: Settings, node: Node, job_id: str, now: float
) -> None:
    try:
        await cluster.stand_by(
            node, settings.ifname or "", preflight=settings.preflight, rank_users=settings.rank_users
        )
        is_clear = await cluster.is_clear(node, job_id)
    except UnavailableError as error:
        _log.info("a silent node still does not answer", node=node.name, error=str(error))
        return
    if is_clear:
        await health.record_cleared(node, job_id, now)
