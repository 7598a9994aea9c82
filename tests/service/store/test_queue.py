"""Projects, and the intent to make room, on SQLite and on a real PostgreSQL."""

import pytest

from regroup.service.errors import ConflictError, NotFoundError
from regroup.service.states import JobState, Reason, advance
from regroup.service.store.queue import MAKE_ROOM
from regroup.service.store.records import Allotment, Lease, ProjectRow
from regroup.service.store.store import Store


async def test_a_project_is_kept_changed_and_forgotten_only_when_nobody_uses_it(store: Store, queue):
    assert await store.queue.project("default") == ProjectRow("default"), "one that was not set up has no bounds"
    row = ProjectRow("default", 4, 2, 8, 0.5, {"largest": 2}, {"priority": "low"})
    await store.queue.put_project(ProjectRow("default", limit=1))
    await store.queue.put_project(row)
    assert await store.queue.projects() == [row] and await store.queue.project("default") == row
    job_id = await queue()
    with pytest.raises(ConflictError, match="has 1 job that has not ended"):
        await store.queue.remove_project("default")
    await store.cancel(job_id, now=1.0, actor="test")
    await store.queue.remove_project("default")
    with pytest.raises(NotFoundError):
        await store.queue.remove_project("default")


async def test_a_job_is_asked_once_to_make_room_and_is_not_when_it_queues_again(store: Store, lease: Lease, queue):
    job_id = await queue()
    await store.queue.make_room(lease, job_id, {MAKE_ROOM: {"why": "for another", "asked_s": 1.0}}, now=1.0)
    assert (await store.job(job_id)).intents == {}, "it holds nothing"
    allot = [Allotment(job_id, "grant", "g", "n0", {"ranks": 1})]
    placed = advance(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await store.apply(lease, placed, now=2.0, allot=allot)
    for now in (3.0, 4.0):
        await store.queue.make_room(lease, job_id, {MAKE_ROOM: {"why": "for another", "asked_s": now}}, now=now)
    job = await store.job(job_id)
    assert job.intents == {MAKE_ROOM: {"why": "for another", "asked_s": 3.0}}
    assert [row.created_at for row in await store.live_allotments()] == [2.0]
    await store.apply(lease, advance(job_id, JobState.PLACING, JobState.QUEUED, Reason.RELEASED), now=5.0)
    assert MAKE_ROOM not in (await store.job(job_id)).intents
