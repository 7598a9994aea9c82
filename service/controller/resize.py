"""The resize of a live job: nodes are allocated, the supervisor moves there, then those that it left are released.

While there is no capacity, the request stays and a condition shows the reason.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import (
    JobAllocations,
    Member,
    assign_slots,
    node_assignment,
    without_allocated,
)
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.controller.autosize import Autosizer
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.controller.substitution import allocate_rows, release_rows
from regroup.service.domain.author import CONTROLLER
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.topology import Node
from regroup.service.planner.fallback_layout import choose_fallback_layout
from regroup.service.policy.elasticity.autosize import choose_shrink
from regroup.service.policy.placement.place import Unplaceable
from regroup.service.policy.placement.rank_order import order_ranks
from regroup.service.policy.placement.resize import most_ranks, resize_slots
from regroup.service.policy.recovery.drain_deadlines import earliest_deadline_s
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.assignment import JobAssignment, PlannedChange, Resize, SizeChange
from regroup.service.ports.sync import NO_INTENTS, Intents, SupervisorStatus
from regroup.service.spec.job import JobSpec
from regroup.service.store.projects import RESIZE, must_release_all
from regroup.service.store.rows.records import Allocation, AllocationKind, Condition, Incident, JobRow

CONDITION = "Resized"
_log = structlog.get_logger(__name__)
_MAX_TRIED_SIZES = 100


class ResizeReconciler(Reconciler):
    """Resizes one job: on request, to shrink it when nodes are missing, or to grow it where there is capacity."""

    def __init__(self, leader: LeaderContext) -> None:
        self._leader = leader
        self._notices, self._headroom = leader.drain_notices, leader.quota_headroom
        self._unfit: set[str] = set()
        """Nodes that could not be prepared for the job."""
        self._autosizer, self._probes = Autosizer(), ProbeResults()
        self._parsed: tuple[Mapping[str, Any], JobSpec] | None = None
        """Stored spec of the job and its model: each sync needs it, and it does not change."""

    def concerns(self, job: JobRow, allocations: JobAllocations) -> bool:
        """Return whether a resize is requested or in progress."""
        return bool(job.intents.get(RESIZE)) or isinstance(allocations.change, Resize)

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the resize that is in progress."""
        change = allocations.change
        return Intents(change=change.planned) if isinstance(change, Resize) else NO_INTENTS

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Begin, continue or end a resize."""
        allocations = JobAllocations(await self._leader.store.live.allocations(job.id))
        if not job.state.has_allocations or not allocations:
            return
        if allocations.change is not None:  # one change at a time
            if isinstance(allocations.change, Resize):
                await self._continue(job, allocations, allocations.change, status, now)
            return
        if job.state is not JobState.RUNNING or status.lost or must_release_all(job):
            return
        if not (request := job.intents.get(RESIZE)):
            await self._grow(job, allocations, now)
            return
        layout = Layout(**request["layout"])
        if layout == allocations.assignment.layout:
            await self._finish_request(job, request, now)
            return
        is_user_size = bool(request.get("is_requested", True))
        why = await self._begin(
            job, allocations, layout, request["why"], request["requested_s"], now, is_user_size=is_user_size
        )
        await self._report(job, why, now)

    async def shrink_for_drain(self, job: JobRow, why: str, now: float) -> bool:
        """Continue without the nodes that drain, in the same way as `shrink` handles lost nodes."""
        return await self.shrink(job, (), why, now)

    async def shrink(self, job: JobRow, lost: Collection[str], why: str, now: float) -> bool:
        """Continue on other nodes, with fewer ranks, or with another split, because no node can replace those `lost`.

        Returns:
            True if the job can continue.

        Raises:
            UnavailableError: The cluster or the database does not answer.
        """
        allocations = JobAllocations(await self._leader.store.live_allocations(job.id))
        if not job.state.has_allocations or not allocations or allocations.change is not None:
            return False
        layout = await self._layout_without(job, allocations, lost, now)
        if layout is None:
            return False
        cause = f"{'nodes were lost' if lost else 'nodes leave'}, and {why}"
        return not await self._begin(job, allocations, layout, cause, now, now, lost)

    async def _layout_without(
        self, job: JobRow, allocations: JobAllocations, lost: Collection[str], now: float
    ) -> Layout | None:
        """Choose a layout without these nodes.

        It is the same on more nodes, else a smaller one of the same split, else another split.
        """
        layout, spec = allocations.assignment.layout, self._spec_of(job)
        slots, nodes = await self._remaining(job, allocations, lost, now)
        if _largest_degree(spec, [layout], slots, nodes):
            return layout
        ladder = {each.data_degree: each for each in spec.with_model_parallel(layout.tp, layout.pp).ladder}
        largest = _largest_degree(spec, list(ladder.values()), slots, nodes)
        degree = choose_shrink(sorted(ladder), layout.data_degree, largest)
        if degree is not None:
            return ladder[degree]
        probes = await self._probes.newest(self._leader.store)
        return await asyncio.to_thread(choose_fallback_layout, spec, layout.world_size, slots, nodes, probes)

    async def _grow(self, job: JobRow, allocations: JobAllocations, now: float) -> None:
        """Grow into capacity that no other job waits for, if it pays. A size that a person chose is kept."""
        assignment, spec = allocations.assignment, self._spec_of(job)
        layout = assignment.layout
        if assignment.is_user_size:
            return
        if (layout.tp, layout.pp) != (spec.layout.tp, spec.layout.pp):
            await self._return_to_spec(job, allocations, now)
            return
        self._autosizer.observe(job, layout.data_degree, now)
        larger = [each for each in spec.ladder if each.data_degree > layout.data_degree]
        if not larger or not self._autosizer.is_due(layout.data_degree, now, self._leader.pace.search_s):
            return
        if (largest := await self._largest_growth(job, allocations, larger, now)) is None:
            return
        incidents: Sequence[Incident] = ()
        if largest > layout.data_degree:
            nodes = await self._usable_nodes(job, allocations, (), now, is_loss=False)
            largest = await self._headroom.largest_degree(job, larger, nodes, now, at_most=largest)
            incidents = await self._leader.store.incidents(job.id)
        ladder = {each.data_degree: each for each in spec.ladder}
        degree = self._autosizer.choose_degree(job, layout.data_degree, sorted(ladder), largest, incidents, now)
        if degree is not None:
            why = f"there is capacity for {ladder[degree].world_size} ranks"
            await self._begin(job, allocations, ladder[degree], why, now, now)
            self._leader.free_capacity.drop()

    def _spec_of(self, job: JobRow) -> JobSpec:
        if self._parsed is None or self._parsed[0] != job.spec:
            self._parsed = job.spec, job.parsed_spec()
        return self._parsed[1]

    async def _return_to_spec(self, job: JobRow, allocations: JobAllocations, now: float) -> None:
        """Return from the split that a loss of nodes caused to that of the spec, if the job loses no rank by it."""
        if not self._autosizer.is_return_due(job, now, self._leader.pace.search_s):
            return
        least = allocations.assignment.layout.world_size
        ladder = {each.data_degree: each for each in self._spec_of(job).ladder if each.world_size >= least}
        if (largest := await self._largest_growth(job, allocations, list(ladder.values()), now)) is None:
            return
        if self._autosizer.may_return(has_capacity=bool(largest), now=now):
            why = "there is capacity again for the layout of the spec"
            await self._begin(job, allocations, ladder[largest], why, now, now)
            self._leader.free_capacity.drop()

    async def _largest_growth(
        self, job: JobRow, allocations: JobAllocations, layouts: Sequence[Layout], now: float
    ) -> int | None:
        """Return the largest data-parallel degree of these layouts that there are free nodes for; 0 if none.

        None if a queued job waits for nodes. All jobs that search at the same time share one reading of the nodes.
        """
        capacity = await self._leader.free_capacity.read(self._leader.health, now)
        if capacity.is_awaited:
            return None
        if not layouts:
            return 0
        spec, gone = self._spec_of(job), self._notices.by_node
        slots = [(each.node_id, each.ranks) for each in _by_reservation(allocations) if each.node_id not in gone]
        unusable = {*self._unfit, *gone, *_spare_nodes(allocations)}
        nodes = capacity.of_job(demand_of(spec, layouts[0]), [node_id for node_id, _ in slots], unusable)
        return _largest_degree(spec, layouts, slots, nodes)

    async def _remaining(
        self, job: JobRow, allocations: JobAllocations, lost: Collection[str], now: float
    ) -> tuple[list[tuple[str, int]], list[Node]]:
        """Return the nodes that the job may keep, with their ranks, and all nodes that it may use."""
        gone = {*lost, *self._notices.by_node}
        members = _by_reservation(allocations)
        slots = [(each.node_id, each.ranks) for each in members if each.node_id not in gone]
        return slots, await self._usable_nodes(job, allocations, gone, now, is_loss=bool(lost))

    async def _usable_nodes(
        self, job: JobRow, allocations: JobAllocations, gone: Collection[str], now: float, *, is_loss: bool
    ) -> list[Node]:
        """Return the nodes that the job may use, with the resources that no job uses."""
        nodes = await self._leader.health.nodes(now, losing=job if is_loss else None)
        unusable = {*self._unfit, *gone, *_spare_nodes(allocations)}
        rows = await self._leader.store.live.all_allocations()
        return [node for node in without_allocated(nodes, rows) if node.id not in unusable]

    async def _begin(
        self,
        job: JobRow,
        allocations: JobAllocations,
        layout: Layout,
        why: str,
        requested_s: float,
        now: float,
        lost: Collection[str] = (),
        *,
        is_user_size: bool = False,
    ) -> str:
        """Allocate the nodes for a layout; return why there are none."""
        leader, before, members = self._leader, allocations.assignment, _by_reservation(allocations)
        await self._notices.refresh()  # so that one change covers a drain as well
        leaving = [notice for each in members if (notice := self._notices.by_node.get(each.node_id))]
        gone = {notice.node_id for notice in leaving} | set(lost)
        demand = demand_of(job.parsed_spec(), layout)
        nodes = await self._usable_nodes(job, allocations, gone, now, is_loss=bool(lost))
        slots = resize_slots(
            demand, [(each.node_id, each.ranks) for each in members if each.node_id not in gone], nodes
        )
        if isinstance(slots, Unplaceable):
            return slots.message
        silent = await leader.health.on_live_nodes([each.reservations[0] for each in members if each.node_id in lost])
        added, assigned = assign_slots(job, demand, order_ranks(demand, slots), members)
        reservations = [row for member, _ in assigned for row in member.reservations]
        is_larger = layout.world_size > before.layout.world_size
        async with self._headroom.lock if is_larger else contextlib.nullcontext():
            if is_larger and (refusal := await self._headroom.refusal(job, layout, nodes, now)):
                return refusal
            devices = await allocate_rows(leader, job, added, reservations, now)
        if isinstance(devices, str):
            return devices
        await leader.health.record_silent(job, silent, now)
        planned = PlannedChange(
            leaving={notice.node_id: notice.node_name for notice in leaving},
            why=why + "".join(f"; {notice.why}" for notice in leaving),
            noticed_s=requested_s,
            deadline_s=earliest_deadline_s(leaving),
            reason=Reason.RESIZED,
            sizes=SizeChange(before.layout, layout),
        )
        nodes_before = before.nodes or tuple(node_assignment(each, devices) for each in members)
        resize = Resize(planned, tuple(row.name for row in added), before.layout, nodes_before)
        # The ranks of each node were chosen for the layout before; in another one they would split groups.
        after = [replace(node_assignment(member, devices, ranks), numbers=()) for member, ranks in assigned]
        assignment = replace(
            before,
            nodes=tuple(after),
            layout=layout,
            change=resize,
            is_user_size=is_user_size or before.is_user_size,
        )
        await leader.store.reallocate(leader.lease, job.id, assignment=assignment.to_json(), now=now)
        _log.info("resizing a job", job=job.id, before=str(before.layout), after=str(layout), why=planned.why)
        return ""

    async def _continue(
        self, job: JobRow, allocations: JobAllocations, resize: Resize, status: SupervisorStatus, now: float
    ) -> None:
        assignment = allocations.assignment
        target = {node.node_id: node.ranks for node in assignment.nodes}
        is_relocated = status.ranks_by_node == target and status.layout == assignment.layout
        sizes = resize.planned.sizes.to_json() if resize.planned.sizes else {}
        if is_relocated and not status.former:
            kept = {name for node in assignment.nodes for name in node.reservations}
            nodes = {*target, *_spare_nodes(allocations)}
            left = [row for row in allocations.rows if _is_left(row, kept, nodes)]
            history = {"resized": sizes, "why": resize.planned.why}
            await self._end(job, left, assignment.without_change(), history, now)
        elif not is_relocated and status.unready and status.unready.nodes == tuple(sorted(target)):
            left = [row for row in allocations.rows if row.name in resize.added]
            self._unfit |= {row.node_id for row in left if row.kind is AllocationKind.AGENT}
            before = replace(assignment, nodes=resize.nodes_before, layout=resize.layout_before, change=None)
            await self._end(job, left, before, {"refused": sizes, "why": status.unready.why}, now)

    async def _end(
        self,
        job: JobRow,
        left: Sequence[Allocation],
        assignment: JobAssignment,
        history: Mapping[str, Any],
        now: float,
    ) -> None:
        await release_rows(self._leader, job, left, now, assignment=assignment.to_json(), history=history)
        _log.info("released what a resized job left", job=job.id, **history)

    async def _finish_request(self, job: JobRow, request: Mapping[str, Any], now: float) -> None:
        def remove(row: JobRow) -> Mapping[str, Any]:
            return {RESIZE: None} if row.intents.get(RESIZE) == request else {}

        await self._leader.store.intend(job.id, remove, now=now, author=CONTROLLER, action="jobs.resize")
        await self._report(job, "", now)

    async def _report(self, job: JobRow, why: str, now: float) -> None:
        """Say in a condition why a requested resize waits."""
        condition = Condition(CONDITION, False, "no_room", why) if why else None
        await self._leader.set_condition(job.id, CONDITION, condition, now)


def _largest_degree(
    spec: JobSpec, layouts: Sequence[Layout], slots: Sequence[tuple[str, int]], nodes: Sequence[Node]
) -> int:
    """Return the largest data-parallel degree of these layouts that there are nodes for; 0 if none.

    At most about `_MAX_TRIED_SIZES` sizes are tried, the largest first.
    """
    demands = [(each.data_degree, demand_of(spec, each)) for each in layouts]
    most = max((most_ranks(demand, slots, nodes) for _, demand in demands[:1]), default=0)
    possible = sorted((each for each in demands if each[1].ranks <= most), key=lambda each: -each[0])
    tried = possible[:: len(possible) // _MAX_TRIED_SIZES + 1]
    fitting = (degree for degree, demand in tried if not isinstance(resize_slots(demand, slots, nodes), Unplaceable))
    return next(fitting, 0)


def _spare_nodes(allocations: JobAllocations) -> set[str]:
    return {row.node_id for row in allocations.spares}


def _by_reservation(allocations: JobAllocations) -> list[Member]:
    """Return the job's nodes in the order of their reservations, in which the queue counts what a job releases."""
    place = {row.name: number for number, row in enumerate(allocations.rows)}
    return sorted(allocations.members, key=lambda member: min(place[row.name] for row in member.reservations))


def _is_left(row: Allocation, kept: Collection[str], nodes: Collection[str]) -> bool:
    if row.kind is AllocationKind.RESERVATION:
        return row.is_for_ranks and row.name not in kept
    return row.kind is AllocationKind.AGENT and row.node_id not in nodes
