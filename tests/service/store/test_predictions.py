"""Plans of jobs and predictions of generations, on SQLite and on a real PostgreSQL."""

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import PreconditionError
from regroup.service.store.predictions import NewestPrediction
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store


async def test_a_plan_is_stored_with_its_job(store: Store, make_spec):
    plan = {"requested": {"ranks": "all"}, "not_finite": float("inf")}
    planned = NewJob("job_1", make_spec("a"), "file:///s/1", plan=plan)
    await store.submissions.submit(planned, now=1.0, author=Author("test"))
    await store.submissions.submit(NewJob("job_2", make_spec("b"), "file:///s/2"), now=2.0, author=Author("test"))
    assert await store.predictions.plan("job_1") == {"requested": {"ranks": "all"}, "not_finite": None}
    assert await store.predictions.plan("job_2") is None


async def test_the_first_prediction_of_a_generation_is_final(store: Store, lease: Lease, queue):
    first, second = await queue("a"), await queue("b")
    for generation, step_s in ((1, 0.5), (2, 0.7), (1, 0.9)):
        await store.predictions.put(lease, first, generation, {"step_s": step_s})
    assert await store.predictions.of_job(first) == {1: {"step_s": 0.5}, 2: {"step_s": 0.7}}
    assert await store.predictions.newest([first, second]) == {first: NewestPrediction(2, {"step_s": 0.7})}
    with pytest.raises(PreconditionError):
        await store.predictions.put(Lease(lease.name, "another", lease.token - 1), second, 1, {})


async def test_the_newest_steps_of_a_generation_are_listed(store: Store, lease: Lease, queue, emitter, walk):
    job_id = await queue()
    await walk(job_id, emitter)
    later = [emitter.step(1, step, extra={"pipeline_idle": 0.25}) for step in range(2, 6)]
    await store.ingest(lease, job_id, emitter.boot_id, [*later, emitter.generation(2, 4), emitter.step(2, 5)], {})
    assert [row.step for row in await store.predictions.steps(job_id, 1, 3)] == [3, 4, 5]
    assert [(row.generation, row.step) for row in await store.predictions.steps(job_id, 2, 9)] == [(2, 5)]
    assert (await store.job(job_id)).pipeline_idle == 0.25
