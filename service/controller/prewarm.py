"""Keeps nodes warm, so that the next agent or supervisor there starts at once.

Ray starts a process for an actor unless an idle one is at hand, and an agent's zygote imports torch: seconds of CPU on
the way of every job's first step. Control nodes keep an idle process; training nodes that have room for ranks keep a
whole agent in waiting.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings

_PAUSE_S = 20.0
"""After a job's start, nodes that have no room for another are left in peace: their processors are the job's."""
_REMIND_S = 120.0
"""A standby that is not asked for much longer than this ends."""
_FIRST_LOOK_S = 15.0
_log = structlog.get_logger(__name__)


class Prewarmer:
    """Which nodes are warm, as far as is known."""

    def __init__(self, cluster: Cluster, settings: Settings, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._warm: dict[str, float] = {}
        """Node id → when it was last seen to, in seconds of the clock."""
        self._control: set[str] = set()
        self._used_s = -float("inf")

    def used(self, node_ids: Iterable[str]) -> None:
        """A job began on these nodes: its agents, and its supervisor, took what stood ready."""
        for node_id in (*node_ids, *self._control):
            self._warm.pop(node_id, None)
        self._used_s = self._clock()

    async def keep(self) -> list[tuple[Node, str]]:
        """Warm the nodes that are cold, remind the standbys that wait. What fails is tried again later.

        Returns:
            Nodes with which their standbys have found something wrong, and what.
        """
        now_s = self._clock()
        nodes = await self._cluster.nodes()
        self._control = {node.id for node in nodes if node.is_control}
        self._warm = {node.id: self._warm[node.id] for node in nodes if node.id in self._warm}
        due = [node for node in nodes if self._is_due(node, now_s)]
        fresh = now_s - _REMIND_S + _FIRST_LOOK_S  # a new one is soon asked what it has found
        self._warm.update((node.id, now_s if node.id in self._warm else fresh) for node in due)
        found = await asyncio.gather(*(self._attempt(node) for node in due))
        return [(node, unfit) for node, unfit in zip(due, found, strict=True) if unfit]

    def _is_due(self, node: Node, now_s: float) -> bool:
        if node.is_control or not self._settings.standby:  # every call leaves one more process
            return node.id not in self._warm and now_s - self._used_s > _PAUSE_S
        has_room = node.free_cpus >= 1 and not node.is_draining
        return has_room and now_s - self._warm.get(node.id, -float("inf")) > _REMIND_S

    async def _attempt(self, node: Node) -> str:
        try:
            return await self._warm_up(node)
        except UnavailableError as error:  # nothing depends on it: the next job there is only slower to start
            _log.info("a node stays cold", node=node.name, error=str(error))
            return ""

    async def _warm_up(self, node: Node) -> str:
        if node.is_control or not self._settings.standby:
            await self._cluster.prestart(node)
            return ""
        return await self._cluster.stand_by(node, self._settings.ifname or "", preflight=self._settings.preflight)
