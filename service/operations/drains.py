"""Nodes that people want empty: what is asked for, and whether it has come about."""

from dataclasses import dataclass

from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import AllocationKind, DrainRow
from regroup.service.store.store import Store


@dataclass(frozen=True)
class Drained:
    """A node that is about to leave, and who is still there."""

    node_id: str
    node: str
    by: str
    """`request`, or `ray`: the cluster itself has said so."""
    reason: str
    requested_at: float | None
    deadline_at: float | None
    """Unix seconds; it may be gone from then on."""
    jobs: tuple[str, ...]
    """Ids of jobs that still hold a part of it."""


async def drain(
    store: Store, cluster: Cluster, reference: str, *, deadline_s: float, reason: str, now: float, actor: str
) -> Drained:
    """Have a node empty within `deadline_s`. Asked again, the deadline and the reason are the new ones.

    Raises:
        NotFoundError: the cluster has no such node.
        ConflictError: several are called so, or it takes no ranks at all.
        UnavailableError: cluster or database does not answer.
    """
    node = await _find(cluster, reference)
    if node.is_control:
        raise ConflictError(f"node {node.name} is a control node: it holds no ranks that could leave")
    row = DrainRow(node.id, node.name, reason, actor, now, now + deadline_s)
    return await _shown(store, node, await store.drain(row))


async def look(store: Store, cluster: Cluster, reference: str) -> Drained:
    """How far a drain is.

    Raises:
        NotFoundError: the cluster has no such node, or it is not drained.
    """
    node = await _find(cluster, reference)
    row = await _row(store, node)
    if row is None and not node.is_draining:
        raise NotFoundError(f"node {node.name} is not drained")
    return await _shown(store, node, row)


async def undrain(store: Store, cluster: Cluster, reference: str) -> None:
    """Let a node be used again; what has left it does not come back for that.

    Raises:
        NotFoundError: the cluster has no such node, or nobody has drained it.
        ConflictError: Ray itself drains it, too.
    """
    node = await _find(cluster, reference)
    if not await store.undrain([node.id]) and not node.is_draining:
        raise NotFoundError(f"node {node.name} is not drained")
    if node.is_draining:
        raise ConflictError(f"Ray itself drains node {node.name}, and does not take that back: the node will end")


async def _find(cluster: Cluster, reference: str) -> Node:
    nodes = await cluster.nodes()
    found = [node for node in nodes if node.id == reference] or [node for node in nodes if node.name == reference]
    if not found:
        names = ", ".join(sorted(node.name for node in nodes if not node.is_control)) or "none"
        raise NotFoundError(f"the cluster has no node {reference!r}; nodes that take ranks: {names}")
    if len(found) > 1:
        ids = ", ".join(sorted(node.id for node in found))
        raise ConflictError(f"{len(found)} nodes are called {reference!r}; name one by its id: {ids}")
    return found[0]


async def _row(store: Store, node: Node) -> DrainRow | None:
    return next((row for row in await store.drains() if row.node_id == node.id), None)


async def _shown(store: Store, node: Node, row: DrainRow | None) -> Drained:
    held = await store.live_allocations()
    jobs = tuple(
        sorted({each.job_id for each in held if each.kind is AllocationKind.RESERVATION and each.node_id == node.id})
    )
    if row is None:
        return Drained(node.id, node.name, "ray", "", None, node.drain_deadline_s, jobs)
    return Drained(node.id, node.name, "request", row.reason, row.requested_at, row.deadline_at, jobs)
