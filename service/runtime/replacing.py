"""Other nodes for a live job, where the cluster has lost some of its own: the ranks on the others go on from memory."""

import contextlib
import time
from collections.abc import Sequence

import structlog

from regroup.service.errors import UnavailableError
from regroup.service.layout import Layout
from regroup.service.policy.placement import Unplaceable, place_instead
from regroup.service.policy.queueing import demand_of
from regroup.service.runtime.allotting import grant_of, node_of, seats_of, take_all, without_allotted
from regroup.service.runtime.cluster import Cluster, GrantRefusedError
from regroup.service.runtime.node_health import NodeHealth
from regroup.service.store.records import JobRow, Lease
from regroup.service.store.store import Store

_RETURNS_S = 1.0
"""An agent that died alone is up again on its node after so long; what takes longer is taken for the node's end."""
_log = structlog.get_logger(__name__)


class Replacing:
    """What is done between two words with a supervisor about the nodes that it waits for."""

    def __init__(self, lease: Lease, store: Store, cluster: Cluster, health: NodeHealth, wait_s: float) -> None:
        self.no_spare = ""
        """Why nothing can take a lost node's place, once that has been so for long enough."""
        self._parts, self._wait_s = (lease, store, cluster, health), wait_s
        self._since_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Nodes are missing."""
        return self._since_s is not None

    async def look(self, job: JobRow, lost: Sequence[str], now: float) -> None:
        """Replace what can be."""
        if not lost:
            self._since_s, self.no_spare = None, ""
            return
        if self._since_s is None:
            self._since_s = time.monotonic()
        waited_s = time.monotonic() - self._since_s
        why = await replace_lost(*self._parts, job, lost, now, is_overdue=waited_s > _RETURNS_S)
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
    nodes = await health.nodes(now)
    alive = {node.id for node in nodes if node.alive}
    rows = await store.live_allotments()
    mine = [row for row in rows if row.job_id == job.id and row.kind == "grant"]
    gone = [row for row in mine if row.node_id in lost and (is_overdue or row.node_id not in alive)]
    if not gone:
        return ""
    await health.lost(job, [row for row in gone if row.node_id not in alive], now)
    await health.silent(job, [row for row in gone if row.node_id in alive], now)
    plan = next(row.data for row in rows if row.job_id == job.id and row.kind == "supervisor")
    demand = demand_of(job.parsed_spec(), Layout(**plan["layout"]))
    held = {row.node_id for row in mine}
    free = [node for node in without_allotted(nodes, rows) if node.id not in held]
    found = place_instead(demand, [row.data["ranks"] for row in gone], free)
    if isinstance(found, Unplaceable):
        return found.message
    taken = seats_of(job, demand, found)
    heirs = dict(zip((row.name for row in gone), (row for row in taken if row.kind == "grant"), strict=True))
    seats = [heirs.get(row.name, row) for row in mine]
    await store.reallot(lease, job.id, allot=taken, now=now)
    try:
        devices = await take_all(cluster, [grant_of(row) for row in seats])  # those that are held are told again
    except (GrantRefusedError, UnavailableError) as error:
        for row in heirs.values():
            with contextlib.suppress(UnavailableError):
                await cluster.release_grant(row.name)
        await store.reallot(lease, job.id, release=[row.name for row in taken], now=now)
        return str(error)
    left = {row.node_id for row in gone}
    names = [row.name for row in rows if row.job_id == job.id and row.node_id in left]
    history = {
        "lost": [row.data["name"] for row in gone],
        "taken": [row.data["name"] for row in heirs.values()],
    }
    plan = {**plan, "nodes": [node_of(row, devices[row.name]) for row in seats]}
    await store.reallot(lease, job.id, release=names, plan=plan, history=history, now=now)
    _log.info("nodes of a job were replaced", job=job.id, **history)
    return ""
