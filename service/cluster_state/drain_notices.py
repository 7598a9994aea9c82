"""The nodes that are about to leave the cluster: nodes drained by users, and nodes that Ray drains."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from regroup.service.domain.topology import Node
from regroup.service.policy.recovery.drain_deadlines import DrainNotice, merge_notices
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import DrainRow
from regroup.service.store.store import Store

RAY = "Ray reports that it will leave"


class DrainNotices:
    """The drain notices as of the last refresh."""

    def __init__(self, store: Store, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        self.by_node: Mapping[str, DrainNotice] = {}
        """Node id → its drain notice."""
        self.alive: frozenset[str] = frozenset()
        """Ids of the cluster's nodes."""
        self.nodes: Sequence[Node] = ()
        """The cluster's nodes."""
        self._store, self._cluster, self._clock = store, cluster, clock
        self._seen_s: dict[str, float] = {}
        """Node id → time when Ray's notice was first observed, because Ray does not report its start."""

    async def refresh(self) -> None:
        """Read cluster and database. Delete drain requests for nodes that no longer exist.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        nodes, rows = {node.id: node for node in await self._cluster.nodes()}, await self._store.nodes.drains()
        if gone := [row.node_id for row in rows if row.node_id not in nodes]:
            await self._store.nodes.delete_drains(gone)
        self.alive, self.nodes = frozenset(nodes), list(nodes.values())
        draining = [node for node in nodes.values() if node.is_draining]
        self._seen_s = {node.id: self._seen_s.get(node.id, self._clock()) for node in draining}
        self.by_node = notices([row for row in rows if row.node_id in nodes], draining, self._seen_s)


def notices(rows: Sequence[DrainRow], draining: Sequence[Node], seen_s: Mapping[str, float]) -> dict[str, DrainNotice]:
    """Return the drain notices by node id, from users' requests and from Ray."""
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
    """Return the cluster's nodes. Nodes that users drain are marked as draining.

    Raises:
        UnavailableError: the cluster or the database does not answer.
    """
    nodes, leaving = await cluster.nodes(), {row.node_id for row in await store.nodes.drains()}
    return [replace(node, is_draining=node.is_draining or node.id in leaving) for node in nodes]
