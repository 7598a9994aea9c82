"""The controller's reads of all live jobs, on both databases."""

import asyncio
from dataclasses import replace
from typing import Any

from regroup.service.domain.states import JobState, Reason
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease
from regroup.service.store.store import Store


async def test_only_jobs_that_may_have_allocations_are_read(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    running = await queue("one")
    await queue("two")
    await walk(running, emitter)
    assert await store.live.states() == {running: JobState.RUNNING}
    before = (await store.live.versions())[running]
    await store.ingest(lease, running, emitter.boot_id, [emitter.step(1, 1)], {})
    found = await store.live.versions()
    after = found[running]
    assert found.keys() == {running} and after.revision > before.revision and after.version == before.version
    await store.ingest(lease, running, emitter.boot_id, [emitter.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    assert await store.live.states() == await store.live.versions() == {}


async def test_allocations_are_read_once_until_they_change(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    running = await queue("one")
    await walk(running, emitter)
    row = Allocation(running, AllocationKind.RESERVATION, "a reservation", "node", {"ranks": 1})
    await store.reallocate(lease, running, allocate=[row], now=1.0)
    first = await store.live.allocations(running)
    assert first == await store.live_allocations(running) == [row]
    await store.ingest(lease, running, emitter.boot_id, [emitter.step(1, 1)], {})
    assert await store.live.allocations(running) is first, "steps do not change them"
    added = replace(row, name="another reservation")
    await store.reallocate(lease, running, allocate=[added], now=1.0)
    assert await store.live.allocations(running) == [row, added]
    await store.ingest(lease, running, emitter.boot_id, [emitter.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    assert list(await store.live.allocations(running)) == []


async def test_a_read_that_was_overtaken_by_a_change_is_not_kept(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    running = await queue("one")
    await walk(running, emitter)
    reading = asyncio.create_task(store.live.allocations(running))
    await asyncio.sleep(0)
    store.live.drop_allocations(running)
    before = await reading
    assert await store.live.allocations(running) is not before
    kept = await store.live.allocations(running)
    store.live.drop_all_allocations()
    assert await store.live.allocations(running) is not kept, "a new leader reads all again"
