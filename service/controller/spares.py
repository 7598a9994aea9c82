"""Nodes that a job holds ready (`recovery.spares`): taken when nobody waits for the room, given back when unfit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import Member, members_of, node_of, spare_for, without_allocated
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.controller.substitution import give_back, members, plan_of, take
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.policy.placement.place import Unplaceable, place_replacements
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import READY, Cluster, agent_name
from regroup.service.store.projects import gives_all_up
from regroup.service.store.records import Allocation, Condition, JobRow, Lease
from regroup.service.store.store import Store

CONDITION = "SparesReady"
_EVERY_S = 5.0
_log = structlog.get_logger(__name__)


class SpareReconciler:
    """What is done between two words with a supervisor about the spares of its job."""

    def __init__(
        self,
        lease: Lease,
        store: Store,
        cluster: Cluster,
        health: NodeHealth,
        notices: DrainNotices,
        allowance: QuotaHeadroom,
    ) -> None:
        self._lease, self._store, self._cluster = lease, store, cluster
        self._health, self._notices, self._allowance = health, notices, allowance
        self._unfit: set[str] = set()
        """Nodes that could not be made ready for the job."""
        self._seen: set[str] = set()
        """Spares that the cluster was seen to have."""
        self._looked_s = -float("inf")
        self._why = ""
        """Why there is none, as the last search found."""
        self._told: dict[str, int] = {}
        """Node → ranks, as it stands in the job's history."""

    def intents(self, rows: Sequence[Allocation]) -> dict[str, Any]:
        """What the supervisor is told of it."""
        ready = members_of(row for row in rows if row.is_spare)
        return {"spares": [node_of(each, {}) for each in ready]} if ready else {}

    async def look(self, job: JobRow, status: Mapping[str, Any], now: float) -> None:
        """Bring it on.

        Raises:
            UnavailableError: cluster or database does not answer.
        """
        wanted = int(job.spec["recovery"].get("spares", 0))
        if not wanted or not job.state.holds_devices:
            return
        rows = await self._store.live_allocations(job.id)
        state: Mapping[str, str] = status.get("spares") or {}
        unfit = [each for each in members_of(row for row in rows if row.is_spare) if self._is_unfit(each, state)]
        if unfit:
            await self._give_back(job, rows, {each.node_id for each in unfit}, now)
        elif len({row.node_id for row in rows if row.is_spare}) >= wanted:
            self._why = ""
        elif await self._may_take(job, rows, now):
            self._why = await self._take(job, rows, now)
        await self._tell(job, wanted, state, now)

    def _is_unfit(self, spare: Member, state: Mapping[str, str]) -> bool:
        node, said = spare.node_id, state.get(spare.node_id, "")
        if said not in ("", READY):
            self._unfit.add(node)
        self._seen |= self._notices.alive & {node}  # the newest node may be newer than the newest look
        is_gone = node in self._seen and node not in self._notices.alive
        return is_gone or node in self._notices.by_node or node in self._unfit

    async def _give_back(self, job: JobRow, rows: Sequence[Allocation], nodes: set[str], now: float) -> None:
        left = [row for row in rows if row.node_id in nodes and (row.is_spare or row.kind == "agent")]
        await give_back(self._lease, self._store, self._cluster, job, left, now)
        _log.info("a job gives spares back", job=job.id, nodes=sorted(nodes))

    async def _may_take(self, job: JobRow, rows: Sequence[Allocation], now: float) -> bool:
        plan = plan_of(rows, job.id)
        is_calm = job.state is JobState.RUNNING and "resize" not in plan and "drain" not in plan
        if not is_calm or gives_all_up(job) or now - self._looked_s < _EVERY_S:
            return False
        self._looked_s = now
        return not any(waits_for_nodes(each) for each in await self._store.queued_jobs())

    async def _take(self, job: JobRow, rows: Sequence[Allocation], now: float) -> str:
        """Hold one more; returns why there is none."""
        mine = members(rows, job.id)
        layout, ranks = Layout(**plan_of(rows, job.id)["layout"]), max(each.ranks for each in mine)
        demand = replace(demand_of(job.parsed_spec(), layout), ranks=ranks, axes=())
        every = without_allocated(await self._health.nodes(now), await self._store.live_allocations())
        not_here = {row.node_id for row in rows} | self._unfit | self._notices.by_node.keys()
        free = [node for node in every if node.id not in not_here]
        found = place_replacements(demand, [ranks], free, [each.domain for each in mine if each.domain])
        if isinstance(found, Unplaceable):
            return found.message
        node = found.slots[0].node
        reservations = spare_for(job, demand, found.slots[0])
        agent = Allocation(job.id, "agent", agent_name(job.id, node.id), node.id)
        async with self._allowance.turn:
            if why := await self._allowance.refuses_spare(job, demand, free, now):
                return f"to hold one more node ready it {why}"
            devices = await take(
                self._lease, self._store, self._cluster, job, [*reservations, agent], reservations, now
            )
        if isinstance(devices, str):
            return devices
        _log.info("a job holds a node ready", job=job.id, node=node.name)
        return ""

    async def _tell(self, job: JobRow, wanted: int, state: Mapping[str, str], now: float) -> None:
        held = members_of(row for row in await self._store.live_allocations(job.id) if row.is_spare)
        found = {each.name: each.ranks for each in held}
        if found != self._told:
            await self._store.note(job.id, "spares", {"ranks": found}, now=now, actor="controller")
            self._told = found
        count = sum(state.get(each.node_id) == READY for each in held)
        names = ", ".join(sorted(found)) or "none"
        if count >= wanted:
            told = Condition(CONDITION, True, "ready", f"ready to take over: {names}")
        elif len(held) >= wanted:
            told = Condition(CONDITION, False, "preparing", f"being made ready: {names}")
        else:
            why = self._why or "others wait for the room, or nobody has looked yet"
            told = Condition(CONDITION, False, "no_room", f"held ready: {names}; {why}")
        job = await self._store.job(job.id)  # others have said something since it was read
        before = [each for each in job.conditions if each.type == CONDITION]
        if [replace(each, last_transition_time=0.0) for each in before] != [told]:
            others = [each for each in job.conditions if each.type != CONDITION]
            await self._store.set_conditions(self._lease, job.id, (*others, told), now=now)
