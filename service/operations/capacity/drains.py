"""Drains of nodes: requests, and their progress."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.operations.capacity.drain_moves import DrainPredictor, JobMove
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import AllocationKind, DrainRow
from regroup.service.store.store import Store


@dataclass(frozen=True)
class NodeDrain:
    """A drain of a node, and the jobs that still use the node."""

    node_id: str
    node: str
    by: str
    """`request` for a request of a user, `ray` for a drain by the Ray cluster itself."""
    reason: str
    requested_at: float | None
    deadline_at: float | None
    """Unix seconds after which the node may disappear."""
    jobs: tuple[str, ...]
    """Ids of the jobs that still have devices of the node."""
    etag: str | None = None
    """Entity tag of the request; None if Ray itself drains the node."""
    moves: tuple[JobMove, ...] = ()
    """Predicted moves of the jobs on the node, and on other nodes that leave with it."""


async def drain_node(
    store: Store,
    cluster: Cluster,
    predictor: DrainPredictor,
    reference: str,
    *,
    also: Sequence[str] = (),
    deadline_s: float,
    reason: str,
    now: float,
    author: Author,
) -> NodeDrain:
    """Drain a node within `deadline_s` seconds. A repeated request replaces the deadline and the reason.

    Args:
        also: names or ids of other nodes that leave at the same time. They only change the predicted moves.

    Raises:
        NotFoundError: the cluster has no such node.
        ConflictError: the name is ambiguous, or the node is a control node.
        UnavailableError: the cluster or the database does not answer.
    """
    nodes = await cluster.nodes()
    node, others = _node_named(nodes, reference), [_node_named(nodes, each) for each in also]
    if node.is_control:
        raise ConflictError(f"cannot drain node {node.name}: it is a control node and runs no ranks")
    row = DrainRow(node.id, node.name, reason, author.name, now, now + deadline_s)
    drain = await _to_drain(store, node, await store.nodes.request_drain(row, now=now, author=author))
    moves = await predictor.predict({node.id, *(each.id for each in others)}, now)
    return replace(drain, moves=tuple(moves))


async def get_drain(store: Store, cluster: Cluster, predictor: DrainPredictor, reference: str, now: float) -> NodeDrain:
    """Return the progress of a drain.

    Raises:
        NotFoundError: the cluster has no such node, or the node is not drained.
    """
    node = await _find_node(cluster, reference)
    row = await _find_row(store, node)
    if row is None and not node.is_draining:
        raise NotFoundError(f"node {node.name} is not being drained")
    drain = await _to_drain(store, node, row)
    return replace(drain, moves=tuple(await predictor.predict({node.id}, now))) if drain.jobs else drain


async def undrain_node(store: Store, cluster: Cluster, reference: str, *, now: float, author: Author) -> None:
    """Make a node available again. Ranks that left the node do not move back.

    Raises:
        NotFoundError: the cluster has no such node, or the node is not drained.
        ConflictError: Ray itself drains the node.
    """
    node = await _find_node(cluster, reference)
    if not await store.nodes.delete_drains([node.id], now=now, author=author) and not node.is_draining:
        raise NotFoundError(f"node {node.name} is not being drained")
    if node.is_draining:
        raise ConflictError(f"cannot undrain node {node.name}: Ray itself drains it, and the node will terminate")


async def _find_node(cluster: Cluster, reference: str) -> Node:
    return _node_named(await cluster.nodes(), reference)


def _node_named(nodes: Sequence[Node], reference: str) -> Node:
    found = [node for node in nodes if node.id == reference] or [node for node in nodes if node.name == reference]
    if not found:
        names = ", ".join(sorted(node.name for node in nodes if not node.is_control)) or "none"
        raise NotFoundError(f"no node {reference!r} in the cluster; training nodes: {names}")
    if len(found) > 1:
        ids = ", ".join(sorted(node.id for node in found))
        raise ConflictError(f"{len(found)} nodes have the name {reference!r}; use an id instead: {ids}")
    return found[0]


async def _find_row(store: Store, node: Node) -> DrainRow | None:
    return next((row for row in await store.nodes.drains() if row.node_id == node.id), None)


async def _to_drain(store: Store, node: Node, row: DrainRow | None) -> NodeDrain:
    allocations = await store.live_allocations()
    jobs = tuple(
        sorted(
            {each.job_id for each in allocations if each.kind is AllocationKind.RESERVATION and each.node_id == node.id}
        )
    )
    if row is None:
        return NodeDrain(node.id, node.name, "ray", "", None, node.drain_deadline_s, jobs)
    return NodeDrain(node.id, node.name, "request", row.reason, row.requested_at, row.deadline_at, jobs, row.etag)
