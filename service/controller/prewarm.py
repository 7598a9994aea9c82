"""Idle processes on nodes, so that the next agent or supervisor there starts at once.

Ray starts a process for an actor unless an idle one exists, and the agent's zygote imports torch. Both take seconds of
CPU time before a job's first step. A control node keeps an idle process. A training node with free capacity keeps
a whole standby agent.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings

_START_PAUSE_S = 20.0
"""After a job's start, nodes without free capacity are not prewarmed: their CPUs belong to the job."""
_RENEW_EVERY_S = 120.0
"""A standby agent that is not renewed for much longer than this ends."""
_FIRST_RENEWAL_S = 15.0
_log = structlog.get_logger(__name__)


class Prewarmer:
    """Keeps nodes warm."""

    def __init__(self, cluster: Cluster, settings: Settings, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._warm: dict[str, float] = {}
        """Node id → when it was last prewarmed, in seconds of the clock."""
        self._control: set[str] = set()
        self._used_s = -float("inf")

    def mark_used(self, node_ids: Iterable[str]) -> None:
        """Record that a job started on these nodes: its agents and its supervisor used the idle processes."""
        for node_id in (*node_ids, *self._control):
            self._warm.pop(node_id, None)
        self._used_s = self._clock()

    async def prewarm_nodes(self, nodes: Sequence[Node]) -> list[tuple[Node, str]]:
        """Prewarm the cold nodes of the cluster and renew its standby agents. Failures are retried later.

        Args:
            nodes: all nodes of the cluster.

        Returns:
            Nodes with a fault that their standby agents found, and the fault.
        """
        now_s = self._clock()
        self._control = {node.id for node in nodes if node.is_control}
        self._warm = {node.id: self._warm[node.id] for node in nodes if node.id in self._warm}
        due = [node for node in nodes if self._is_due(node, now_s)]
        first_s = now_s - _RENEW_EVERY_S + _FIRST_RENEWAL_S  # a new standby agent soon knows the faults of its node
        self._warm.update((node.id, now_s if node.id in self._warm else first_s) for node in due)
        faults = await asyncio.gather(*(self._try_prewarm(node) for node in due))
        return [(node, fault) for node, fault in zip(due, faults, strict=True) if fault]

    def _is_due(self, node: Node, now_s: float) -> bool:
        if node.closed_reason:  # the cluster of the node does not answer
            return False
        if node.is_control or not self._settings.standby:  # every call starts one more process
            return node.id not in self._warm and now_s - self._used_s > _START_PAUSE_S
        has_capacity = node.free_cpus >= 1 and not node.is_draining
        return has_capacity and now_s - self._warm.get(node.id, -float("inf")) > _RENEW_EVERY_S

    async def _try_prewarm(self, node: Node) -> str:
        try:
            return await self._prewarm(node)
        except UnavailableError as error:  # only the start of the next job there is slower
            _log.info("could not prewarm a node", node=node.name, error=str(error))
            return ""

    async def _prewarm(self, node: Node) -> str:
        if node.is_control or not self._settings.standby:
            await self._cluster.prestart(node)
            return ""
        settings = self._settings
        return await self._cluster.stand_by(
            node, settings.ifname or "", preflight=settings.preflight, rank_users=settings.rank_users
        )
