"""Other nodes for a live job, where the cluster has lost some of its own: the ranks on the others go on from memory."""

import time
from collections.abc import Sequence

import structlog

from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.controller.substitution import members, plan_of, take_heirs
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import JobRow, Lease
from regroup.service.store.store import Store

_RETURNS_S = 1.0
"""An agent that died alone is up again on its node after so long; what takes longer is taken for the node's end."""
_log = structlog.get_logger(__name__)


class ReplacementReconciler:
    """What is done between two words with a supervisor about the nodes that it waits for."""

    def __init__(self, lease: Lease, store: Store, cluster: Cluster, health: NodeHealth, wait_s: float) -> None:
        self.no_spare = ""
        """Why nothing can take a lost node's place, once that has been so for long enough."""
        self.no_heir = ""
        """The same, as soon as it was found so."""
        self._parts, self._wait_s = (lease, store, cluster, health), wait_s
        self._since_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Nodes are missing."""
        return self._since_s is not None

    async def look(self, job: JobRow, lost: Sequence[str], now: float, *, is_announced: bool = False) -> None:
        """Replace what can be. `is_announced`: it was said before that they leave, which is no fault of theirs."""
        if not lost:
            self._since_s, self.no_spare, self.no_heir = None, "", ""
            return
        if self._since_s is None:
            self._since_s = time.monotonic()
        waited_s = time.monotonic() - self._since_s
        is_overdue = waited_s > _RETURNS_S
        self.no_heir = why = await replace_lost(
            *self._parts, job, lost, now, is_overdue=is_overdue, is_announced=is_announced
        )
        self.no_spare = why if waited_s > self._wait_s else ""


async def replace_lost(
    lease: Lease,
    store: Store,
    cluster: Cluster,
    health: NodeHealth,
    job: JobRow,
    lost: Sequence[str],
    now: float,
    *,
    is_overdue: bool = False,
    is_announced: bool = False,
) -> str:
    """Give the job another node for each of `lost` that is gone from the cluster; the agent of one that it still
    believes in may come back by itself, until it `is_overdue`. The supervisor hears with its next sync.

    A silent node may still run ranks. They can commit no step without the others, and whoever is given its devices has
    to reach it first, as does the order to end what the job had there.

    Returns:
        Why it cannot be, for people; empty if there is nothing to do or it was done.

    Raises:
        UnavailableError: the cluster or the database does not answer.
    """
    nodes = await health.nodes(now, losing=job)
    alive = {node.id for node in nodes if node.alive}
    rows = await store.live_allocations(job.id)
    mine = members(rows, job.id)
    gone = [member for member in mine if member.node_id in lost and (is_overdue or member.node_id not in alive)]
    if not gone:
        return ""
    if not is_announced:
        await health.lost(job, [member.reservations[0] for member in gone if member.node_id not in alive], now)
    await health.silent(job, [member.reservations[0] for member in gone if member.node_id in alive], now)
    found = await take_heirs(lease, store, cluster, job, gone, nodes, now)
    if isinstance(found, str):
        return found
    left = {member.node_id for member in gone}
    names = [row.name for row in rows if row.node_id in left]
    history = {"lost": [member.name for member in gone], "taken": found.names}
    plan = {**plan_of(rows, job.id), "nodes": list(found.nodes)}
    await store.reallocate(lease, job.id, release=names, plan=plan, history=history, now=now)
    _log.info("nodes of a job were replaced", job=job.id, **history)
    return ""
