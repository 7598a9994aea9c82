"""Followers of jobs: one reader per server, whatever the number of followers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.operations.log_followers import LogFollowers, LogSource
from regroup.service.operations.logs import LogPosition
from regroup.service.operations.streams import followers
from regroup.service.operations.streams.follower_queue import EndOfQueue, FollowerDroppedError, FollowerQueue
from regroup.service.operations.streams.followers import Followers
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.servers.stores import open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


@pytest.fixture
async def lease(store: Store) -> Lease:
    acquired = await store.acquire_lease("controller", 30.0)
    assert acquired is not None
    return acquired


async def submit(store: Store, name: str = "gpt") -> str:
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": name, "workload": workload, "training": training})
    return (await store.submissions.submit(NewJob(f"job_{name}", spec, "file:///s"), now=1.0, author=Author("user"))).id


class Statements:
    """Counts the statements that the database executes."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        for engine in {store._database._reader.sync_engine, store._database._writer.sync_engine}:
            event.listen(engine, "before_cursor_execute", self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1


async def read(items: AsyncGenerator[Any], until: int, ready: asyncio.Event | None = None) -> list[int]:
    """Read entries until number `until`; return their numbers."""
    numbers = list[int]()
    async with aclosing(items):
        async for item in items:
            if item is None:
                if ready is not None:
                    ready.set()
                continue
            numbers.append(item.row.number)
            if numbers[-1] >= until:
                break
    return numbers


async def statements_for(store: Store, followers_count: int, job_id: str) -> int:
    """Return the number of statements in which this number of followers gets ten events, one after the other."""
    shared, counted = Followers(store, ServerTasks()), Statements(store)
    job = await store.job(job_id)
    ready = [asyncio.Event() for _ in range(followers_count)]
    last = job.version + 10
    reading = [asyncio.create_task(read(shared.follow_events(job, job.version), last, each)) for each in ready]
    await asyncio.gather(*(each.wait() for each in ready))
    counted.count = 0
    for number in range(10):
        await store.note(job_id, "note", {"number": number}, now=1.0, author=Author("user"))
    assert await asyncio.gather(*reading) == [list(range(job.version + 1, last + 1))] * followers_count
    return counted.count


async def test_200_followers_need_as_many_statements_as_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "IDLE_S", 0.05)
    job_id = await submit(store)
    one, many = await statements_for(store, 1, job_id), await statements_for(store, 200, job_id)
    assert many <= one + 20, f"{one} statements for one follower, {many} for 200"


async def test_followers_of_many_jobs_are_served_by_one_query_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "IDLE_S", 0.05)
    monkeypatch.setattr(followers, "_POLL_S", 0.05)
    jobs = [await store.job(await submit(store, f"job-{number}")) for number in range(50)]
    shared, ready = Followers(store, ServerTasks()), [asyncio.Event() for _ in jobs]
    reading = [
        asyncio.create_task(read(shared.follow_events(job, job.version), job.version + 1, each))
        for job, each in zip(jobs, ready, strict=True)
    ]
    await asyncio.gather(*(each.wait() for each in ready))
    counted = Statements(store)
    polls, positions = 0, store.positions

    async def count_polls(job_ids: Any) -> Any:
        nonlocal polls
        polls += 1
        return await positions(job_ids)

    monkeypatch.setattr(store, "positions", count_polls)
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.02)
            if polls >= 10:
                break
    assert counted.count <= 2 * polls + 4, "a poll is one query, and its BEGIN, whatever the number of jobs"
    for job in jobs:
        await store.note(job.id, "note", {}, now=1.0, author=Author("user"))
    await asyncio.gather(*reading)


async def test_a_follower_gets_the_past_and_everything_later_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_PAGE", 3)
    job_id = await submit(store)
    for number in range(10):
        await store.note(job_id, "note", {"number": number}, now=1.0, author=Author("user"))
    shared, job = Followers(store, ServerTasks()), await store.job(job_id)
    reading = [asyncio.create_task(read(shared.follow_events(job, after), 31)) for after in (0, 4, 11)]
    for number in range(20):
        await store.note(job_id, "note", {"number": number}, now=1.0, author=Author("user"))
        await asyncio.sleep(0)
    assert await asyncio.gather(*reading) == [list(range(after + 1, 32)) for after in (0, 4, 11)]


async def test_a_stream_ends_with_its_job_and_the_reader_with_its_last_follower(store: Store, lease: Lease) -> None:
    job_id = await submit(store)
    shared, job = Followers(store, ServerTasks()), await store.job(job_id)
    events, steps = [asyncio.create_task(collect(each)) for each in (
        shared.follow_events(job, 0), shared.follow_steps(job, 0)
    )]  # fmt: skip
    await asyncio.sleep(0.05)
    assert shared._reading is not None
    cancel = check_transition(job_id, JobState.QUEUED, JobState.CANCELLED, Reason.CANCELLED_BY_USER)
    await store.apply(lease, cancel, now=2.0)
    assert (await asyncio.wait_for(events, 10), await asyncio.wait_for(steps, 10)) == ([1, 2], [])
    assert shared._reading is None
    assert await collect(shared.follow_events(await store.job(job_id), 1)) == [2], "also after its end"


async def collect(items: AsyncGenerator[Any]) -> list[int]:
    return [item.row.number async for item in items if item is not None]


async def test_a_slow_follower_is_dropped_and_continues_after_its_last_entry(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "QUEUE_LIMIT", 5)
    monkeypatch.setattr(followers, "IDLE_S", 0.05)
    job_id = await submit(store)
    shared, job = Followers(store, ServerTasks()), await store.job(job_id)
    slow = shared.follow_events(job, job.version)
    assert await anext(slow) is None, "it has read the past"
    ready = asyncio.Event()
    fast = asyncio.create_task(read(shared.follow_events(job, job.version), 31, ready))
    await ready.wait()
    for number in range(30):
        await store.note(job_id, "note", {"number": number}, now=1.0, author=Author("user"))
        await asyncio.sleep(0.06 if number % 4 == 3 else 0)
    assert await asyncio.wait_for(fast, 10) == list(range(2, 32)), "others are not affected"
    got = list[int]()
    with pytest.raises(FollowerDroppedError, match="continue with the id of the last entry"):
        async for item in slow:
            if item is not None:
                got.append(item.row.number)
    assert await read(shared.follow_events(job, (got or [1])[-1]), 31) == list(range((got or [1])[-1] + 1, 32))


async def test_an_entry_is_written_once_for_all_followers(store: Store) -> None:
    written = list[int]()

    def write(row: Any) -> bytes:
        written.append(row.number)
        return b"frame"

    entry = followers.Entry((await store.events(await submit(store)))[0])
    assert [entry.render(write), entry.render(write)] == [b"frame", b"frame"] and written == [1]


async def test_a_queue_that_overflows_while_the_past_is_read_drops_no_follower() -> None:
    queue = FollowerQueue[int](3)
    queue.put([1, 2, 3])
    queue.put([4])
    assert queue.has_missed
    queue.is_current = True
    queue.end()
    assert await queue.read(0) == 4
    with pytest.raises(EndOfQueue):
        await queue.read(0)


async def test_100_followers_of_a_rank_read_its_output_as_often_as_one(
    store: Store, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.operations.log_followers._POLL_S", 0.02)
    monkeypatch.setattr("regroup.service.operations.log_followers.IDLE_S", 0.05)
    job_id = await submit(store)
    for source, target, reason in (
        (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
        (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
    ):
        await store.apply(lease, check_transition(job_id, source, target, reason), now=1.0)
    cluster = FakeCluster()
    output, key = "", (job_id, 1, 0, "stdout")
    calls = 0
    read_log = cluster.read_log

    async def count(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await read_log(*args)

    monkeypatch.setattr(cluster, "read_log", count)

    async def follow(shared: LogFollowers, ready: asyncio.Event, size: int) -> str:
        text = ""
        async with aclosing(shared.follow(LogSource(job_id, 0, "stdout", None), LogPosition(1, 0))) as pieces:
            async for piece in pieces:
                if piece is None:
                    ready.set()
                else:
                    text += piece.text
                    if len(text) >= size:
                        break
        return text

    async def measure(count: int) -> int:
        nonlocal calls, output
        output = ""
        cluster.logs.pop(key, None)
        shared, ready = LogFollowers(store, cluster, ServerTasks()), [asyncio.Event() for _ in range(count)]
        reading = [asyncio.create_task(follow(shared, each, 500)) for each in ready]
        await asyncio.gather(*(each.wait() for each in ready))
        calls = 0
        for number in range(50):
            output += f"line {number:04}\n"
            cluster.logs[key] = output
            await asyncio.sleep(0.005)
        assert await asyncio.wait_for(asyncio.gather(*reading), 20) == [output] * count
        return calls

    one, many = await measure(1), await measure(100)
    assert many <= 3 * one + 20, f"{one} reads for one follower, {many} for 100"


def test_followers_are_tracked_for_liveness(store: Store) -> None:
    tasks = ServerTasks()
    follow: Callable[[Store, ServerTasks], Followers] = Followers
    follow(store, tasks)
    assert tasks.failures() == {"reader for followers": 0}
