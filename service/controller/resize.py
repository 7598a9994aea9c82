"""A live job that is to be of another size: seats are taken, the supervisor goes there, and only then what was left is
given back. Where there are none, the wish stays and a condition says what it waits for."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import Member, node_of, reseated, without_allocated
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.controller.autosize import Autosizer
from regroup.service.controller.substitution import give_back, members, plan_of, take
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.domain.topology import Node
from regroup.service.planner.fallback_layout import resplit
from regroup.service.policy.elasticity.autosize import choose_shrink
from regroup.service.policy.placement.place import Unplaceable
from regroup.service.policy.placement.rank_order import order_ranks
from regroup.service.policy.placement.resize import resize_slots
from regroup.service.policy.recovery.drain_deadlines import earliest_deadline_s
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import Cluster
from regroup.service.store.projects import RESIZE, gives_all_up
from regroup.service.store.records import Allocation, Condition, JobRow, Lease
from regroup.service.store.store import Store

CONDITION = "Resized"
_log = structlog.get_logger(__name__)


class ResizeReconciler:
    """What is done between two words with a supervisor about the size of its job."""

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
        self._unasked, self._probes = Autosizer(), ProbeResults()

    def concerns(self, job: JobRow, rows: Sequence[Allocation]) -> bool:
        """Whether something of it is under way, or wanted."""
        return bool(job.intents.get(RESIZE)) or "resize" in plan_of(rows, job.id)

    def intents(self, rows: Sequence[Allocation], job_id: str) -> dict[str, Any]:
        """What the supervisor is told of it, beside its nodes and their layout."""
        under_way = plan_of(rows, job_id).get("resize")
        return {} if under_way is None else {"resize": under_way["told"]}

    async def look(self, job: JobRow, status: Mapping[str, Any], now: float) -> None:
        """Bring it on.

        Raises:
            UnavailableError: cluster or database does not answer.
        """
        rows = await self._store.live_allocations(job.id)
        plan = plan_of(rows, job.id)
        if not job.state.holds_devices or not rows or "drain" in plan:
            return  # one change at a time
        if "resize" in plan:
            await self._bring_on(job, rows, plan, status, now)
            return
        if job.state is not JobState.RUNNING or status.get("lost") or gives_all_up(job):
            return
        if not (wanted := job.intents.get(RESIZE)):
            await self._grow(job, rows, now)
            return
        layout = Layout(**wanted["layout"])
        if layout == Layout(**plan["layout"]):
            await self._come_about(job, wanted, now)
            return
        why = await self._begin(job, rows, layout, {"is_asked": True, **wanted}, now)
        await self._say(job, why, now)

    async def shrink_off(self, job: JobRow, why: str, now: float) -> bool:
        """Nodes of the job are about to leave and nothing can take their place: likewise; returns whether it can."""
        return await self.shrink(job, (), why, now)

    async def shrink(self, job: JobRow, lost: Collection[str], why: str, now: float) -> bool:
        """Nodes were lost, and nothing can take their place: go on on others, with fewer ranks, or with another split
        of the model; returns whether the job may.

        Raises:
            UnavailableError: cluster or database does not answer.
        """
        rows = await self._store.live_allocations(job.id)
        plan = plan_of(rows, job.id)
        if not job.state.holds_devices or not rows or "resize" in plan or "drain" in plan:
            return False
        layout = await self._without(job, rows, Layout(**plan["layout"]), lost, now)
        if layout is None:
            return False
        wanted = {"why": f"{'nodes were lost' if lost else 'nodes leave'}, and {why}", "asked_s": now}
        return not await self._begin(job, rows, layout, wanted, now, lost)

    async def _without(
        self, job: JobRow, rows: Sequence[Allocation], layout: Layout, lost: Collection[str], now: float
    ) -> Layout | None:
        """The layout to go on at without these nodes: the same over more nodes, else a smaller one of this split, else
        another split."""
        if await self._room(job, rows, [layout], lost, now):
            return layout
        spec = job.parsed_spec()
        ladder = {each.data_degree: each for each in spec.with_model_parallel(layout.tp, layout.pp).ladder}
        room = await self._room(job, rows, list(ladder.values()), lost, now)
        degree = choose_shrink(sorted(ladder), layout.data_degree, room)
        if degree is not None:
            return ladder[degree]
        seats, nodes = await self._left(job, rows, lost, now)
        probes = await self._probes.newest(self._store)
        return await asyncio.to_thread(resplit, spec, layout.world_size, seats, nodes, probes)

    async def _grow(self, job: JobRow, rows: Sequence[Allocation], now: float) -> None:
        """Take room that nobody waits for, if that is worth it. A size that a person has asked for is kept."""
        plan, spec = plan_of(rows, job.id), job.parsed_spec()
        layout = Layout(**plan["layout"])
        if plan.get("is_asked"):
            return
        if (layout.tp, layout.pp) != (spec.layout.tp, spec.layout.pp):
            await self._return(job, rows, layout, now)
            return
        self._unasked.observe(job, layout.data_degree, now)
        larger = [each for each in spec.ladder if each.data_degree > layout.data_degree]
        if not larger or not self._unasked.is_due(layout.data_degree, now):
            return
        if any(waits_for_nodes(each) for each in await self._store.queued_jobs()):
            return
        room = await self._room(job, rows, larger, (), now)
        if room > layout.data_degree:
            nodes = await self._usable(job, rows, (), now, is_loss=False)
            room = await self._allowance.largest(job, larger, nodes, now, at_most=room)
        incidents = await self._store.incidents(job.id)
        ladder = {each.data_degree: each for each in spec.ladder}
        degree = self._unasked.degree(job, layout.data_degree, sorted(ladder), room, incidents, now)
        if degree is not None:
            wanted = {"why": f"there is room for {ladder[degree].world_size} ranks", "asked_s": now}
            await self._begin(job, rows, ladder[degree], wanted, now)

    async def _return(self, job: JobRow, rows: Sequence[Allocation], layout: Layout, now: float) -> None:
        """From a split that the loss of nodes has left, back to that of the spec where no rank is given up for it."""
        if not self._unasked.is_due_to_return(job, now):
            return
        if any(waits_for_nodes(each) for each in await self._store.queued_jobs()):
            return
        ladder = {each.data_degree: each for each in job.parsed_spec().ladder if each.world_size >= layout.world_size}
        room = await self._room(job, rows, list(ladder.values()), (), now)
        if self._unasked.may_return(is_room=bool(room), now=now):
            wanted = {"why": "there is room for it as it was submitted again", "asked_s": now}
            await self._begin(job, rows, ladder[room], wanted, now)

    async def _room(
        self, job: JobRow, rows: Sequence[Allocation], layouts: Sequence[Layout], lost: Collection[str], now: float
    ) -> int:
        """The largest data-parallel degree of these that there are nodes for; 0 if none."""
        found, (seats, nodes) = 0, await self._left(job, rows, lost, now)
        for layout in layouts:
            if not isinstance(resize_slots(demand_of(job.parsed_spec(), layout), seats, nodes), Unplaceable):
                found = max(found, layout.data_degree)
        return found

    async def _left(
        self, job: JobRow, rows: Sequence[Allocation], lost: Collection[str], now: float
    ) -> tuple[list[tuple[str, int]], list[Node]]:
        """What the job has and may keep, node by node, and the nodes that it may be on."""
        gone = {*lost, *self._notices.by_node}
        seats = [(each.node_id, each.ranks) for each in _as_reserved(rows, job.id) if each.node_id not in gone]
        return seats, await self._usable(job, rows, gone, now, is_loss=bool(lost))

    async def _usable(
        self, job: JobRow, rows: Sequence[Allocation], gone: Collection[str], now: float, *, is_loss: bool
    ) -> list[Node]:
        """Nodes that the job may be on, with what is free there beside all jobs."""
        nodes = await self._health.nodes(now, losing=job if is_loss else None)
        unusable = {*self._unfit, *gone, *_ready(rows)}
        everyone = await self._store.live_allocations()
        return [node for node in without_allocated(nodes, everyone) if node.id not in unusable]

    async def _begin(
        self,
        job: JobRow,
        rows: Sequence[Allocation],
        layout: Layout,
        wanted: Mapping[str, Any],
        now: float,
        lost: Collection[str] = (),
    ) -> str:
        """Take the seats; returns why there are none."""
        plan, mine = plan_of(rows, job.id), _as_reserved(rows, job.id)
        await self._notices.look()  # so that one change does for both
        leaving = [notice for each in mine if (notice := self._notices.by_node.get(each.node_id))]
        gone = {notice.node_id for notice in leaving} | set(lost)
        demand = demand_of(job.parsed_spec(), layout)
        nodes = await self._usable(job, rows, gone, now, is_loss=bool(lost))
        seats = resize_slots(demand, [(each.node_id, each.ranks) for each in mine if each.node_id not in gone], nodes)
        if isinstance(seats, Unplaceable):
            return seats.message
        added, seated = reseated(job, demand, order_ranks(demand, seats), mine)
        reservations = [row for member, _ in seated for row in member.reservations]
        is_larger = layout.world_size > Layout(**plan["layout"]).world_size
        async with self._allowance.turn if is_larger else contextlib.nullcontext():
            if is_larger and (why := await self._allowance.refuses(job, layout, nodes, now)):
                return why
            devices = await take(self._lease, self._store, self._cluster, job, added, reservations, now)
        if isinstance(devices, str):
            return devices
        why = wanted["why"] + "".join(f"; {notice.why}" for notice in leaving)
        told = {
            "leaving": {notice.node_id: notice.node_name for notice in leaving},
            "why": why, "noticed_s": wanted["asked_s"], "deadline_s": earliest_deadline_s(leaving), "gives_up": False,
            "sizes": {"before": plan["layout"], "after": layout.to_json()},
        }  # fmt: skip
        under_way = {
            "told": told, "added": [row.name for row in added], "layout_before": plan["layout"],
            "before": plan.get("nodes") or [node_of(each, devices) for each in mine],
        }  # fmt: skip
        asked = {"is_asked": True} if wanted.get("is_asked") else {}
        plan = {
            # Which ranks are where was chosen for the layout before: in another, groups would be torn apart.
            **plan, "nodes": [{**node_of(member, devices, ranks), "numbers": []} for member, ranks in seated],
            "layout": layout.to_json(), "resize": under_way, **asked,
        }  # fmt: skip
        await self._store.reallocate(self._lease, job.id, plan=plan, now=now)
        _log.info("a job changes its size", job=job.id, before=under_way["layout_before"], after=plan["layout"])
        return ""

    async def _bring_on(
        self, job: JobRow, rows: Sequence[Allocation], plan: Mapping[str, Any], status: Mapping[str, Any], now: float
    ) -> None:
        under_way, target = plan["resize"], {str(node["node_id"]): int(node["ranks"]) for node in plan["nodes"]}
        is_there = status.get("seats") == target and status.get("layout") == plan["layout"]
        unready = status.get("unready") or {}
        if is_there and not status.get("former"):
            kept = {name for node in plan["nodes"] for name in node["reservations"]}
            left = [row for row in rows if _is_left(row, kept, {*target, *_ready(rows)})]
            history = {"resized": under_way["told"]["sizes"], "why": under_way["told"]["why"]}
            await self._end(job, left, plan, history, now)
        elif not is_there and unready.get("nodes") == sorted(target):
            added = set(under_way["added"])
            left = [row for row in rows if row.name in added]
            self._unfit |= {row.node_id for row in left if row.kind == "agent"}
            before = {**plan, "nodes": under_way["before"], "layout": under_way["layout_before"]}
            await self._end(job, left, before, {"refused": under_way["told"]["sizes"], "why": unready["why"]}, now)

    async def _end(
        self, job: JobRow, left: Sequence[Allocation], plan: Mapping[str, Any], history: Mapping[str, Any], now: float
    ) -> None:
        plan = {key: value for key, value in plan.items() if key != "resize"}
        await give_back(self._lease, self._store, self._cluster, job, left, now, plan=plan, history=history)
        _log.info("a job has given back what it left", job=job.id, **history)

    async def _come_about(self, job: JobRow, wanted: Mapping[str, Any], now: float) -> None:
        def over(row: JobRow) -> Mapping[str, Any]:
            return {RESIZE: None} if row.intents.get(RESIZE) == wanted else {}

        await self._store.intend(job.id, over, now=now, actor="controller")
        await self._say(job, "", now)

    async def _say(self, job: JobRow, why: str, now: float) -> None:
        job = await self._store.job(job.id)  # others have said something since it was read
        if not why and all(condition.type != CONDITION for condition in job.conditions):
            return
        others = tuple(condition for condition in job.conditions if condition.type != CONDITION)
        told = (Condition(CONDITION, False, "no_room", why),) if why else ()
        await self._store.set_conditions(self._lease, job.id, (*others, *told), now=now)


def _ready(rows: Sequence[Allocation]) -> set[str]:
    """Nodes that are held ready for the job."""
    return {row.node_id for row in rows if row.is_spare}


def _as_reserved(rows: Sequence[Allocation], job_id: str) -> list[Member]:
    """What the job has, in the order in which it was given: so the queue, too, reckons what it would give up."""
    place = {row.name: number for number, row in enumerate(rows)}
    return sorted(members(rows, job_id), key=lambda member: min(place[row.name] for row in member.reservations))


def _is_left(row: Allocation, kept: Collection[str], nodes: Collection[str]) -> bool:
    if row.kind == "reservation":
        return row.is_seat and row.name not in kept
    return row.kind == "agent" and row.node_id not in nodes
