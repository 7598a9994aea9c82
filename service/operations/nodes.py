"""What can be asked of nodes: which there are, what runs there, whether they are trusted; and to close or open one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.shared_spares import kept_nodes
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.policy.detection.node_quarantine import (
    NodeEvent,
    NodeEventKind,
    NodeHealth,
    QuarantinePolicy,
    assess_nodes,
)
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import Allocation, AllocationKind
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class JobHere:
    """A job that holds devices of a node."""

    id: str
    name: str
    ranks: int


@dataclass(frozen=True)
class NodeState:
    """One node: of the cluster, or one of which only the history is left."""

    name: str
    """What the node is called for good."""
    node: Node | None
    """As the cluster has it, with what is free; None while it has not."""
    jobs: tuple[JobHere, ...]
    health: NodeHealth
    kept_for: str = ""
    """Project whose jobs it is kept ready for."""

    @property
    def status(self) -> Literal["open", "cordoned", "quarantined", "fenced"]:
        """Whether new ranks may be placed there, as far as its health goes."""
        if self.health.cordon is not None:
            return "cordoned"
        if self.health.quarantined_until_s is not None:
            return "quarantined"
        return "open" if self.health.fenced_until_s is None else "fenced"


class Nodes:
    """Asks of people and programs about nodes, answered from the cluster and the store."""

    def __init__(self, store: Store, cluster: Cluster, rule: QuarantinePolicy, clock: Callable[[], float]) -> None:
        self._store, self._cluster, self._rule, self._clock = store, cluster, rule, clock

    async def all(self) -> list[NodeState]:
        """Every node that takes ranks, or of which something is remembered, by name.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        rows = await self._store.live_allocations()
        present = without_allocated(await self._cluster.nodes(), rows)
        healths = assess_nodes(await self._store.node_events(), self._clock(), self._rule)
        jobs = await self._jobs(rows)
        closed = [
            replace(node, closed_reason=healths.get(node.machine, NodeHealth()).closed_reason) for node in present
        ]
        kept = await kept_nodes(self._store, closed)
        found = [
            NodeState(
                node.machine, node, tuple(jobs.get(node.id, ())), healths.get(node.machine, NodeHealth()),
                kept.get(node.id, ""),
            )
            for node in present
            if not node.is_control
        ]  # fmt: skip
        known = {state.name for state in found}
        gone = [NodeState(name, None, (), health) for name, health in healths.items() if name not in known]
        return sorted(
            [*found, *(state for state in gone if state.health != NodeHealth())], key=lambda state: state.name
        )

    async def cordon(self, name: str, why: str, *, actor: str) -> NodeState:
        """Close a node: nothing new is placed there, what runs there runs on. Said again, it changes the reason.

        Raises:
            NotFoundError: there is no such node, and never was as far as is remembered.
        """
        return await self._order(name, NodeEventKind.CORDONED, why, actor)

    async def uncordon(self, name: str, why: str, *, actor: str) -> NodeState:
        """Open a node, be it cordoned or quarantined, and forgive it what happened before.

        Raises:
            NotFoundError: as `cordon`.
        """
        return await self._order(name, NodeEventKind.UNCORDONED, why, actor)

    async def _order(self, name: str, kind: NodeEventKind, why: str, actor: str) -> NodeState:
        before = await self._named(name)
        now = self._clock()
        key = f"{kind}:{before.name}:{now}"
        await self._store.note_node_order(NodeEvent(before.name, kind, now, key, "", actor, why))
        _log.warning(f"a node was {kind}", node=before.name, actor=actor, why=why)
        health = assess_nodes(await self._store.node_events(), now, self._rule)[before.name]
        return replace(before, health=health)

    async def _named(self, name: str) -> NodeState:
        """By what it is called for good, else by its name or id of now."""
        states = await self.all()
        for state in states:
            if name == state.name:
                return state
        for state in states:
            if state.node is not None and name in (state.node.name, state.node.id):
                return state
        there = ", ".join(state.name for state in states) or "none"
        raise NotFoundError(f"no node {name!r}; there are: {there}")

    async def _jobs(self, rows: Sequence[Allocation]) -> dict[str, list[JobHere]]:
        names = {job.id: job.name for job in await self._store.live_jobs()}
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            if row.kind is AllocationKind.RESERVATION:
                here = found.setdefault(row.node_id, {})
                here[row.job_id] = here.get(row.job_id, 0) + row.data["ranks"]
        return {
            node: [JobHere(job, names.get(job, job), ranks) for job, ranks in here.items()]
            for node, here in found.items()
        }
