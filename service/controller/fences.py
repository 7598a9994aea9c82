"""Nodes that were given up without proof that their ranks are dead are opened again as soon as there is one."""

import asyncio

import structlog

from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings

_log = structlog.get_logger(__name__)


async def lift(health: NodeHealth, cluster: Cluster, settings: Settings, now: float) -> None:
    """Ask an agent in waiting on each fenced node whether anything of the job lives there that the node was taken
    from. A node that still does not answer stays as it is, and so does every one without agents in waiting.

    Raises:
        UnavailableError: the database does not answer, or the cluster does not say which nodes it has.
    """
    if settings.standby and (fenced := await health.fenced(now)):
        await asyncio.gather(*(_look(health, cluster, settings, node, job_id, now) for node, job_id in fenced))


async def _look(health: NodeHealth, cluster: Cluster, settings: Settings, node: Node, job_id: str, now: float) -> None:
    try:
        await cluster.stand_by(node, settings.ifname or "", preflight=settings.preflight)
        is_clear = await cluster.is_clear(node, job_id)
    except UnavailableError as error:
        _log.info("a silent node does not answer yet", node=node.name, error=str(error))
        return
    if is_clear:
        await health.proven(node, job_id, now)
