"""Projects and intents to release capacity, on SQLite and on a real PostgreSQL."""

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.store.jobs.job_writer import SUSPEND
from regroup.service.store.projects import PREEMPT
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease, ProjectRow
from regroup.service.store.store import Store


async def test_a_project_is_stored_changed_and_removed_only_when_unused(store: Store, queue):
    assert await store.queue.project("default") == ProjectRow("default"), "a project without a row has no limits"
    row = ProjectRow("default", 4, 2, 8, 0.5, {"max_ranks": 2}, {"priority": "low"})
    await store.queue.put_project(ProjectRow("default", limit=1))
    await store.queue.put_project(row)
    assert await store.queue.projects() == [row] and await store.queue.project("default") == row
    job_id = await queue()
    with pytest.raises(ConflictError, match="has 1 job that has not ended"):
        await store.queue.remove_project("default")
    await store.cancel(job_id, now=1.0, author=Author("test"))
    await store.queue.remove_project("default")
    with pytest.raises(NotFoundError):
        await store.queue.remove_project("default")


async def test_a_preemption_is_requested_once_and_ends_when_the_job_queues(store: Store, lease: Lease, queue):
    job_id = await queue()
    await store.queue.request_capacity(lease, job_id, {PREEMPT: {"why": "for another", "requested_s": 1.0}}, now=1.0)
    assert (await store.job(job_id)).intents == {}, "the job has no allocations"
    allocate = [Allocation(job_id, AllocationKind.RESERVATION, "g", "n0", {"ranks": 1})]
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await store.apply(lease, placed, now=2.0, allocate=allocate)
    for now in (3.0, 4.0):
        await store.queue.request_capacity(
            lease, job_id, {PREEMPT: {"why": "for another", "requested_s": now}}, now=now
        )
    job = await store.job(job_id)
    assert job.intents == {PREEMPT: {"why": "for another", "requested_s": 3.0}}
    assert [row.created_at for row in await store.live_allocations()] == [2.0]
    await store.apply(lease, check_transition(job_id, JobState.PLACING, JobState.QUEUED, Reason.REQUEUED), now=5.0)
    assert PREEMPT not in (await store.job(job_id)).intents


async def test_a_job_with_a_requested_suspension_never_queues(store: Store, lease: Lease, queue, walk, emitter) -> None:
    """Suspend a job that returns to the queue for another reason, in the same transaction."""
    job_id = await queue()
    await walk(job_id, emitter)
    await store.queue.suspend(job_id, "for the night", now=600.0, author=Author("someone"))
    with pytest.raises(ConflictError):
        await store.queue.suspend(await _cancelled(store, queue), "x", now=600.0, author=Author("someone"))
    preempted = emitter.state(JobState.QUEUED, Reason.PREEMPTED)
    for _ in range(2):  # A supervisor repeats an event without an acknowledgement.
        job = await store.ingest(lease, job_id, emitter.boot_id, [preempted], {})
        assert (job.state, job.reason, job.message) == (JobState.SUSPENDED, Reason.SUSPENDED, "for the night")
    assert [each.id for each in await store.queue.suspended()] == [job_id]
    assert await store.live_allocations() == [] and await store.queued_jobs() == []
    states = [each.data["to"] for each in await store.events(job_id) if each.type == "state"]
    assert states[-2:] == ["QUEUED", "SUSPENDED"]
    job = await store.queue.resume(job_id, now=700.0, author=Author("someone"))
    assert (job.state, job.queued_at, SUSPEND in job.intents) == (JobState.QUEUED, 700.0, False)


async def _cancelled(store: Store, queue) -> str:
    job_id = await queue("cancelled")
    await store.cancel(job_id, now=1.0, author=Author("test"))
    return job_id
