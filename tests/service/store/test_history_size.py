"""The cost of queries, pages and metrics with a long history: 20,000 jobs that have ended, on both databases."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.states import JobState
from regroup.service.observability.job_totals import count_batch
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.store.rows.job_rows import job_row
from regroup.service.store.rows.records import JobFilter
from regroup.service.store.schema.tables import allocations, events, jobs, labels, usage
from regroup.service.store.store import Store

ENDED = 20_000
LIVE = 5
_RATIO = 15.0
"""Largest accepted growth of a time when the history grows from 100 to 20,000 jobs. Without indexes it is above 50."""


async def add_ended_jobs(store: Store, first: int, count: int) -> None:
    """Insert jobs that ended, with the events, labels and allocations of a short life."""
    async with store._database.write() as connection:
        template = dict((await connection.execute(sa.select(jobs).limit(1))).mappings().one())
        for start in range(first, first + count, 2000):
            numbers = range(start, min(start + 2000, first + count))
            rows = [
                {
                    **template, "id": f"job_{number:08}", "name": f"nightly-{number % 7}", "project": f"p{number % 3}",
                    "state": ("SUCCEEDED", "FAILED", "CANCELLED")[number % 3], "finished_at": 1000.0 + number,
                    "counted_at": 2000.0, "usage_at": 2000.0,
                }
                for number in numbers
            ]  # fmt: skip
            await connection.execute(jobs.insert(), rows)
            state = {"key": None, "type": "state", "time_s": 1.0, "generation": 0, "actor": "a"}
            history = [
                {**state, "job_id": f"job_{number:08}", "number": place, "data": {"from": None, "to": "QUEUED"}}
                for number in numbers
                for place in (1, 2)
            ]
            await connection.execute(events.insert(), history)
            marked = [{"job_id": f"job_{number:08}", "key": "team", "value": "vision"} for number in numbers]
            await connection.execute(labels.insert(), marked)
            held = {"kind": "agent", "node_id": "n", "data": {}, "created_at": 1.0, "released_at": 2.0}
            agents = [{**held, "job_id": f"job_{number:08}", "name": f"agent:{number}"} for number in numbers]
            await connection.execute(allocations.insert(), agents)
            span = {"job": "nightly", "author": "a", "accelerator": "H100", "devices": 8, "start_s": 1.0, "end_s": 2.0}
            spans = [{**span, "job_id": f"job_{number:08}", "project": f"p{number % 3}"} for number in numbers]
            await connection.execute(usage.insert(), spans)


class Queries:
    """Counts statements and rows that the store reads."""

    def __init__(self, store: Store) -> None:
        self.statements = 0
        for engine in {store._database._reader.sync_engine, store._database._writer.sync_engine}:
            event.listen(engine, "before_cursor_execute", self._count)

    def _count(self, *_: Any) -> None:
        self.statements += 1


def questions(store: Store) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what the server asks repeatedly, by name."""
    metrics = Metrics(store, QuarantinePolicy(3600.0, 600.0))

    def page(after: str | None = None, **fields: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: store.page(JobFilter(**fields), after, 50)

    return {
        "metrics": metrics.render,
        "live jobs": store.live_jobs,
        "queued jobs": store.queued_jobs,
        "the queue": store.queue.observe(job_row).read,
        "the numbers of the queue": store.queue.count_jobs,
        "the version of the state": store.queue.version,
        "the jobs of the overview": store.overview.live_jobs,
        "recent ends": lambda: store.overview.ended(4e9),  # all jobs of the history ended before
        "recent incidents": lambda: store.overview.incidents(1e9, None, 50),
        "live allocations": store.live_allocations,
        "probes": lambda: ProbeResults().newest(store),
        "a name": lambda: store.find_job("nightly-3", "p0"),
        "the first page": page(),
        "a later page": page("job_00000099"),
        "queued of a project": page(states=frozenset({JobState.QUEUED}), projects=frozenset({"p1"})),
        "failed of a name": page(states=frozenset({JobState.FAILED}), name="nightly-1"),
        "a name in a project": page(name="nightly-1", projects=frozenset({"p2"})),
        "a project without jobs": page(projects=frozenset({"absent"})),
        "some projects": page(projects=frozenset({"p0", "p2", "absent"})),
        "a label": page(labels={"team": "vision"}),
        "a label and a state": page(labels={"team": "vision"}, states=frozenset({JobState.QUEUED})),
        "the use of a project": lambda: store.usage.of_project("p1", 5000.0, now=6000.0),
        "unfolded use": lambda: store.usage.unfolded(50),
        "unfinished counts": lambda: store.totals.uncounted(5000.0, 50),
        "old events": lambda: store.retention.with_old_events(500.0, 20),
        "old jobs": lambda: store.retention.old_jobs(500.0, 20, ()),
    }


async def measure(request: Callable[[], Awaitable[Any]]) -> float:
    """Return the shortest time of several."""
    times: list[float] = []
    for _ in range(5):
        began_s = time.perf_counter()
        await request()
        times.append(time.perf_counter() - began_s)
    return min(times)


async def test_no_question_costs_more_after_20000_jobs(store: Store, queue: Callable[..., Any]) -> None:
    for number in range(LIVE):
        await queue(f"live-{number}")
    await add_ended_jobs(store, 10_000_000, 100)
    requests, counted = questions(store), Queries(store)
    before, statements = {}, {}
    for name, request in requests.items():
        before[name] = await measure(request)
        counted.statements = 0
        await request()
        statements[name] = counted.statements
    await add_ended_jobs(store, 20_000_000, ENDED)
    if not store._database.single_process:  # PostgreSQL collects statistics by itself, sooner or later
        async with store._database.write() as connection:
            await connection.execute(sa.text("ANALYZE"))
    floor_s = 0.002  # times below it are noise
    grown = dict[str, str]()
    for name, request in requests.items():
        after_s = await measure(request)
        counted.statements = 0
        await request()
        assert counted.statements <= statements[name] + 4, f"{name}: {counted.statements} statements"
        if after_s > _RATIO * max(floor_s, before[name]):
            grown[name] = f"{1e3 * before[name]:.1f} ms became {1e3 * after_s:.1f} ms"
    assert grown == {}
    with pytest.raises(NotFoundError):
        await store.find_job("never", "p0")


async def test_pages_contain_each_job_once(store: Store, queue: Callable[..., Any]) -> None:
    await queue("live")
    await add_ended_jobs(store, 10_000_000, 5000)
    for fields in (
        {"projects": frozenset({"p1"})},
        {"labels": {"team": "vision"}, "name": "nightly-2"},
        {"name": "nightly-3"},
    ):
        found, after = list[str](), None
        while True:
            page = await store.page(JobFilter(**fields), after, 40)
            found += [job.id for job in page.jobs]
            after = page.next_after
            if after is None:
                break
        assert found == sorted(set(found), reverse=True)
        remainder, modulus = (1, 3) if "projects" in fields else (int(str(fields["name"])[-1]), 7)
        assert found == [f"job_{n:08}" for n in range(10_004_999, 9_999_999, -1) if n % modulus == remainder]


async def test_a_filter_without_matches_ends(store: Store, queue: Callable[..., Any]) -> None:
    await queue("live")
    await add_ended_jobs(store, 10_000_000, 4500)
    only = JobFilter(labels={"team": "vision"}, states=frozenset({JobState.RUNNING}))
    pages, after = 0, None
    while True:
        page = await store.page(only, after, 50)
        assert page.jobs == ()
        pages, after = pages + 1, page.next_after
        if after is None:
            break
    assert pages == 3, "each page reads 2,000 jobs with the label"


async def test_jobs_that_ended_are_counted_in_batches(store: Store, queue: Callable[..., Any]) -> None:
    await queue("live")
    await add_ended_jobs(store, 10_000_000, 120)
    async with store._database.write() as connection:
        await connection.execute(sa.text("UPDATE jobs SET counted_at = NULL"))
    before = asdict(await store.totals.read(5000.0))["jobs"]
    batches = 1
    while await count_batch(store, 20_000_000.0):
        batches += 1
    totals = await store.totals.read(5000.0)
    assert (batches, len(totals.uncounted)) == (3, 1)
    assert totals.jobs == before and totals.jobs[JobState.FAILED] == 40
