"""Clusters of jobs and of their nodes, from the database, for a server that has several clusters."""

from collections.abc import Sequence

from regroup.service.domain.topology import CLUSTER_MARK, Node
from regroup.service.store.rows.records import AllocationKind
from regroup.service.store.store import Store

_MOST_CACHED = 10_000


class ClusterDirectory:
    """Clusters of jobs and nodes. The cluster of a job never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clusters: dict[str, str] = {}
        """Job → cluster, the longest known first."""

    async def cluster_of(self, job_id: str) -> str:
        """Return the cluster of a job; empty for the default one.

        Raises:
            NotFoundError: the job does not exist.
            UnavailableError: the database does not answer.
        """
        if job_id not in self._clusters:
            job = await self._store.job(job_id)
            self._clusters[job_id] = (job.spec.get("resources") or {}).get("cluster") or ""
            if len(self._clusters) > _MOST_CACHED:
                del self._clusters[next(iter(self._clusters))]
        return self._clusters[job_id]

    async def used_nodes(self) -> Sequence[Node]:
        """Return the nodes that hold devices of jobs or are drained, without their resources.

        Raises:
            UnavailableError: the database does not answer.
        """
        found = {row.node_id: _node(row.node_id, row.node) for row in await self._store.nodes.drains()}
        for row in await self._store.live_allocations():
            if row.kind is AllocationKind.RESERVATION:
                cluster = await self.cluster_of(row.job_id)
                found[row.node_id] = Node(row.node_id, str(row.data.get("name") or row.node_id), "", cluster=cluster)
        return list(found.values())


def _node(node_id: str, name: str) -> Node:
    """Return a drained node. Names of nodes outside the default cluster begin with the name of their cluster."""
    cluster, mark, _ = name.partition(CLUSTER_MARK)
    return Node(node_id, name, "", cluster=cluster if mark else "")
