"""Records of the course of a job on both databases: generations with their progress, and samples of steps."""

from typing import Any

import pytest

from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.states import JobState
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store


async def test_a_story_has_heads_of_generations_and_a_sample_of_steps(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    reports = [emitter.step(1, step) for step in range(2, 11)]
    reports.append(emitter.report("incident", "incident:i1:1", id="i1", cause="c", times={}))
    await store.ingest(lease, job_id, emitter.boot_id, [*reports, emitter.generation(2, 10)], {})
    found = await store.stories.read(job_id, 4)
    assert found.job.id == job_id and found.job.state is JobState.RUNNING
    assert [each.type for each in found.states] == ["state"] * 4
    numbers = [each.number for each in found.states]
    assert numbers == sorted(numbers)
    assert not {each.type for each in found.others} & {"state", "generation", "incident", "checkpoint"}
    first, second = found.generations
    assert (first.number, first.start_step, first.first_step_s, first.last_step) == (1, 0, 1002.0, 10)
    assert first.last_step_s == reports[8].time_s
    assert (second.number, second.start_step, second.first_step_s, second.last_step) == (2, 10, None, None)
    assert [each.cause for each in found.incidents] == ["c"] and list(found.checkpoints) == []
    assert [(each.generation, each.step) for each in found.steps] == [(1, 1), (1, 4), (1, 7), (1, 10)]
    assert [each.step for each in (await store.stories.read(job_id, 100)).steps] == list(range(1, 11))


async def test_ranks_of_some_generations_are_read(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.generation(2, 1)], {})
    found = await store.stories.ranks(job_id, {2, 9})
    assert {number: [each["rank"] for each in ranks] for number, ranks in found.items()} == {2: [0]}
    assert await store.stories.ranks(job_id, set()) == {}


async def test_a_job_that_does_not_exist_has_no_story(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await store.stories.read("job_unknown", 10)
