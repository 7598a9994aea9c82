"""Use cases of nodes: list them with their jobs and their health, cordon and uncordon them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.shared_spares import shared_spare_nodes
from regroup.service.domain.author import Author
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.domain.versions import etag_of
from regroup.service.policy.detection.node_quarantine import (
    NodeEvent,
    NodeEventKind,
    NodeHealth,
    QuarantinePolicy,
    assess_nodes,
)
from regroup.service.ports.cluster import Cluster
from regroup.service.store.nodes import ORDERS, order_facts
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class NodeJob:
    """A job that has devices of a node."""

    id: str
    name: str
    ranks: int
    project: str


@dataclass(frozen=True)
class NodeState:
    """A node of the cluster, or a former node with a history."""

    name: str
    """Permanent name of the machine."""
    node: Node | None
    """Node of the cluster with its free resources; None while the cluster does not have the node."""
    jobs: tuple[NodeJob, ...]
    health: NodeHealth
    spare_for: str = ""
    """Project for whose jobs the node is a spare."""
    order: NodeEvent | None = None
    """The last order of a person to cordon or uncordon the node."""

    @property
    def etag(self) -> str:
        """Entity tag of the orders for the node. Its jobs and faults change without requests."""
        return etag_of(None if self.order is None else order_facts(self.order))

    @property
    def status(self) -> Literal["open", "cordoned", "quarantined", "fenced", "unreachable"]:
        """Scheduling status: new ranks are placed only on open nodes."""
        if self.health.cordon is not None:
            return "cordoned"
        if self.health.quarantined_until_s is not None:
            return "quarantined"
        if self.health.fenced_until_s is not None:
            return "fenced"
        return "unreachable" if self.node is not None and self.node.closed_reason else "open"

    @property
    def closed_reason(self) -> str:
        """Reason why the node accepts no new ranks; empty if it is open."""
        return self.health.closed_reason or ("" if self.node is None else self.node.closed_reason)


class Nodes:
    """Use cases of nodes."""

    def __init__(self, store: Store, cluster: Cluster, rule: QuarantinePolicy, clock: Callable[[], float]) -> None:
        self._store, self._cluster, self._rule, self._clock = store, cluster, rule, clock

    async def list_nodes(self) -> list[NodeState]:
        """Return every training node, and every former node with a history, by name.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        rows = await self._store.live_allocations()
        present = without_allocated(await nodes_to_use(self._store, self._cluster), rows)
        events = await self._store.nodes.events()
        healths, orders = assess_nodes(events, self._clock(), self._rule), _newest_orders(events)
        jobs = await self._jobs(rows)
        closed = [
            replace(node, closed_reason=healths.get(node.machine, NodeHealth()).closed_reason or node.closed_reason)
            for node in present
        ]
        kept = await shared_spare_nodes(self._store, closed)
        found = [
            NodeState(
                node.machine, node, tuple(jobs.get(node.id, ())), healths.get(node.machine, NodeHealth()),
                kept.get(node.id, ""), orders.get(node.machine),
            )
            for node in present
            if not node.is_control
        ]  # fmt: skip
        names = {state.name for state in found}
        former = [
            NodeState(name, None, (), health, order=orders.get(name))
            for name, health in healths.items()
            if name not in names
        ]
        return sorted(
            [*found, *(state for state in former if state.health != NodeHealth())], key=lambda state: state.name
        )

    async def cordon(self, name: str, why: str, *, author: Author) -> NodeState:
        """Cordon a node: no new ranks are placed there, and running ranks continue. A repeat replaces the reason.

        Raises:
            NotFoundError: the cluster has no such node, and no history has it.
        """
        return await self._record_order(name, NodeEventKind.CORDONED, why, author)

    async def uncordon(self, name: str, why: str, *, author: Author) -> NodeState:
        """Open a cordoned or quarantined node. Its earlier failures no longer count.

        Raises:
            NotFoundError: as `cordon`.
        """
        return await self._record_order(name, NodeEventKind.UNCORDONED, why, author)

    async def _record_order(self, name: str, kind: NodeEventKind, why: str, author: Author) -> NodeState:
        before = await self._find(name)
        now = self._clock()
        key = f"{kind}:{before.name}:{now}"
        order = NodeEvent(before.name, kind, now, key, "", author.name, why)
        await self._store.nodes.record_order(order, author=author)
        _log.warning(f"a node was {kind}", node=before.name, actor=author.name, why=why)
        health = assess_nodes(await self._store.nodes.events(), now, self._rule)[before.name]
        return replace(before, health=health, order=order)

    async def _find(self, name: str) -> NodeState:
        """Return the node with this permanent name, else the node with this current name or id."""
        states = await self.list_nodes()
        for state in states:
            if name == state.name:
                return state
        for state in states:
            if state.node is not None and name in (state.node.name, state.node.id):
                return state
        names = ", ".join(state.name for state in states) or "none"
        raise NotFoundError(f"no node {name!r}; nodes: {names}")

    async def _jobs(self, rows: Sequence[Allocation]) -> dict[str, list[NodeJob]]:
        live = {job.id: job for job in await self._store.live_jobs()}
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            if row.kind is AllocationKind.RESERVATION:
                here = found.setdefault(row.node_id, {})
                here[row.job_id] = here.get(row.job_id, 0) + row.data.get("ranks", 0)
        return {
            node: [_node_job(job, live.get(job), ranks) for job, ranks in here.items()] for node, here in found.items()
        }


def _node_job(job_id: str, job: JobRow | None, ranks: int) -> NodeJob:
    return NodeJob(job_id, job_id, ranks, "") if job is None else NodeJob(job_id, job.name, ranks, job.project)


def _newest_orders(events: Sequence[NodeEvent]) -> dict[str, NodeEvent]:
    """Return the last order for each node. The events are in the order of their insertion."""
    return {event.node: event for event in events if event.kind in ORDERS}
