"""Spare nodes of a job (`recovery.spares`): allocated while no job waits for the capacity, released when unfit."""

from collections.abc import Mapping
from dataclasses import replace

import structlog

from regroup.service.cluster_state.allocations import (
    JobAllocations,
    Member,
    members_of,
    node_assignment,
    spare_for,
    without_allocated,
)
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.controller.substitution import allocate_rows, release_rows
from regroup.service.domain.author import CONTROLLER
from regroup.service.domain.states import JobState
from regroup.service.policy.placement.place import Unplaceable, place_replacements
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import agent_name
from regroup.service.ports.sync import READY, Intents, SupervisorStatus
from regroup.service.store.projects import must_release_all
from regroup.service.store.rows.records import Allocation, AllocationKind, Condition, JobRow

CONDITION = "SparesReady"
_SEARCH_EVERY_S = 5.0
_log = structlog.get_logger(__name__)


class SpareReconciler(Reconciler):
    """Holds the spare nodes of one job."""

    def __init__(self, leader: LeaderContext) -> None:
        self._leader = leader
        self._notices, self._headroom = leader.drain_notices, leader.quota_headroom
        self._unfit: set[str] = set()
        """Nodes that could not be prepared for the job."""
        self._observed: set[str] = set()
        """Spares that the cluster has listed."""
        self._searched_s = -float("inf")
        self._why_none = ""
        """Why there is no further spare, as of the last search."""
        self._recorded: dict[str, int] = {}
        """Node → ranks, as recorded in the job's history."""

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the nodes that the supervisor prepares."""
        return Intents(spares=tuple(node_assignment(each, {}) for each in members_of(allocations.spares)))

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Release unfit spares, allocate missing ones, and report both."""
        desired = int(job.spec["recovery"].get("spares", 0))
        if not desired or not job.state.has_allocations:
            return
        allocations = JobAllocations(await self._leader.store.live.allocations(job.id))
        spares = members_of(allocations.spares)
        if unfit := {each.node_id for each in spares if self._is_unfit(each, status.spares)}:
            await self._release(job, allocations, unfit, now)
        elif len(spares) >= desired:
            self._why_none = ""
        elif await self._may_allocate(job, allocations, now):
            self._why_none = await self._allocate(job, allocations, now)
        await self._report(job, desired, status.spares, now)

    def _is_unfit(self, spare: Member, states: Mapping[str, str]) -> bool:
        node, state = spare.node_id, states.get(spare.node_id, "")
        if state not in ("", READY):
            self._unfit.add(node)
        self._observed |= self._notices.alive & {node}  # a new node may not be listed yet
        is_gone = node in self._observed and node not in self._notices.alive
        return is_gone or node in self._notices.by_node or node in self._unfit

    async def _release(self, job: JobRow, allocations: JobAllocations, nodes: set[str], now: float) -> None:
        rows = [
            row
            for row in allocations.rows
            if row.node_id in nodes and (row.is_spare or row.kind is AllocationKind.AGENT)
        ]
        await release_rows(self._leader, job, rows, now)
        _log.info("released spares of a job", job=job.id, nodes=sorted(nodes))

    async def _may_allocate(self, job: JobRow, allocations: JobAllocations, now: float) -> bool:
        is_steady = job.state is JobState.RUNNING and allocations.change is None
        if not is_steady or must_release_all(job) or now - self._searched_s < _SEARCH_EVERY_S:
            return False
        self._searched_s = now
        return not any(waits_for_nodes(each) for each in await self._leader.store.queued_jobs())

    async def _allocate(self, job: JobRow, allocations: JobAllocations, now: float) -> str:
        """Allocate one more spare; return why there is none."""
        leader, members = self._leader, allocations.members
        ranks = max(each.ranks for each in members)
        demand = replace(demand_of(job.parsed_spec(), allocations.assignment.layout), ranks=ranks, axes=())
        nodes = without_allocated(await leader.health.nodes(now), await leader.store.live.all_allocations())
        excluded = {row.node_id for row in allocations.rows} | self._unfit | self._notices.by_node.keys()
        free = [node for node in nodes if node.id not in excluded]
        found = place_replacements(demand, [ranks], free, [each.domain for each in members if each.domain])
        if isinstance(found, Unplaceable):
            return found.message
        node = found.slots[0].node
        reservations = spare_for(job, demand, found.slots[0])
        agent = Allocation(job.id, AllocationKind.AGENT, agent_name(job.id, node.id), node.id)
        async with self._headroom.lock:
            if why := await self._headroom.spare_refusal(job, demand, free, now):
                return f"to hold one more spare node it {why}"
            devices = await allocate_rows(leader, job, [*reservations, agent], reservations, now)
        if isinstance(devices, str):
            return devices
        _log.info("allocated a spare for a job", job=job.id, node=node.name)
        return ""

    async def _report(self, job: JobRow, desired: int, states: Mapping[str, str], now: float) -> None:
        """Record the spares in the job's history and in its condition."""
        store = self._leader.store
        spares = members_of(JobAllocations(await store.live_allocations(job.id)).spares)
        ranks = {each.name: each.ranks for each in spares}
        if ranks != self._recorded:
            await store.note(job.id, "spares", {"ranks": ranks}, now=now, author=CONTROLLER)
            self._recorded = ranks
        ready = sum(states.get(each.node_id) == READY for each in spares)
        names = ", ".join(sorted(ranks)) or "none"
        if ready >= desired:
            condition = Condition(CONDITION, True, "ready", f"ready: {names}")
        elif len(spares) >= desired:
            condition = Condition(CONDITION, False, "preparing", f"being prepared: {names}")
        else:
            why = self._why_none or "other jobs wait for the capacity, or the search has not run yet"
            condition = Condition(CONDITION, False, "no_room", f"spares: {names}; {why}")
        await self._leader.set_condition(job.id, CONDITION, condition, now)
