"""Which nodes are about to leave: those that people drain, and those of which Ray says so."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from regroup.service.domain.topology import Node
from regroup.service.policy.recovery.drain_deadlines import DrainNotice, merge_notices
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import DrainRow
from regroup.service.store.store import Store

RAY = "Ray says that it leaves"


class DrainNotices:
    """As far as the last look has shown."""

    def __init__(self, store: Store, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        self.by_node: Mapping[str, DrainNotice] = {}
        """Node id → what is known of its leaving."""
        self.alive: frozenset[str] = frozenset()
        """Ids of the nodes that the cluster has."""
        self._store, self._cluster, self._clock = store, cluster, clock
        self._seen_s: dict[str, float] = {}
        """Node id → when Ray's notice was first seen; Ray does not say since when."""

    async def refresh(self) -> None:
        """Ask cluster and database; wishes for nodes that are gone are forgotten.

        Raises:
            UnavailableError: one of them does not answer.
        """
        nodes, rows = {node.id: node for node in await self._cluster.nodes()}, await self._store.drains()
        if gone := [row.node_id for row in rows if row.node_id not in nodes]:
            await self._store.undrain(gone)
        self.alive = frozenset(nodes)
        draining = [node for node in nodes.values() if node.is_draining]
        self._seen_s = {node.id: self._seen_s.get(node.id, self._clock()) for node in draining}
        self.by_node = notices([row for row in rows if row.node_id in nodes], draining, self._seen_s)


def notices(rows: Sequence[DrainRow], draining: Sequence[Node], seen_s: Mapping[str, float]) -> dict[str, DrainNotice]:
    """Node id → what is known of its leaving, by wishes and by what Ray told."""
    requested = [
        DrainNotice(
            row.node_id, row.node, row.requested_at, row.deadline_at, f"node {row.node} is drained: {row.reason}"
        )
        for row in rows
    ]
    by_ray = [
        DrainNotice(node.id, node.name, seen_s[node.id], node.drain_deadline_s, f"node {node.name} is drained: {RAY}")
        for node in draining
    ]
    return merge_notices([*requested, *by_ray])


async def nodes_to_use(store: Store, cluster: Cluster) -> list[Node]:
    """The cluster's nodes, those that people want empty marked as about to leave.

    Raises:
        UnavailableError: cluster or database does not answer.
    """
    nodes, leaving = await cluster.nodes(), {row.node_id for row in await store.drains()}
    return [replace(node, is_draining=node.is_draining or node.id in leaving) for node in nodes]
