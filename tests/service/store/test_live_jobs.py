"""The controller's reads of all live jobs, on both databases."""

from typing import Any

from regroup.service.domain.states import JobState, Reason
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store


async def test_only_jobs_that_may_have_allocations_are_read(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    running = await queue("one")
    await queue("two")
    await walk(running, emitter)
    assert await store.live.states() == {running: JobState.RUNNING}
    before = await store.live.revisions()
    await store.ingest(lease, running, emitter.boot_id, [emitter.step(1, 1)], {})
    after = await store.live.revisions()
    assert before.keys() == after.keys() == {running} and after[running] > before[running]
    await store.ingest(lease, running, emitter.boot_id, [emitter.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    assert await store.live.states() == await store.live.revisions() == {}
