"""Guarantees of the store: names, order, intents, paging and notification."""

import asyncio
import itertools
import random
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, IllegalTransitionError, NotFoundError, QueueLimitError
from regroup.service.domain.states import TERMINAL_BY_REASON, TRANSITIONS, JobState, Reason, check_transition
from regroup.service.store.rows.records import Allocation, AllocationKind, Condition, JobFilter, Lease, NewJob
from regroup.service.store.store import Store
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.idempotency import RequestKey


async def test_a_name_is_in_use_until_its_job_has_ended(store: Store, queue):
    first = await queue("gpt")
    with pytest.raises(ConflictError, match="live job named 'gpt'"):
        await queue("gpt")
    await queue("gpt", project="other")
    await store.cancel(first, now=1.0, author=Author("someone"))
    second = await queue("gpt")
    assert (await store.find_job("gpt", "default")).id == second
    assert (await store.find_job(first, "default")).id == first
    with pytest.raises(NotFoundError):
        await store.find_job("gpt", "nowhere")


async def test_concurrent_submits_with_one_key_create_one_job(store: Store, make_spec):
    async def submit(number: int) -> bool:
        new = NewJob(f"job_{number}", make_spec(f"name-{number}"), "file:///s")
        try:
            await store.submissions.submit(new, now=1.0, author=Author("a"), request=RequestKey("local", "key", "hash"))
        except ConflictError:
            return False
        return True

    assert sum(await asyncio.gather(*(submit(number) for number in range(8)))) == 1
    assert len((await store.page(JobFilter(), None, 50)).jobs) == 1
    assert await store.idempotency.find("local", "key", now=2.0) is not None
    assert await store.idempotency.find("local", "key", now=2.0 + 24 * 3600) is None


async def test_a_queued_job_is_cancelled_at_once_and_a_running_one_by_intent(
    store: Store, lease: Lease, queue, walk, emitter
):
    waiting = await queue("waiting")
    job = await store.cancel(waiting, now=5.0, author=Author("someone"))
    assert (job.state, job.reason, job.finished_at) == (JobState.CANCELLED, "cancelled_by_user", 5.0)
    assert (await store.cancel(waiting, now=6.0, author=Author("someone"))).version == job.version
    running = await queue("running")
    await walk(running, emitter)
    job = await store.cancel(running, now=5.0, author=Author("someone"))
    assert (job.state, job.intents) == (JobState.RUNNING, {"cancel": True})
    assert (await store.cancel(running, now=6.0, author=Author("someone"))).version == job.version
    await store.ingest(lease, running, emitter.boot_id, [emitter.state(JobState.SUCCEEDED, Reason.COMPLETED)], {})
    with pytest.raises(ConflictError, match="already SUCCEEDED"):
        await store.cancel(running, now=7.0, author=Author("someone"))


async def test_pins_are_stored_in_the_row_and_in_the_intents(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    with pytest.raises(NotFoundError, match="no checkpoint of step 4"):
        await store.pin(job_id, 4, True, now=1.0, author=Author("someone"))
    saved = emitter.report("checkpoint", "checkpoint:4", step=4, generation=1, uri="file:///c")
    await store.ingest(lease, job_id, emitter.boot_id, [saved], {})
    assert (await store.pin(job_id, 4, True, now=1.0, author=Author("someone"))).pinned
    assert (await store.checkpoints(job_id))[0].pinned
    assert (await store.job(job_id)).intents == {"pins": [{"step": 4, "generation": 1}]}
    await store.pin(job_id, 4, False, now=1.0, author=Author("someone"))
    assert (await store.job(job_id)).intents == {"pins": []}


async def test_a_transition_from_an_outdated_state_is_refused(store: Store, lease: Lease, queue):
    job_id = await queue()
    await store.cancel(job_id, now=1.0, author=Author("someone"))
    with pytest.raises(IllegalTransitionError, match="no longer QUEUED"):
        await store.apply(lease, check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=2.0)


async def test_a_live_allocation_name_belongs_to_one_job(store: Store, lease: Lease, queue):
    first, second = await queue("a"), await queue("b")
    for job_id, refused in ((first, False), (second, True)):
        placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
        allocate = [Allocation(job_id, AllocationKind.RESERVATION, "reservation-1", "n0")]
        if refused:
            with pytest.raises(ConflictError, match="reservation-1"):
                await store.apply(lease, placed, now=1.0, allocate=allocate)
        else:
            await store.apply(lease, placed, now=1.0, allocate=allocate)
    assert [job.id for job in await store.queued_jobs()] == [second]
    assert [job.id for job in await store.live_jobs()] == [first]


async def test_conditions_have_the_time_of_their_last_change(store: Store, lease: Lease, queue):
    job_id = await queue()
    condition = Condition("Placeable", False, "no_room", "needs 4 CPUs, 2 are free")
    await store.set_conditions(lease, job_id, [condition], now=10.0)
    revision = (await store.job(job_id)).revision
    await store.set_conditions(lease, job_id, [condition], now=20.0)
    job = await store.job(job_id)
    assert (job.conditions[0].last_transition_time, job.revision, job.version) == (10.0, revision, 1)
    await store.apply(lease, check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=30.0)
    assert (await store.job(job_id)).conditions == ()


async def test_parallel_submits_do_not_pass_the_limit_of_waiting_jobs(store: Store, queue, make_spec):
    suspended = await queue("suspended", author="ana")
    await store.queue.suspend(suspended, "test", now=1.0, author=Author("ana"))

    async def submit(number: int, author: str = "ana") -> bool:
        new = NewJob(f"job_x{number}", make_spec(f"name-{number}"), "file:///s")
        key = RequestKey(author, f"key-{number}", "hash")
        try:
            await store.submissions.submit(new, now=1.0, author=Author(author), request=key, most=4)
        except QueueLimitError as error:
            assert "REGROUP_QUEUED_JOBS_PER_IDENTITY" in str(error) and "4 jobs of ana" in str(error)
            return False
        return True

    done = await asyncio.gather(*(submit(number) for number in range(9)))
    assert sum(done) == 3, "the suspended job counts, too"
    refused = done.index(False)
    assert await store.idempotency.find("ana", f"key-{refused}", now=2.0) is None
    assert await submit(20, "bob"), "each identity has its own limit"
    mine = (await store.page(JobFilter(author="ana", states=frozenset({JobState.QUEUED})), None, 50)).jobs
    await store.cancel(mine[0].id, now=2.0, author=Author("ana"))
    assert await submit(30) and not await submit(31)


async def test_pages_and_filters_list_matching_jobs(store: Store, queue):
    ids = [await queue(f"job-{number}", labels={"parity": str(number % 2)}) for number in range(7)]
    listed: list[str] = []
    after = None
    while True:
        page = await store.page(JobFilter(), after, 3)
        listed += [job.id for job in page.jobs]
        if (after := page.next_after) is None:
            break
    assert listed == ids[::-1]
    filtered = await store.page(JobFilter(labels={"parity": "1"}), None, 50)
    assert [job.id for job in filtered.jobs] == [ids[5], ids[3], ids[1]]
    await store.cancel(ids[0], now=1.0, author=Author("someone"))
    ended = await store.page(JobFilter(states=frozenset({JobState.CANCELLED})), None, 50)
    assert [job.id for job in ended.jobs] == [ids[0]]
    assert (await store.page(JobFilter(projects=frozenset({"other"})), None, 50)).jobs == ()
    assert [job.id for job in (await store.page(JobFilter(name="job-3"), None, 50)).jobs] == [ids[3]]


async def test_pages_of_an_author_contain_each_job_once(store: Store, queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("regroup.service.store.jobs.jobs._INSPECTED", 4)
    mine: list[str] = []
    for number in range(12):
        author, project = ("ana", "bob")[number % 2], ("vision", "speech")[number // 6]
        job_id = await queue("gpt", author=author, project=project, labels={"kind": "test"})
        await store.cancel(job_id, now=1.0, author=Author(author))
        mine += [job_id] if author == "ana" else []
    assert (await store.job(mine[0])).author == "ana"
    for others in ({}, {"name": "gpt"}, {"labels": {"kind": "test"}}, {"name": "gpt", "labels": {"kind": "test"}}):
        listed, after = list[str](), None
        while True:
            page = await store.page(JobFilter(author="ana", **others), after, 2)
            listed += [job.id for job in page.jobs]
            if (after := page.next_after) is None:
                break
        assert listed == mine[::-1], others
    speech = JobFilter(author="ana", projects=frozenset({"speech"}))
    assert [job.id for job in (await store.page(speech, None, 50)).jobs] == mine[:2:-1]
    assert (await store.page(JobFilter(author="eve"), None, 50)).jobs == ()


async def test_the_pages_of_an_author_are_read_from_an_index(tmp_path: Path):
    database = await Database.open(f"sqlite:///{tmp_path}/plans.db")
    for filters in ("author = 'ana'", "project = 'vision' AND author = 'ana'"):
        query = f"SELECT id FROM jobs WHERE state = 'QUEUED' AND {filters} ORDER BY id DESC LIMIT 50"
        async with database.read() as connection:
            plan = (await connection.execute(sa.text(f"EXPLAIN QUERY PLAN {query}"))).all()
        assert "author_state_id" in str(plan) and "TEMP B-TREE" not in str(plan), plan
    await database.close()


async def test_followers_are_notified_and_miss_no_change(store: Store, queue):
    job_id = await queue()
    mark = store.changes.mark()
    await store.changes.wait(job_id, mark, 0.01)
    follower = asyncio.create_task(store.changes.wait(job_id, mark, 30.0))
    await store.cancel(job_id, now=1.0, author=Author("someone"))
    await asyncio.wait_for(follower, 5.0)
    await asyncio.wait_for(store.changes.wait(job_id, mark, 30.0), 5.0)


async def test_totals_contain_every_state(store: Store, queue):
    await queue()
    totals = await store.totals.read(151.0)
    assert set(totals.jobs) == set(JobState)
    assert (totals.jobs[JobState.QUEUED], totals.jobs[JobState.FAILED], totals.queue_wait_s) == (1, 0, 50.0)


_serial = itertools.count()
_REASON_BY_TERMINAL = {state: reason for reason, state in TERMINAL_BY_REASON.items()}


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
async def test_any_walk_has_gapless_events_and_leaves_no_allocation(store: Store, lease: Lease, make_spec, seed: int):
    rng = random.Random(seed)
    serial = next(_serial)
    job_id = f"job_{serial}"
    await store.submissions.submit(
        NewJob(job_id, make_spec(f"walk-{serial}"), "file:///s"), now=0.0, author=Author("someone")
    )
    for step in range(12):
        job = await store.job(job_id)
        if job.state.is_terminal:
            break
        target = rng.choice(sorted(TRANSITIONS[job.state]))
        reason = _REASON_BY_TERMINAL.get(target, Reason.PLACED)
        allocations = (
            [Allocation(job_id, AllocationKind.RESERVATION, f"{job_id}:{step}", "n0")] if target.has_allocations else []
        )
        await store.apply(
            lease, check_transition(job_id, job.state, target, reason), now=float(step), allocate=allocations
        )
        assert target.has_allocations or await store.live_allocations(job_id) == []
        illegal = sorted(set(JobState) - TRANSITIONS[target])[0]
        with pytest.raises(IllegalTransitionError):
            check_transition(job_id, target, illegal, Reason.PLACED)
    job = await store.job(job_id)
    events = await store.events(job_id)
    assert [event.number for event in events] == list(range(1, job.version + 1))
    assert events[-1].data["to"] == job.state
