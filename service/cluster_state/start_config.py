"""The start configuration of a job's supervisor, from the job's row, its allocations and the settings."""

from collections.abc import Iterable, Mapping, Sequence

from regroup.service.cluster_state.allocations import JobAllocations, members_of, node_assignment
from regroup.service.policy.recovery.restore_source import SavedCheckpoint
from regroup.service.policy.tracker_links import page_url
from regroup.service.ports.assignment import Drain, NodeAssignment, Resize
from regroup.service.ports.start_config import StartConfig, with_devices
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Allocation, JobRow


def start_config(
    settings: Settings, job: JobRow, rows: Iterable[Allocation], devices: Mapping[str, Sequence[int]]
) -> StartConfig:
    """Return the start configuration of a job's supervisor.

    Args:
        rows: live allocations of the job.
        devices: reservation → indexes of its devices.
    """
    allocations = JobAllocations(list(rows))
    assignment = allocations.assignment
    change = assignment.change
    first, _, last = (settings.port_range or "").partition("-")
    # A job with a user of its own makes its datasets itself, so it shares them with no other job.
    shared = job.storage_uri if settings.rank_users else job.storage_uri.removesuffix(f"/jobs/{job.id}")
    return StartConfig(
        job_id=job.id,
        spec=job.parsed_spec(),
        nodes=with_devices(_start_nodes(allocations, devices)),
        layout=change.layout_before if isinstance(change, Resize) else assignment.layout,
        storage_uri=job.storage_uri,
        datasets_uri=f"{shared}/datasets",
        blob_uri=settings.blob_uri,
        code_limit_bytes=settings.upload_limit_bytes,
        allow_faults=settings.allow_faults,
        attempt=assignment.attempt,
        resume=SavedCheckpoint(job.resume_uri, 0, _step_of(job.resume_uri)) if job.resume_uri else None,
        ifname=settings.ifname or "",
        port_first=int(first or 0),
        port_last=int(last or 0),
        preflight=settings.preflight,
        rank_users=settings.rank_users,
        page_url=page_url(settings.public_url, job.id),
    )


def _start_nodes(allocations: JobAllocations, devices: Mapping[str, Sequence[int]]) -> Sequence[NodeAssignment]:
    """Return the nodes of the job's ranks. Nodes that it moves to are sent to the supervisor with the next sync."""
    assignment = allocations.assignment
    change = assignment.change
    if nodes := assignment.nodes if change is None else change.nodes_before:
        return nodes
    added = change.added if isinstance(change, Drain) else ()
    members = members_of(row for row in allocations.rank_reservations if row.node_id not in added)
    return [node_assignment(member, devices) for member in members]


def _step_of(checkpoint_uri: str) -> int:
    """Return the committed steps of a checkpoint, from its directory `step-S.gen-G`."""
    folder = checkpoint_uri.rstrip("/").rpartition("/")[2]
    return int(folder.removeprefix("step-").partition(".")[0])
