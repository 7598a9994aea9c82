"""The shared spares of projects (`spares` of a project): idle nodes reserved for all jobs of a project."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.scheduling.shared_spares import SHARED_SPARE, NodeShare, SparePool, assign_shared_spares
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow, ProjectRow
from regroup.service.store.store import Store


async def shared_spare_nodes(store: Store, nodes: Sequence[Node]) -> dict[str, str]:
    """Return the shared spares: node id → project.

    Raises:
        UnavailableError: the database does not answer.
    """
    projects = [row for row in await store.queue.projects() if row.spares]
    if not projects:
        return {}
    jobs, rows = {job.id: job for job in await store.live_jobs()}, await store.live_allocations()
    return assign_shared_spares(
        [_spare_pool(project, jobs, rows) for project in projects], without_allocated(nodes, rows)
    )


async def close_shared_spares(store: Store, nodes: Sequence[Node], project: str | None = None) -> list[Node]:
    """Return the nodes. Shared spares of projects other than `project` are closed."""
    found = await shared_spare_nodes(store, nodes)
    closed = {node_id: SHARED_SPARE for node_id, owner in found.items() if owner != project}
    return [replace(node, closed_reason=closed[node.id]) if node.id in closed else node for node in nodes]


def _spare_pool(project: ProjectRow, jobs: Mapping[str, JobRow], rows: Sequence[Allocation]) -> SparePool:
    names = {job.id for job in jobs.values() if job.project == project.name and not job.damaged}
    mine = [row for row in rows if row.kind is AllocationKind.RESERVATION and row.job_id in names]
    mine = [row for row in mine if "ranks" in row.data]  # a damaged row has no data
    parts: dict[tuple[str, str], list[Allocation]] = {}
    for row in mine:
        if row.is_for_ranks:
            parts.setdefault((row.job_id, row.node_id), []).append(row)
    held = sum(int(row.data["ranks"]) for row in mine)
    left = None if project.limit is None else max(0, project.limit - held)
    return SparePool(
        project.name,
        project.spares,
        [_part(jobs[job_id], reservations) for (job_id, _), reservations in parts.items()],
        left,
    )


def _part(job: JobRow, reservations: Sequence[Allocation]) -> NodeShare:
    sums = Counter[str]()
    for row in reservations:
        sums.update(
            ranks=row.data["ranks"], cpus=row.data["cpus"], memory=row.data["memory_bytes"],
            gpus=row.data["ranks"] if row.data["device_kind"] == "cuda" else 0,
        )  # fmt: skip
    resources, environment = job.spec.get("resources") or {}, job.spec.get("environment") or {}
    kind = NodeKind(resources.get("accelerator") or "", environment.get("image") or "", resources.get("cluster") or "")
    return NodeShare(sums["ranks"], (sums["cpus"], sums["gpus"], sums["memory"]), kind)
