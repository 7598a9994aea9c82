"""The drain of nodes of a live job: other nodes are allocated, the supervisor moves there, and then the old ones are
released. If there are no others, the job shrinks or requeues in time."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.controller.substitution import release_rows, substitute_nodes
from regroup.service.domain.states import JobState
from regroup.service.policy.recovery.drain_deadlines import DrainNotice, change_due_s, earliest_deadline_s, release_by_s
from regroup.service.ports.assignment import Drain, JobAssignment, NodeAssignment, PlannedChange, Resize
from regroup.service.ports.sync import NO_INTENTS, Intents, SupervisorStatus
from regroup.service.spec.workload import ProgramWorkload
from regroup.service.store.rows.records import AllocationKind, JobRow

_MOVABLE_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING})
_log = structlog.get_logger(__name__)

Shrink = Callable[[JobRow, str, float], Awaitable[bool]]
"""Continues a job without the nodes that leave, given why there are no others; returns whether that is possible."""


class DrainReconciler(Reconciler):
    """Moves a job off nodes that are about to leave."""

    def __init__(self, leader: LeaderContext, account: JobAccount | None = None, shrink: Shrink | None = None) -> None:
        self._leader, self._account, self._shrink = leader, account, shrink
        self._notices = leader.drain_notices
        self._unfit: set[str] = set()
        """Nodes that could not be prepared for the job."""
        self._requeue: PlannedChange | None = None

    def concerns(self, job: JobRow, allocations: JobAllocations) -> bool:
        """Return whether a drain is in progress, or a node of the job is about to leave."""
        if isinstance(allocations.change, Drain):
            return True
        reserved = (row for row in allocations.rows if row.kind is AllocationKind.RESERVATION)
        return any(row.node_id in self._notices.by_node for row in reserved)

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the move that is in progress, or the request to requeue."""
        match allocations.change:
            case Resize():
                return NO_INTENTS  # one change at a time
            case Drain(planned) if self._notices.alive.intersection(planned.leaving):
                if notices := self._notices_of(planned.leaving):
                    planned = replace(planned, deadline_s=earliest_deadline_s(notices))  # the deadline may have changed
                return Intents(change=planned)
            case _:
                return Intents(change=self._requeue)

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Begin, continue or end the move."""
        allocations = JobAllocations(await self._leader.store.live.allocations(job.id))
        if job.state not in _MOVABLE_STATES or not allocations or isinstance(allocations.change, Resize):
            return  # one change at a time
        if isinstance(allocations.change, Drain):
            await self._continue(job, allocations, allocations.change, status, now)
            return
        nodes = [member.node_id for member in allocations.members]
        if not (notices := self._notices_of(nodes)):
            self._requeue = None
        elif self._requeue is None and not status.lost and now >= change_due_s(notices):
            # A drain may have been cancelled, and the job placed on the node for that reason.
            await self._notices.refresh()
            if not (notices := self._notices_of(nodes)) or now < change_due_s(notices):
                return
            why = await self._begin(job, allocations, notices, now)
            if why and now >= self._leave_by_s(job, notices) and not await self._shrinks(job, why, now):
                self._requeue = _planned(notices, f", and no node can replace it: {why}", is_requeue=True)

    def _notices_of(self, nodes: Iterable[str]) -> list[DrainNotice]:
        return [found for node in nodes if (found := self._notices.by_node.get(node))]

    def _leave_by_s(self, job: JobRow, notices: Sequence[DrainNotice]) -> float:
        saves = self._account.checkpoint_seconds if self._account else ()
        first_s, step_s = min(notice.noticed_s for notice in notices), job.step_duration_s or 0.0
        spec = job.parsed_spec()
        return release_by_s(
            first_s,
            earliest_deadline_s(notices),
            step_s=step_s,
            checkpoint_s=saves[-1] if saves else 0.0,
            grace_s=spec.termination_grace if isinstance(spec.workload, ProgramWorkload) else 0.0,
        )

    async def _shrinks(self, job: JobRow, why: str, now: float) -> bool:
        return self._shrink is not None and await self._shrink(job, why, now)

    async def _begin(self, job: JobRow, allocations: JobAllocations, notices: Sequence[DrainNotice], now: float) -> str:
        """Allocate other nodes; return why there are none."""
        by_id = {notice.node_id: notice for notice in notices}
        leaving = [member for member in allocations.members if member.node_id in by_id]
        nodes = [node for node in await self._leader.health.nodes(now, losing=job) if node.id not in self._unfit]
        found = await substitute_nodes(self._leader, job, leaving, nodes, now)
        if isinstance(found, str):
            return found
        before = allocations.assignment
        drain = Drain(_planned(notices, ""), found.added_nodes, before.nodes)
        assignment = replace(before, nodes=found.nodes, change=drain)
        await self._leader.store.reallocate(self._leader.lease, job.id, assignment=assignment.to_json(), now=now)
        names = {"leaving": _names(drain.planned.leaving), "added": _names(drain.added)}
        _log.info("moving a job off nodes that leave", job=job.id, why=drain.planned.why, **names)
        return ""

    async def _continue(
        self, job: JobRow, allocations: JobAllocations, drain: Drain, status: SupervisorStatus, now: float
    ) -> None:
        assignment, leaving = allocations.assignment, drain.planned.leaving
        target = {node.node_id for node in assignment.nodes}
        is_relocated = set(status.nodes) == target
        if is_relocated and not status.former:
            history = {"drained": _names(leaving), "taken": _names(drain.added), "why": drain.planned.why}
            await self._end(job, allocations, leaving, assignment.nodes, history, now)
        elif not is_relocated and (why := self._why_unready(drain.added, target, status)):
            self._unfit |= drain.added.keys()
            history = {"refused": _names(drain.added), "why": why}
            await self._end(job, allocations, drain.added, drain.nodes_before, history, now)

    async def _end(
        self,
        job: JobRow,
        allocations: JobAllocations,
        released: Mapping[str, str],
        nodes: tuple[NodeAssignment, ...],
        history: Mapping[str, Any],
        now: float,
    ) -> None:
        """Release what the job holds on the nodes `released`; its nodes are `nodes` from now on."""
        assignment: JobAssignment = replace(allocations.assignment, nodes=nodes, change=None)
        rows = [
            row for row in allocations.rows if row.kind is not AllocationKind.SUPERVISOR and row.node_id in released
        ]
        await release_rows(self._leader, job, rows, now, assignment=assignment.to_json(), history=history)
        _log.info("released nodes of a job", job=job.id, **history)

    def _why_unready(self, added: Mapping[str, str], target: set[str], status: SupervisorStatus) -> str:
        """Return why the added nodes cannot be used; empty as long as they may."""
        for node, name in added.items():
            if node in self._notices.by_node or node not in self._notices.alive:
                return f"node {name} is about to leave or has left"
        unready = status.unready
        return unready.why if unready and unready.nodes == tuple(sorted(target)) else ""


def _planned(notices: Sequence[DrainNotice], suffix: str, *, is_requeue: bool = False) -> PlannedChange:
    """Return the change as the supervisor gets it."""
    return PlannedChange(
        leaving={notice.node_id: notice.node_name for notice in notices},
        why="; ".join(notice.why for notice in notices) + suffix,
        noticed_s=min(notice.noticed_s for notice in notices),
        deadline_s=earliest_deadline_s(notices),
        is_requeue=is_requeue,
    )


def _names(nodes: Mapping[str, str]) -> list[str]:
    return sorted(nodes.values())
