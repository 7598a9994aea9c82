"""The health of nodes: it records their faults from supervisors' reports, and closes nodes that fail repeatedly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.shared_spares import close_shared_spares
from regroup.service.domain.job_events import IncidentRevised, MalformedEventError, NoteRecorded, decode
from regroup.service.domain.topology import Node
from regroup.service.policy.detection.node_quarantine import (
    MEMORY_S,
    NodeEvent,
    NodeEventKind,
    QuarantinePolicy,
    assess_nodes,
    find_unproven_silences,
    is_silence_of,
    node_event_kind_of,
    proof_key,
    silence_key,
)
from regroup.service.ports.cluster import Cluster
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow, Lease
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


def rule_of(settings: Settings) -> QuarantinePolicy:
    """Return the quarantine policy of the settings."""
    return QuarantinePolicy(settings.node_event_half_life_s, settings.quarantine_s)


class NodeHealth:
    """The health of nodes for one leader. All of its state is in the store."""

    def __init__(self, lease: Lease, store: Store, cluster: Cluster, rule: QuarantinePolicy) -> None:
        self._lease, self._store, self._cluster, self._rule = lease, store, cluster, rule

    async def nodes(self, now: float, *, losing: JobRow | None = None) -> list[Node]:
        """Return the nodes of the cluster. Draining nodes are marked, and closed nodes have a reason.

        Args:
            losing: a job that loses a node or must leave it. It may use its project's shared spares.
        """
        nodes = await nodes_to_use(self._store, self._cluster)
        nodes = closed(nodes, await self._store.nodes.events(), now, self._rule)
        return await close_shared_spares(self._store, nodes, losing.project if losing else None)

    async def record_events(self, job: JobRow, reported: Sequence[SupervisorEvent], now: float) -> None:
        """Record the node faults in a supervisor's events. Faults that a job's spec injects do not count."""
        speaking = ("note",) if job.spec.get("faults") else ("incident", "note")
        if relevant := [event for event in reported if event.type in speaking]:
            rows = await self._store.live_allocations(job.id)
            await self._note(faults_in(job.id, relevant, _machines(rows), now), now)

    async def record_lost(self, job: JobRow, gone: Iterable[Allocation], now: float) -> None:
        """Record that the cluster lost nodes on which the job had these reservations."""
        message = f"the cluster lost it while job {job.name} ran there"
        await self._note(
            [
                NodeEvent(_machine(row), NodeEventKind.NODE_LOST, now, f"lost:{row.node_id}", job.id, "", message)
                for row in gone
            ],
            now,
        )

    async def on_live_nodes(self, rows: Sequence[Allocation]) -> list[Allocation]:
        """Return those of `rows` whose nodes the cluster still has."""
        alive = {node.id for node in await self._cluster.nodes() if node.alive} if rows else set[str]()
        return [row for row in rows if row.node_id in alive]

    async def record_silent(self, job: JobRow, abandoned: Iterable[Allocation], now: float) -> None:
        """Record nodes that a job abandons without proof that its ranks are dead. The cluster still has them.

        They are fenced from then on, so call it before the job abandons them.
        """
        message = f"it stopped responding while job {job.name} ran there"
        await self._note(
            [
                NodeEvent(
                    _machine(row), NodeEventKind.SILENT, now, silence_key(row.node_id, row.name), job.id, "", message
                )
                for row in abandoned
            ],
            now,
        )

    async def fenced_nodes(self, now: float) -> list[tuple[Node, str]]:
        """Return the nodes, each with a job, on which ranks may still run although the job abandoned the node."""
        silent = find_unproven_silences(await self._store.nodes.events(), now)
        nodes = await self._cluster.nodes() if silent else []
        return [
            (node, job_id)
            for node in nodes
            for job_id in sorted({each.job_id for each in silent if is_silence_of(each, node.id)})
        ]

    async def record_cleared(self, node: Node, job_id: str, now: float) -> None:
        """Record that no process of a job is left on a node that had stopped responding to it."""
        message = f"no process of job {job_id} is left there"
        found = [
            NodeEvent(each.node, NodeEventKind.CLEARED, now, proof_key(each), job_id, "", message)
            for each in find_unproven_silences(await self._store.nodes.events(), now)
            if each.job_id == job_id and is_silence_of(each, node.id)
        ]
        if await self._store.nodes.record_faults(self._lease, found, forget_before_s=now - MEMORY_S):
            _log.info("an unresponsive node may be used again", node=node.machine, job=job_id)

    async def record_unfit(self, found: Iterable[tuple[Node, str]], now: float) -> None:
        """Record the faults that standby agents found on their nodes. A lasting fault is recorded repeatedly."""
        await self._note(
            [
                NodeEvent(node.machine, NodeEventKind.PREFLIGHT, now, f"standby:{node.id}:{now:.0f}", "", "", why)
                for node, why in found
            ],
            now,
        )

    async def _note(self, faults: Sequence[NodeEvent], now: float) -> None:
        if not faults:
            return
        fresh = await self._store.nodes.record_faults(self._lease, faults, forget_before_s=now - MEMORY_S)
        healths = assess_nodes(await self._store.nodes.events(), now, self._rule) if fresh else {}
        for fault in fresh:
            health = healths[fault.node]
            facts = {
                "node": fault.node,
                "fault": fault.kind.value,
                "job": fault.job_id,
                "score": round(health.score, 2),
            }
            _log.warning("a node failed", **facts, message=fault.message, closed=health.closed_reason)


def closed(nodes: Iterable[Node], events: Iterable[NodeEvent], now: float, rule: QuarantinePolicy) -> list[Node]:
    """Return the nodes. A node that must not get new ranks has the reason."""
    healths = assess_nodes(events, now, rule)
    return [
        replace(node, closed_reason=healths[node.machine].closed_reason or node.closed_reason)
        if node.machine in healths
        else node
        for node in nodes
    ]


def faults_in(
    job_id: str, reported: Iterable[SupervisorEvent], machines: Mapping[str, str], now: float
) -> list[NodeEvent]:
    """Return the node faults that a supervisor reports. `machines` maps a node's id or name to its permanent name."""
    found: list[NodeEvent] = []
    for event in reported:
        try:
            body = decode(event.type, event.data)
        except MalformedEventError:
            continue  # the store records it as rejected
        match body:
            case IncidentRevised():
                kind, node = node_event_kind_of(body.reason, body.evidence), body.node_id or ""
                key, message = f"incident:{body.id}", body.cause
            case NoteRecorded():
                kind, node = _fault_in(body), str(body.data.get("node"))
                key, message = f"{job_id}:{event.key}", str(body.data.get("message") or "")
            case _:
                continue
        if kind is None or node not in machines:
            continue
        # Clocks of nodes differ: an event in the future would not count.
        found.append(NodeEvent(machines[node], kind, min(event.time_s, now), key, job_id, "", message))
    return found


def _fault_in(note: NoteRecorded) -> NodeEventKind | None:
    """Return the fault of its node that a note reports, if any."""
    if note.kind == "stuck":
        return NodeEventKind.UNKILLABLE
    if note.kind == "preflight" and "fault" in note.data:
        return NodeEventKind(note.data["fault"])
    if note.kind == "condition" and note.data["what"] == "device" and note.data["message"]:
        return NodeEventKind.DEVICE
    return None


def _machines(rows: Iterable[Allocation]) -> dict[str, str]:
    reservations = [row for row in rows if row.kind is AllocationKind.RESERVATION]
    return {name: _machine(row) for row in reservations for name in (row.node_id, row.data["name"])}


def _machine(row: Allocation) -> str:
    return row.data.get("machine") or row.data["name"]
