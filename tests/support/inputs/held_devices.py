"""Jobs that allocate devices from one time to another, in a store."""

from collections.abc import Mapping
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease, NewJob
from regroup.service.store.store import Store

_SPEC: Mapping[str, Any] = {
    "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10},
}


def reservation(
    job_id: str, name: str, ranks: int, accelerator: str | None = "H100", device: str = "cuda"
) -> Allocation:
    """Return a reservation of `ranks` devices. Without an accelerator, it is as earlier versions wrote it."""
    named = {} if accelerator is None else {"accelerator": accelerator}
    data = {"ranks": ranks, "device_kind": device, "cpus": ranks, "memory_bytes": 0, "name": "n0", **named}
    return Allocation(job_id, AllocationKind.RESERVATION, f"{job_id}-{name}", "n0", data)


async def submit(store: Store, job_id: str, user: str = "ana", *, now: float = 0.0, **fields: Any) -> None:
    """Submit a job as `user`."""
    spec = parse_spec({"name": job_id.replace("_", "-"), **_SPEC, **fields})
    await store.submissions.submit(NewJob(job_id, spec, f"file:///s/jobs/{job_id}"), now=now, author=Author(user))


async def allocate(store: Store, lease: Lease, job_id: str, *reservations: Allocation, now: float) -> None:
    """Allocate devices to a queued job."""
    transition = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await store.apply(lease, transition, now=now, allocate=reservations)


async def requeue(store: Store, lease: Lease, job_id: str, *, now: float) -> None:
    """Release the devices of a job; it queues again."""
    await store.apply(lease, check_transition(job_id, JobState.PLACING, JobState.QUEUED, Reason.REQUEUED), now=now)


async def end(store: Store, lease: Lease, job_id: str, *, now: float) -> None:
    """End a job that holds devices."""
    transition = check_transition(job_id, JobState.PLACING, JobState.CANCELLED, Reason.CANCELLED_BY_USER)
    await store.apply(lease, transition, now=now)
