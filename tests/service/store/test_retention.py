"""The removal of history after its retention, in batches, on both databases."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.author import Author
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.states import JobState, Reason
from regroup.service.observability.job_totals import count_batch
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.retention import RetentionPolicy, remove_expired
from regroup.service.policy.detection.node_quarantine import MEMORY_S, NodeEvent, NodeEventKind, QuarantinePolicy
from regroup.service.store import retention
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store
from regroup.service.store.transactions.idempotency import RequestKey

DAY_S = 86_400.0
NEVER = RetentionPolicy(events_s=0, steps_s=0, jobs_s=0, idempotency_s=DAY_S)
NOW = 400 * DAY_S


@pytest.fixture
def ended(store: Store, lease: Lease, queue: Callable[..., Any], walk: Callable[..., Any], make_emitter: Any) -> Any:
    """Bring a job to its end, with an incident, a checkpoint and steps."""

    async def run(name: str, steps: int = 10) -> str:
        emitter, job_id = make_emitter(f"boot-{name}"), await queue(name)
        await walk(job_id, emitter)
        incident = {"id": "i1", "cause": "rank_exit", "reason": "rank_exit", "recovery_action": "respawn"}
        saved = {"step": 5, "generation": 1, "uri": f"file:///{name}", "size_bytes": 100, "files": 1, "duration_s": 0.5}
        reported = [
            *(emitter.step(1, number) for number in range(2, steps + 1)),
            emitter.report("incident", "incident:1", **incident, durations={"total": 0.7}, steps_lost=2),
            emitter.report("checkpoint", "checkpoint:5", **saved),
            emitter.report("note", "note:1", kind="step_skipped", step=3),
            emitter.state(JobState.SUCCEEDED, Reason.COMPLETED),
        ]
        await store.ingest(lease, job_id, emitter.boot_id, reported, {})
        return job_id

    return run


async def remove_all(store: Store, policy: RetentionPolicy, now: float = NOW) -> int:
    rounds = 1
    while await remove_expired(store, policy, now):
        rounds += 1
    return rounds


async def count(store: Store, table: str) -> int:
    async with store._database.read() as connection:
        return int((await connection.execute(sa.text(f"SELECT count(*) FROM {table}"))).scalar_one())


async def exposition(store: Store) -> dict[str, str]:
    text = (await Metrics(store, QuarantinePolicy(3600.0, 600.0), clock=lambda: NOW).render()).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_counters_stay_the_same_when_jobs_are_counted_and_removed(store: Store, ended: Any) -> None:
    job_ids = [await ended(f"job-{number}") for number in range(3)]
    before = await exposition(store)
    assert before['regroup_incidents_total{cause="rank_exit"}'] == "3.0"
    assert before['regroup_steps_lost_total{cause="rank_exit"}'] == "6.0"
    assert before["regroup_checkpoint_seconds_count"] == "3.0" and before["regroup_checkpoint_bytes"] == "300.0"
    assert not await count_batch(store, NOW)
    assert (await store.totals.read(NOW)).uncounted == ()
    assert await exposition(store) == before
    assert await store.totals.count(job_ids[0], {("regroup_incidents", ("rank_exit",)): 1.0}, now=NOW) is False
    await remove_all(store, RetentionPolicy(DAY_S, DAY_S, DAY_S, DAY_S))
    after = await exposition(store)
    for job_id in job_ids:
        with pytest.raises(NotFoundError):
            await store.job(job_id)
    assert after['regroup_rows_removed_total{table="jobs"}'] == "3.0"
    assert (after['regroup_jobs{state="SUCCEEDED"}'], after["regroup_checkpoint_bytes"]) == ("0.0", "0.0")
    kinds = ("_total", "_bucket", "_count", "_sum")
    counters = {name for name in before if any(kind in name for kind in kinds) and "rows_removed" not in name}
    assert {name: after[name] for name in counters} == {name: before[name] for name in counters}


async def test_nothing_is_removed_before_it_was_counted(store: Store, ended: Any) -> None:
    job_id = await ended("job")
    await remove_all(store, RetentionPolicy(DAY_S, DAY_S, DAY_S, DAY_S))
    assert (await store.job(job_id)).state is JobState.SUCCEEDED and len(await store.step_rows(job_id)) == 10


async def test_events_are_removed_and_the_account_of_time_stays(store: Store, ended: Any) -> None:
    job_id = await ended("job")
    await count_batch(store, NOW)
    job = await store.job(job_id)
    before = JobAccount(job)
    await before.catch_up(store, job)
    await remove_all(store, RetentionPolicy(DAY_S, 0, 0, DAY_S))
    assert {event.type for event in await store.events(job_id)} == {"state"}
    after = JobAccount(job)
    await after.catch_up(store, job)
    after.restore_incidents(await store.incidents(job_id))
    assert after.seconds(NOW) == before.seconds(NOW) and after.number == job.version
    assert len(await store.step_rows(job_id)) == 10, "steps have a retention of their own"


async def test_steps_are_removed_in_batches_and_the_ledger_stays(
    store: Store, ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 4)
    job_id = await ended("job", steps=10)
    await count_batch(store, NOW)
    ledger = await store.ledger(job_id)
    assert ledger.exact and ledger.steps == 10
    assert await remove_all(store, RetentionPolicy(0, DAY_S, 0, DAY_S)) > 1
    assert await store.step_rows(job_id) == [] and await store.ledger(job_id) == ledger
    assert (await exposition(store))['regroup_rows_removed_total{table="steps"}'] == "10.0"


async def test_recent_jobs_pinned_jobs_and_dependencies_are_kept(
    store: Store, ended: Any, make_spec: Callable[..., Any]
) -> None:
    recent, pinned, needed, old = [await ended(name) for name in ("recent", "pinned", "needed", "old")]
    await store.pin(pinned, 5, True, now=NOW, author=Author("user"))
    waiting = NewJob("job_9999", make_spec("waiting", depends_on=[needed]), "file:///s")
    await store.submissions.submit(waiting, now=NOW, author=Author("user"))
    await count_batch(store, NOW)
    async with store._database.write() as connection:
        await connection.execute(
            sa.text("UPDATE jobs SET finished_at = :now WHERE id = :id"), {"now": NOW, "id": recent}
        )
    await remove_all(store, RetentionPolicy(0, 0, 30 * DAY_S, DAY_S))
    for job_id in (recent, pinned, needed, "job_9999"):
        await store.job(job_id)
    with pytest.raises(NotFoundError):
        await store.job(old)
    assert await count(store, "steps") == 30


async def test_idempotency_keys_end_after_their_retention(store: Store, make_spec: Callable[..., Any]) -> None:
    new = NewJob("job_1", make_spec("gpt"), "file:///s")
    await store.submissions.submit(
        new, now=NOW - 2 * DAY_S, author=Author("user"), request=RequestKey("user:submit", "key", "hash")
    )
    assert await store.idempotency.find("user:submit", "key", now=NOW) is None
    await remove_all(store, NEVER)
    assert await count(store, "idempotency") == 0


async def test_old_events_of_nodes_are_removed_except_orders_in_effect(store: Store, lease: Lease) -> None:
    now = time.time()
    old = now - MEMORY_S - 1

    def event(kind: NodeEventKind, node: str, at: float) -> NodeEvent:
        return NodeEvent(node, kind, at, f"{kind}:{node}:{at}", "j", "user", "why")

    orders = [
        event(NodeEventKind.CORDONED, "a", old - 2),
        event(NodeEventKind.UNCORDONED, "a", old - 1),
        event(NodeEventKind.CORDONED, "b", old),
        event(NodeEventKind.CLEARED, "c", old),
        event(NodeEventKind.CLEARED, "c", now),
    ]
    for order in orders:
        await store.nodes.record_order(order)
    await remove_all(store, NEVER, now)
    left = {(each.node, each.kind) for each in await store.nodes.events()}
    assert left == {("a", NodeEventKind.UNCORDONED), ("b", NodeEventKind.CORDONED), ("c", NodeEventKind.CLEARED)}
