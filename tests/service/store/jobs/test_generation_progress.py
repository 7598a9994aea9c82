"""Losses of a job, from its stored generations, steps and states, with or without incidents."""

from typing import Any

import pytest

from regroup.service.cluster_state.job_account import UNRECORDED, JobAccount
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.observability.job_totals import totals_of
from regroup.service.observability.metric_names import STEPS_LOST
from regroup.service.operations.retention import RetentionPolicy, remove_expired
from regroup.service.policy.accounting import TimeClass, goodput
from regroup.service.policy.lost_time import GenerationProgress
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

DAY_S = 86_400.0


async def account_of(store: Store, job_id: str) -> JobAccount:
    job = await store.job(job_id)
    account = JobAccount(job)
    await account.catch_up(store, job)
    account.restore_incidents(await store.incidents(job_id))
    return account


@pytest.fixture
def lose_cluster(store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any, make_emitter: Any) -> Any:
    """Run a job to step 6, lose its cluster, and run it to its end from step 2 in another one."""

    async def run() -> str:
        job_id = await queue()
        await walk(job_id, emitter)  # running since second 1003, with step 1 at 1002
        rows = [emitter.step(1, step) for step in range(2, 7)]  # until second 1008
        await store.ingest(lease, job_id, emitter.boot_id, rows, {"reported_at": 1009.0})
        for target, reason, at_s in (
            (JobState.QUEUED, Reason.REQUEUED, 1090.0),
            (JobState.PLACING, Reason.PLACED, 1091.0),
            (JobState.STARTING, Reason.RESERVED, 1092.0),
        ):
            source = (await store.job(job_id)).state
            await store.apply(lease, check_transition(job_id, source, target, reason), now=at_s)
        again = make_emitter("boot-2")
        for _ in range(99):
            again.report("note", "skipped", kind="skipped")  # the next event is of second 1100
        later = [again.generation(2, 2, cause="restart"), again.step(2, 3)]
        later += [again.state(JobState.RUNNING, Reason.FIRST_STEP, generation=2)]
        later += [again.step(2, step) for step in range(4, 11)]
        later += [again.state(JobState.SUCCEEDED, Reason.COMPLETED)]
        await store.ingest(lease, job_id, again.boot_id, later, {})
        return job_id

    return run


async def test_a_lost_cluster_is_accounted_for_without_an_incident(store: Store, lose_cluster: Any) -> None:
    job_id = await lose_cluster()
    assert await store.progress(job_id) == [
        GenerationProgress(1, 1001.0, 1002.0, 1008.0, repeated=4, repeated_s=2.0),
        GenerationProgress(2, 1100.0, 1101.0, 1109.0),
    ]
    account = await account_of(store, job_id)
    seconds = account.seconds(5000.0)
    assert seconds[TimeClass.DETECTING] == 1090 - 1008, "from the last step until the job queued"
    assert seconds[TimeClass.RECOMPUTE] == 2.0
    productive = (1008 - 1003) + (1110 - 1102) - 2.0
    assert seconds[TimeClass.PRODUCTIVE] == pytest.approx(productive)
    assert goodput(seconds) == pytest.approx(productive / (1110 - 500 - 1))
    assert account.steps_lost == {UNRECORDED: 4}
    assert totals_of(account, 5000.0)[STEPS_LOST.name, (UNRECORDED,)] == 4


async def test_the_account_is_the_same_after_the_steps_are_removed(store: Store, lose_cluster: Any) -> None:
    job_id = await lose_cluster()
    before = await account_of(store, job_id)
    await store.totals.count(job_id, {}, now=5000.0)
    while await remove_expired(store, RetentionPolicy(1.0, 1.0, 0, DAY_S), 5000.0):
        pass
    assert await store.step_rows(job_id) == []
    after = await account_of(store, job_id)
    assert after.progress == before.progress and after.seconds(5000.0) == before.seconds(5000.0)
    assert after.steps_lost == before.steps_lost
    assert (await store.ledger(job_id)).superseded == 4


async def test_an_account_that_follows_a_job_equals_one_that_reads_it_at_the_end(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    followed = await account_of(store, job_id)
    for batch in (
        [emitter.step(1, step) for step in range(2, 7)],
        [emitter.generation(2, 4), emitter.step(2, 5)],
        [emitter.step(1, 7), emitter.step(2, 6)],  # a late row of the dead generation
        [emitter.generation(3, 1), emitter.step(3, 2)],
    ):
        await store.ingest(lease, job_id, emitter.boot_id, batch, {})
        await followed.catch_up(store, await store.job(job_id))
        assert followed.progress == (await account_of(store, job_id)).progress
    assert [each.repeated for each in followed.progress] == [6, 2, 0]


async def test_the_stored_steps_correct_an_incident_of_a_supervisor_that_did_not_know_them(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    times = {"fault_s": 1008.0, "seen_s": 1009.0}
    data = {"id": "i1", "cause": "agent lost", "reason": "agent_lost", "generation": 1, "at_step": 0, "times": times}
    rows = [emitter.step(1, step) for step in range(2, 7)]
    opened = emitter.report("incident", "incident:i1:1", **data)
    await store.ingest(lease, job_id, emitter.boot_id, [*rows, opened], {})
    (incident,) = await store.incidents(job_id)
    assert (incident.data["at_step"], incident.data["steps_lost"]) == (6, None)
    decided = {**data, "next_generation": 2, "steps_lost": 0, "revision": 2}
    later = [emitter.generation(2, 1), emitter.report("incident", "incident:i1:2", **decided)]
    await store.ingest(lease, job_id, emitter.boot_id, later, {})
    (incident,) = await store.incidents(job_id)
    assert (incident.data["at_step"], incident.data["steps_lost"]) == (6, 5)
    assert (await account_of(store, job_id)).steps_lost == {"agent_lost": 5}


async def test_the_time_of_the_last_report_is_written_with_events_or_every_half_minute(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    reported: list[float | None] = []
    for at_s, events in ((1010.0, [emitter.step(1, 2)]), (1012.0, []), (1039.0, []), (1040.0, []), (1041.0, [])):
        job = await store.ingest(lease, job_id, emitter.boot_id, events, {"reported_at": at_s})
        reported.append(job.reported_at)
    assert reported == [1010.0, 1010.0, 1010.0, 1040.0, 1040.0]
