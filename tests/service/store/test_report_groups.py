"""Reports of supervisors in groups: many jobs cost the statements of one, and no job affects another."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import NotFoundError, PreconditionError
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.store import Store
from tests.support.servers.statements import recorded_statements

Jobs = dict[str, Any]
"""Job id → its emitter."""


@pytest.fixture
def running(queue: Any, walk: Any, make_emitter: Any) -> Callable[[int], Awaitable[Jobs]]:
    """Return jobs in generation 1, at step 1."""

    async def create(count: int) -> Jobs:
        found = Jobs()
        for number in range(count):
            job_id = await queue(f"job-{number}")
            found[job_id] = make_emitter(f"boot-{number}")
            await walk(job_id, found[job_id])
        return found

    return create


def progress(emitter: Any, steps: range) -> list[Any]:
    """Return what a job reports while it trains."""
    found = [emitter.step(1, step, extra={"mfu": 0.4}) for step in steps]
    return [*found, emitter.report("mirror", f"mirror:{steps.stop}", step=steps.stop - 1)]


async def ingest_all(
    store: Store, lease: Lease, reports: dict[str, tuple[str, list[Any]]], prompt: str
) -> list[JobRow]:
    """Ingest reports that wait for others, until one of another job comes that does not wait."""
    calls = (store.ingest(lease, job_id, boot, events, {}, 60.0) for job_id, (boot, events) in reports.items())
    held = asyncio.gather(*calls)
    await asyncio.sleep(0)
    await store.ingest(lease, prompt, (await store.job(prompt)).supervisor_boot_id, [], {})
    return await held


async def test_many_jobs_cost_the_statements_of_one(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs, counts, steps = await running(34), list[int](), range(0)
    prompt, _ = jobs.popitem()
    for number, size in enumerate((1, 33)):
        steps = range(2 + 10 * number, 12 + 10 * number)
        reports = {job_id: (emitter.boot_id, progress(emitter, steps)) for job_id, emitter in list(jobs.items())[:size]}
        with recorded_statements(store) as statements:
            rows = await ingest_all(store, lease, reports, prompt)
        assert [row.step for row in rows] == [steps.stop - 1] * size
        counts.append(len(statements))
    assert counts[1] <= counts[0] + 1, "mirrored sets of a new job are inserted, and those of another one are updated"
    for job_id in jobs:
        assert [row.step for row in await store.step_rows(job_id)][-10:] == list(steps)


async def test_a_row_is_read_again_only_after_others_have_changed_it(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs = await running(2)
    (first, emitter), (second, other) = jobs.items()
    held = [await store.ingest(lease, job_id, jobs[job_id].boot_id, [], {}) for job_id in jobs]

    async def read(number: int) -> tuple[list[JobRow], bool]:
        """Report a step of both jobs; return their rows, and whether a stored spec was read."""
        with recorded_statements(store) as statements:
            found = await asyncio.gather(
                store.ingest(lease, first, emitter.boot_id, [emitter.step(1, number)], {}),
                store.ingest(lease, second, other.boot_id, [other.step(1, number)], {}),
            )
        return list(found), any("jobs.spec" in each for each in statements)

    held, is_read = await read(2)
    assert not is_read and [row.step for row in held] == [2, 2]
    await store.intend(second, lambda _: {"release": True}, now=1.0, author=Author("ana"), action="release")
    held, is_read = await read(3)
    assert is_read and [row.intents for row in held] == [{}, {"release": True}]
    assert held == [await store.job(first), await store.job(second)]
    held.clear()
    gc.collect()
    assert (await read(4))[1], "the rows were not kept"


async def test_a_group_stores_what_single_reports_store(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs = await running(7)
    prompt, _ = jobs.popitem()
    reports = dict[str, tuple[str, list[Any]]]()
    for number, (job_id, emitter) in enumerate(jobs.items()):
        events = [
            *progress(emitter, range(2, 6)),
            emitter.report("note", "note:1", kind="x"),
            emitter.report("report", "report:1", step=4, metrics={"loss": 0.5, "accuracy": 0.9}),
            *progress(emitter, range(6, 9)),
        ]
        if number % 2:
            events.append(emitter.state(JobState.SUCCEEDED, Reason.COMPLETED))
        reports[job_id] = emitter.boot_id, events
    alone, *others = reports
    single = await store.ingest(lease, alone, *reports.pop(alone), {})
    rows = {row.id: row for row in await ingest_all(store, lease, reports, prompt)}
    for number, job_id in enumerate(others, 1):
        row = rows[job_id]
        assert row == await store.job(job_id), "the answer is what is stored"
        assert row.state is (JobState.SUCCEEDED if number % 2 else JobState.RUNNING)
        assert (row.step, row.step_rows, row.loss, row.acked_seq) == (8, 8, 2.0, len(reports[job_id][1]) + 3)
        assert (row.tokens_per_s, row.mfu) == (single.tokens_per_s, single.mfu)
        steps, of_single = await store.step_rows(job_id), await store.step_rows(alone)
        assert [(each.number, each.step, each.loss, each.extra) for each in steps] == [
            (each.number, each.step, each.loss, each.extra) for each in of_single
        ]
        numbers = [event.number for event in await store.events(job_id)]
        assert numbers == list(range(1, row.version + 1))
        assert (await store.stories.read(job_id, 10)).mirrors


async def test_a_report_that_cannot_be_stored_affects_no_other(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs = await running(3)
    good, bad, other = jobs
    reports = {job_id: (emitter.boot_id, progress(emitter, range(2, 4))) for job_id, emitter in jobs.items()}
    reports[bad] = jobs[bad].boot_id, [jobs[bad].step(1, 2**70)]  # a number that exceeds every column
    reports["no job"] = "boot", []
    calls = (store.ingest(lease, job_id, boot, events, {}) for job_id, (boot, events) in reports.items())
    first, failed, third, missing = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, JobRow) and isinstance(third, JobRow)
    assert first == await store.job(good) and third == await store.job(other) and third.step == 3
    assert isinstance(failed, Exception) and isinstance(missing, NotFoundError)
    assert (await store.job(bad)).step == 1 and len(await store.step_rows(bad)) == 1


async def test_two_reports_of_one_job_are_ingested_in_their_order(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    ((job_id, emitter),) = (await running(1)).items()
    first, second = progress(emitter, range(2, 4)), progress(emitter, range(4, 6))
    calls = (store.ingest(lease, job_id, emitter.boot_id, events, {}) for events in (first, second))
    rows = await asyncio.gather(*calls)
    assert [row.step for row in rows] == [3, 5] and rows[1].acked_seq == second[-1].seq
    assert [row.step for row in await store.step_rows(job_id)] == [1, 2, 3, 4, 5]


async def test_a_lost_lease_fails_all_reports_and_stores_none(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs = await running(2)
    newer = await store.acquire_lease("controller-a", 30.0)
    assert newer is not None
    calls = [store.ingest(lease, job_id, each.boot_id, [each.step(1, 2)], {}) for job_id, each in jobs.items()]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in outcomes] == [PreconditionError] * 2
    assert [(await store.job(job_id)).step for job_id in jobs] == [1, 1]


async def test_changes_are_announced_for_each_job(
    store: Store, lease: Lease, running: Callable[[int], Awaitable[Jobs]]
) -> None:
    jobs, mark = await running(4), store.changes.mark()
    prompt, _ = jobs.popitem()
    reports = {job_id: (each.boot_id, progress(each, range(2, 4))) for job_id, each in jobs.items()}
    for row in await ingest_all(store, lease, reports, prompt):
        assert store.changes.has_changed(row.id, mark) and store.changes.revision(row.id) == row.revision
