"""Nodes of a live job that are about to leave: others are taken in their place, the supervisor moves there, and only
then what was left is given back. Where there are no others, the job gives its nodes up in time."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.controller.substitution import give_back, members, plan_of, take_heirs
from regroup.service.domain.states import JobState
from regroup.service.policy.recovery.drain_deadlines import DrainNotice, change_due_s, earliest_deadline_s, release_by_s
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import Allocation, JobRow, Lease
from regroup.service.store.store import Store

_MOVES_IN = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING})
_log = structlog.get_logger(__name__)


class DrainReconciler:
    """What is done between two words with a supervisor about nodes of its job that are about to leave."""

    def __init__(
        self,
        lease: Lease,
        store: Store,
        cluster: Cluster,
        health: NodeHealth,
        notices: DrainNotices,
        shrink: Callable[[JobRow, str, float], Awaitable[bool]] | None = None,
    ) -> None:
        """`shrink`: has a job go on without the nodes that leave and without others, for a reason; whether it can."""
        self._shrink = shrink
        self._lease, self._store, self._cluster, self._notices = lease, store, cluster, notices
        self._health = health
        self._unfit: set[str] = set()
        """Nodes that could not be made ready for the job."""
        self._gives_up: Mapping[str, Any] | None = None

    def concerns(self, rows: Sequence[Allocation]) -> bool:
        """Whether a job that owns these has a node that is about to leave."""
        return any(row.kind == "reservation" and row.node_id in self._notices.by_node for row in rows)

    def intents(self, rows: Sequence[Allocation], job_id: str) -> dict[str, Any]:
        """What the supervisor is told of it."""
        under_way = plan_of(rows, job_id).get("drain")
        if under_way is None or not self._notices.alive.intersection(under_way["leaving"]):
            return {"drain": self._gives_up} if self._gives_up else {}
        told = {key: under_way[key] for key in ("leaving", "why", "noticed_s", "deadline_s", "gives_up")}
        if noticed := self._of(under_way["leaving"]):
            told["deadline_s"] = earliest_deadline_s(noticed)  # it may be another by now
        return {"drain": told}

    async def look(self, job: JobRow, status: Mapping[str, Any], checkpoint_s: float, now: float) -> None:
        """Bring it on. `checkpoint_s`: what saving the job takes.

        Raises:
            UnavailableError: cluster or database does not answer.
        """
        rows = await self._store.live_allocations(job.id)
        if job.state not in _MOVES_IN or not rows or "resize" in plan_of(rows, job.id):
            return  # one change at a time
        if under_way := plan_of(rows, job.id).get("drain"):
            await self._bring_on(job, rows, under_way, status, now)
            return
        nodes = [member.node_id for member in members(rows, job.id)]
        if not (noticed := self._of(nodes)):
            self._gives_up = None
        elif self._gives_up is None and not status.get("lost") and now >= change_due_s(noticed):
            await self._notices.look()  # a wish may have been taken back, and the job placed here for that
            if not (noticed := self._of(nodes)) or now < change_due_s(noticed):
                return
            why = await self._move(job, rows, noticed, now)
            first_s, step_s = min(notice.noticed_s for notice in noticed), job.step_duration_s or 0.0
            until_s = release_by_s(first_s, earliest_deadline_s(noticed), step_s=step_s, checkpoint_s=checkpoint_s)
            if why and now >= until_s and not (self._shrink and await self._shrink(job, why, now)):
                self._gives_up = _said(noticed, f", and nothing can take its place: {why}", gives_up=True)

    def _of(self, nodes: Iterable[str]) -> list[DrainNotice]:
        """What is known of the leaving of these."""
        return [found for node in nodes if (found := self._notices.by_node.get(node))]

    async def _move(self, job: JobRow, rows: Sequence[Allocation], noticed: Sequence[DrainNotice], now: float) -> str:
        """Take other nodes; returns why there are none."""
        by_id = {notice.node_id: notice for notice in noticed}
        leaving = [member for member in members(rows, job.id) if member.node_id in by_id]
        nodes = [node for node in await self._health.nodes(now, losing=job) if node.id not in self._unfit]
        found = await take_heirs(self._lease, self._store, self._cluster, job, leaving, nodes, now)
        if isinstance(found, str):
            return found
        plan = plan_of(rows, job.id)
        come = {row.node_id: row.data["name"] for row in found.taken if row.kind == "reservation"}
        drain = {**_said(noticed, "", gives_up=False), "come": come, "before": plan.get("nodes")}
        plan = {**plan, "nodes": list(found.nodes), "drain": drain}
        await self._store.reallocate(self._lease, job.id, plan=plan, now=now)
        _log.info("a job moves off nodes that are about to leave", job=job.id, **drain)
        return ""

    async def _bring_on(
        self, job: JobRow, rows: Sequence[Allocation], drain: Mapping[str, Any], status: Mapping[str, Any], now: float
    ) -> None:
        plan = plan_of(rows, job.id)
        target = {str(node["node_id"]) for node in plan["nodes"]}
        is_there = set(status.get("nodes") or ()) == target
        if is_there and not status.get("former"):
            history = {"drained": _names(drain["leaving"]), "taken": _names(drain["come"]), "why": drain["why"]}
            await self._end(job, rows, drain["leaving"], plan.get("nodes"), history, now)
        elif not is_there and (why := self._unready(drain["come"], target, status)):
            self._unfit |= drain["come"].keys()
            history = {"refused": _names(drain["come"]), "why": why}
            await self._end(job, rows, drain["come"], drain["before"], history, now)

    async def _end(
        self,
        job: JobRow,
        rows: Sequence[Allocation],
        out: Mapping[str, str],
        nodes: Sequence[Mapping[str, Any]] | None,
        history: Mapping[str, Any],
        now: float,
    ) -> None:
        """Give back what the job has on the nodes `out`; it has `nodes` from now on, those of its beginning if None."""
        plan = {key: value for key, value in plan_of(rows, job.id).items() if key not in ("drain", "nodes")}
        plan = plan if nodes is None else {**plan, "nodes": nodes}
        left = [row for row in rows if row.kind != "supervisor" and row.node_id in out]
        await give_back(self._lease, self._store, self._cluster, job, left, now, plan=plan, history=history)
        _log.info("a job has given nodes back", job=job.id, **history)

    def _unready(self, come: Mapping[str, str], target: set[str], status: Mapping[str, Any]) -> str:
        """Why the nodes that came cannot take over; empty as long as they may."""
        for node, name in come.items():
            if node in self._notices.by_node or node not in self._notices.alive:
                return f"node {name} is about to leave, or gone, itself"
        unready = status.get("unready") or {}
        return str(unready["why"]) if unready.get("nodes") == sorted(target) else ""


def _said(noticed: Sequence[DrainNotice], more: str, *, gives_up: bool) -> dict[str, Any]:
    """What a supervisor is told of these."""
    return {
        "leaving": {notice.node_id: notice.node_name for notice in noticed},
        "why": "; ".join(notice.why for notice in noticed) + more,
        "noticed_s": min(notice.noticed_s for notice in noticed),
        "deadline_s": earliest_deadline_s(noticed),
        "gives_up": gives_up,
    }


def _names(nodes: Mapping[str, str]) -> list[str]:
    return sorted(nodes.values())
