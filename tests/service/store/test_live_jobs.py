"""The controller's reads of all live jobs, on both databases."""

import asyncio
from dataclasses import replace
from typing import Any

from regroup.service.domain.states import JobState, Reason
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease
from regroup.service.store.store import Store
from tests.support.servers.statements import recorded_statements


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


async def test_only_rows_that_changed_are_read_again(
    store: Store, lease: Lease, queue: Any, walk: Any, make_emitter: Any
) -> None:
    emitters = {await queue(f"job-{number}"): make_emitter(f"boot-{number}") for number in range(5)}
    for job_id, emitter in emitters.items():
        await walk(job_id, emitter)
    first, *_, last = emitters
    before = await store.live.rows()
    assert before == await store.live_jobs(), "the oldest first"
    with recorded_statements(store) as statements:
        again = await store.live.rows()
    assert len(statements) == 1, "one statement, for the revisions"
    assert all(each is row for each, row in zip(again, before, strict=True))
    await store.ingest(lease, first, emitters[first].boot_id, [emitters[first].step(1, 2)], {})
    end = [emitters[last].state(JobState.SUCCEEDED, Reason.COMPLETED)]
    await store.ingest(lease, last, emitters[last].boot_id, end, {})
    with recorded_statements(store) as statements:
        changed = await store.live.rows()
    assert len(statements) == 2 and [row.step for row in changed] == [2, 1, 1, 1]
    assert changed[1:] == before[1:-1]


async def test_all_allocations_are_read_once_and_then_those_that_changed(
    store: Store, lease: Lease, queue: Any, walk: Any, make_emitter: Any
) -> None:
    emitters = {await queue(f"job-{number}"): make_emitter(f"boot-{number}") for number in range(4)}
    rows = dict[str, Allocation]()
    for job_id, emitter in emitters.items():
        await walk(job_id, emitter)
        rows[job_id] = Allocation(job_id, AllocationKind.RESERVATION, f"of {job_id}", "node", {"ranks": 1})
        await store.reallocate(lease, job_id, allocate=[rows[job_id]], now=1.0)
    assert await store.live.all_allocations() == list(rows.values()) == await store.live_allocations()
    first, second, *_ = emitters
    with recorded_statements(store) as statements:
        assert await store.live.all_allocations() == list(rows.values())
        assert await store.live.allocations(first) == [rows[first]] and not await store.live.allocations("another")
    assert statements == []
    added = replace(rows[first], name="another")
    await store.reallocate(lease, first, allocate=[added], now=1.0)
    end = [emitters[second].state(JobState.SUCCEEDED, Reason.COMPLETED)]
    await store.ingest(lease, second, emitters[second].boot_id, end, {})
    with recorded_statements(store) as statements:
        found = await store.live.all_allocations()
    assert len(statements) == 1, "one statement for both jobs"
    assert sorted(row.name for row in found) == sorted(row.name for row in await store.live_allocations())
    assert added in found and rows[second] not in found
    store.live.drop_all_allocations()
    again = await store.live.all_allocations()
    assert sorted(row.name for row in again) == sorted(row.name for row in found)


async def test_allocations_that_change_while_all_are_read_are_read_again(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    running = await queue("one")
    await walk(running, emitter)
    row = Allocation(running, AllocationKind.RESERVATION, "a reservation", "node", {"ranks": 1})
    reading = asyncio.create_task(store.live.all_allocations())
    await asyncio.sleep(0)
    await store.reallocate(lease, running, allocate=[row], now=1.0)
    await reading
    assert await store.live.all_allocations() == [row]
    reading = asyncio.create_task(store.live.all_allocations())
    store.live.drop_all_allocations()
    assert await reading == [row], "a new leader reads all again"
