"""Reads of the overview on both databases: live jobs, ended jobs, incidents, failing hooks and use of devices."""

from typing import Any

import sqlalchemy as sa

from regroup.service.domain.author import Author
from regroup.service.domain.hooks import DeliveryState, HookEvent
from regroup.service.domain.states import JobState, Reason
from regroup.service.operations.usage import fold_batch
from regroup.service.policy.hooks.retries import Verdict, attempt_of_status
from regroup.service.store.overview import FailingHook, WindowUse
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.tables import jobs
from regroup.service.store.store import Store
from tests.support.inputs.held_devices import allocate, end, requeue, reservation, submit

ANA = Author("ana")
VISION = frozenset({"vision"})


async def test_live_and_ended_jobs_are_apart(store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any) -> None:
    running, waiting = await queue("one", project="vision"), await queue("two", project="speech")
    await walk(running, emitter)
    live = await store.overview.live_jobs()
    assert [(each.id, each.name, each.project, each.state) for each in live] == [
        (running, "one", "vision", JobState.RUNNING), (waiting, "two", "speech", JobState.QUEUED),
    ]  # fmt: skip
    assert await store.overview.ended(0.0) == {}
    await store.ingest(lease, running, emitter.boot_id, [emitter.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    await store.cancel(waiting, now=4500.0, author=ANA)
    assert await store.overview.live_jobs() == ()
    both = {("vision", JobState.SUCCEEDED): 1, ("speech", JobState.CANCELLED): 1}
    assert await store.overview.ended(0.0) == await store.overview.ended(4500.0 - 1e4, 1e9) == both
    assert await store.overview.ended(1e9) == await store.overview.ended(0.0, 1.0) == {}


async def test_incidents_are_counted_and_numbered(store: Store, lease: Lease, queue: Any, walk: Any, make_emitter: Any):
    one, two = await queue("one", project="vision"), await queue("two", project="speech")
    for job_id, names in ((one, ("i1", "i2")), (two, ("i3",))):
        emitter = make_emitter(f"boot-{job_id}")
        await walk(job_id, emitter)
        reports = [
            emitter.report("incident", f"incident:{name}:1", id=name, cause=f"cause {name}", times={}) for name in names
        ]
        await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    found, count = await store.overview.incidents(0.0, None, 10)
    assert count == 3
    assert {(each.job_name, each.number, each.cause) for each in found} == {
        ("one", 1, "cause i1"), ("one", 2, "cause i2"), ("two", 1, "cause i3"),
    }  # fmt: skip
    times = [each.time_s for each in found]
    assert times == sorted(times, reverse=True)
    (newest,), count = await store.overview.incidents(0.0, VISION, 1)
    assert (newest.job_id, newest.number, newest.data["id"], count) == (one, 2, "i2", 2)
    assert await store.overview.incidents(times[0] + 1, None, 10) == ([], 0)


async def test_a_hook_fails_while_its_newest_attempt_failed(store: Store, lease: Lease, hook: Any) -> None:
    await hook()

    async def attempt(number: int, status: int, verdict: Verdict) -> None:
        event = HookEvent(f"m{number}", "test", "default", 1.0, "ana", {})
        await store.hooks.deliveries.request("default", "hook_1", event, now=1000.0, author=ANA)
        (claimed,) = await store.hooks.deliveries.claim(lease, now=1000.0, busy={}, per_hook=4, limit=16)
        await store.hooks.deliveries.finish(claimed, attempt_of_status(status), verdict, 0.25, now=1000.0)

    assert await store.overview.failing_hooks(None, 10) == []
    await attempt(1, 503, Verdict(DeliveryState.PENDING, 1e6))
    failing = [FailingHook("hook_1", "ci", "default", "the receiver answered 503")]
    assert await store.overview.failing_hooks(None, 10) == failing
    assert await store.overview.failing_hooks(VISION, 10) == []
    await attempt(2, 204, Verdict(DeliveryState.DELIVERED))
    assert await store.overview.failing_hooks(None, 10) == []


async def test_use_of_windows_has_the_share_that_was_productive(store: Store, lease: Lease) -> None:
    # The ended job has 4 devices from 100 to 200 and 8 from 300 to 400; the live job has 1 since 600.
    await submit(store, "j_one", "ana", project="vision")
    await allocate(store, lease, "j_one", reservation("j_one", "a", 4), now=100.0)
    await requeue(store, lease, "j_one", now=200.0)
    await allocate(store, lease, "j_one", reservation("j_one", "c", 8), now=300.0)
    await end(store, lease, "j_one", now=400.0)
    await submit(store, "j_two", "bob", project="speech")
    await allocate(store, lease, "j_two", reservation("j_two", "a", 1), now=600.0)
    async with store._database.write() as connection:
        await connection.execute(sa.update(jobs).where(jobs.c.id == "j_one").values(goodput=0.5))
    expected = {
        "vision": [WindowUse(200.0, 200.0, 100.0), WindowUse(1000.0, 1000.0, 500.0)],
        "speech": [WindowUse(), WindowUse(100.0)],
    }
    windows = [(0.0, 150.0), (150.0, 700.0)]
    assert await store.overview.use(windows) == expected
    assert not await fold_batch(store, 700.0)
    assert await store.overview.use(windows) == expected
