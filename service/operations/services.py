"""What the edge is given: everything it may use, made by whoever starts the server."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from regroup.service.blobs.store import BlobStore
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.cluster_state.topology import Topology, TopologyState
from regroup.service.operations.auto_layout import Planning
from regroup.service.operations.jobs import Jobs
from regroup.service.operations.nodes import Nodes
from regroup.service.operations.probes import Probes
from regroup.service.operations.projects import Projects
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings
from regroup.service.store.store import Store

Check = Callable[[], Awaitable[str]]
"""Says what is well; raises UnavailableError with what is not."""


async def no_metrics() -> bytes:
    """An empty exposition."""
    return b""


@dataclass(frozen=True)
class Services:
    """A control plane, ready to be asked."""

    store: Store
    cluster: Cluster
    settings: Settings
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    render_metrics: Callable[[], Awaitable[bytes]] = no_metrics
    """Prometheus text for `/metrics`."""
    checks: Mapping[str, Check] = field(default_factory=dict[str, Check])
    """Beside the database and the cluster, what `/readyz` asks, e.g. the controller's lease."""

    @property
    def jobs(self) -> Jobs:
        """What can be asked of jobs."""
        settings = self.settings
        return Jobs(
            self.store,
            self.clock,
            self.blobs,
            self.planning,
            storage_uri=settings.storage_uri,
            allow_faults=settings.allow_faults,
            ageing_s=settings.ageing_s,
        )

    @property
    def planning(self) -> Planning:
        """Chooses layouts."""
        return Planning(self.store, self.cluster, rule_of(self.settings), self.clock)

    @property
    def nodes(self) -> Nodes:
        """What can be asked of nodes."""
        return Nodes(self.store, self.cluster, rule_of(self.settings), self.clock)

    @property
    def probes(self) -> Probes:
        """What can be asked of measured values."""
        return Probes(self.store, self.jobs, self.nodes)

    async def topology(self) -> TopologyState:
        """Where the cluster's nodes are, as placement sees it.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        return Topology(self.settings).state(await self.cluster.nodes(), await self.probes.newest())

    @property
    def projects(self) -> Projects:
        """What can be asked of projects."""
        return Projects(self.store)

    @property
    def blobs(self) -> BlobStore:
        """Where archives of code are kept."""
        settings = self.settings
        return BlobStore(
            settings.blob_uri,
            limit_bytes=settings.upload_limit_bytes,
            retention_s=settings.blob_retention_s,
            clock=self.clock,
        )
