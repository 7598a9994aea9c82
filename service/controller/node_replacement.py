"""The replacement of nodes that a live job has lost. The ranks on the other nodes continue from memory."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.controller.substitution import substitute_nodes
from regroup.service.domain.states import Reason
from regroup.service.ports.sync import Intents, SupervisorStatus
from regroup.service.store.rows.records import JobRow

_AGENT_RESTART_S = 1.0
"""An agent that died alone is up again after this time. If it is not, its node counts as lost."""
_log = structlog.get_logger(__name__)

Shrink = Callable[[JobRow, Sequence[str], str, float], Awaitable[bool]]
"""Continues a job without the lost nodes, given why there are no others; returns whether that is possible."""


class ReplacementReconciler(Reconciler):
    """Replaces the nodes that a job's supervisor waits for, or shrinks the job."""

    def __init__(self, leader: LeaderContext, shrink: Shrink) -> None:
        self._leader, self._shrink = leader, shrink
        self._no_spare = ""
        """Why no node can replace a lost one, once `replacement_wait_s` has passed."""
        self._lost_since_s: float | None = None
        """Monotonic seconds; None: no node is lost."""

    def concerns(self, job: JobRow, allocations: JobAllocations) -> bool:
        """Return whether nodes are lost."""
        return self._lost_since_s is not None

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return why there is no node, so that the supervisor stops waiting for one."""
        return Intents(no_spare=self._no_spare)

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Replace the lost nodes; shrink the job if there are no others."""
        if not status.lost:
            self._lost_since_s, self._no_spare = None, ""
            return
        if self._lost_since_s is None:
            self._lost_since_s = time.monotonic()
        waited_s = time.monotonic() - self._lost_since_s
        is_drained = status.incident is not None and status.incident["reason"] == Reason.DRAINED
        why = await replace_lost_nodes(
            self._leader, job, status.lost, now, is_overdue=waited_s > _AGENT_RESTART_S, is_announced=is_drained
        )
        self._no_spare = why if waited_s > self._leader.settings.replacement_wait_s else ""
        if self._no_spare:  # the supervisor abandons the nodes when it learns this, so they are fenced before
            await self._record_abandoned(job, status.lost, now)
        if why:
            await self._shrink(job, status.lost, why, now)

    async def _record_abandoned(self, job: JobRow, lost: Sequence[str], now: float) -> None:
        allocations = JobAllocations(await self._leader.store.live_allocations(job.id))
        abandoned = [member.reservations[0] for member in allocations.members if member.node_id in lost]
        await self._leader.health.record_silent(job, await self._leader.health.on_live_nodes(abandoned), now)


async def replace_lost_nodes(
    leader: LeaderContext,
    job: JobRow,
    lost: Sequence[str],
    now: float,
    *,
    is_overdue: bool = False,
    is_announced: bool = False,
) -> str:
    """Replace each of the nodes `lost` that the cluster has lost, too. The supervisor gets them with its next sync.

    A silent node may still run ranks. They cannot commit a step without the others. Another job that gets the node's
    devices must reach the node first, and so does the request to end the ranks there. A silent node is recorded, and so
    fenced, before the job abandons it.

    Args:
        is_overdue: Replace also nodes that the cluster still lists, because their agents did not restart.
        is_announced: The nodes were drained, so their loss does not count as a fault.

    Returns:
        Why there is no replacement, for people; empty if there is nothing to do or it was done.

    Raises:
        UnavailableError: The cluster or the database does not answer.
    """
    nodes = await leader.health.nodes(now, losing=job)
    alive = {node.id for node in nodes if node.alive}
    allocations = JobAllocations(await leader.store.live_allocations(job.id))
    gone = [
        member
        for member in allocations.members
        if member.node_id in lost and (is_overdue or member.node_id not in alive)
    ]
    if not gone:
        return ""
    if not is_announced:
        absent = [member.reservations[0] for member in gone if member.node_id not in alive]
        await leader.health.record_lost(job, absent, now)
    found = await substitute_nodes(leader, job, gone, nodes, now)
    if isinstance(found, str):
        return found  # the job keeps its nodes, and the agent of a silent one may still restart
    silent = [member.reservations[0] for member in gone if member.node_id in alive]
    await leader.health.record_silent(job, silent, now)
    left = {member.node_id for member in gone}
    await leader.store.reallocate(
        leader.lease,
        job.id,
        release=[row.name for row in allocations.rows if row.node_id in left],
        assignment=replace(allocations.assignment, nodes=found.nodes).to_json(),
        history=(history := {"lost": [member.name for member in gone], "taken": list(found.added_nodes.values())}),
        now=now,
    )
    _log.info("replaced lost nodes of a job", job=job.id, **history)
    return ""
