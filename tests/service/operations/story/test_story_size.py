"""The story of a long and large job: its size, and the time that it takes."""

import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from regroup.api.schemas.story.story import Story
from regroup.service.domain.author import Author
from regroup.service.operations.story.stories import Stories
from regroup.service.spec.job import JobSpec
from regroup.service.store.jobs.mirror_ticks import MAX_TICKS
from regroup.service.store.rows.records import JobRow, NewJob
from regroup.service.store.schema.mirror_tables import mirrors
from regroup.service.store.schema.tables import generations, incidents, jobs, steps
from regroup.service.store.store import Store
from tests.support.inputs.eventful_job import generation
from tests.support.servers.live_server import spec_json
from tests.support.servers.stores import open_store

GENERATIONS, STEPS, RANKS = 200, 100_000, 1024
MAX_BYTES, MAX_S = 1_000_000, 0.1
"""Largest answer, and the processor time that it may take. Real time says nothing on a busy machine."""


async def write_long_job(store: Store, database: str, ranks: int) -> JobRow:
    """Write a job with many generations, each of which lost 20 steps and replaced one node."""
    job = await store.submissions.submit(
        NewJob("job_1", JobSpec.model_validate(spec_json()), "file:///s"), now=0.0, author=Author("someone")
    )
    each = STEPS // GENERATIONS
    formed, committed, ended = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(1, GENERATIONS + 1):
        start = (number - 1) * (each - 20)
        data = {**generation(1, 2, start, {"kind": "memory"}, "rank_exit"), "number": number, "world_size": ranks}
        places = [
            {
                "rank": rank,
                "node_id": f"{rank // 8}-{number * (rank // 8 == number % 128)}",
                "node_name": f"node-{rank // 8}",
            }
            for rank in range(ranks)
        ]
        formed.append({**data, "job_id": job.id, "time_s": number * 600.0, "ranks": places})
        row = {"job_id": job.id, "generation": number, "extra": {}, "duration_s": 1.0}
        committed += [
            {**row, "step": start + index, "number": len(committed) + index, "time_s": number * 600.0 + index}
            for index in range(1, each + 1)
        ]
        times = {"fault_s": number * 600.0 + each, "first_step_s": number * 600.0 + 599}
        fact = {
            "cause": "rank 1 exited",
            "generation": number,
            "at_step": start + each,
            "times": times,
            "durations": {},
        }
        ended.append(
            {"job_id": job.id, "id": f"i{number}", "number": number, "cause": "c", "time_s": 0.0, "data": fact}
        )
    ticks = [[index * GENERATIONS * 2.0, 1 + index // 2, index * 333] for index in range(MAX_TICKS)]
    mirrored = {"job_id": job.id, "interval_s": 400.0, "last_s": ticks[-1][0], "ticks": ticks}
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        connection.execute(generations.insert(), formed)
        connection.execute(steps.insert(), committed)
        connection.execute(incidents.insert(), ended)
        connection.execute(mirrors.insert(), [mirrored])
        connection.execute(jobs.update().values(step_rows=len(committed), generation=GENERATIONS))
    engine.dispose()
    return await store.job(job.id)


async def test_a_long_job_has_a_short_story(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/regroup.db"
    store = await open_store(database)
    job = await write_long_job(store, database, RANKS)
    stories = Stories(store, lambda: GENERATIONS * 600.0 + 600.0)
    await stories.read(job, 400)  # the places of ranks never change: they are read once
    took: list[float] = []
    for _ in range(5):
        started_s = time.process_time()
        body = Story.model_validate(await stories.read(job, 400)).model_dump_json()
        took.append(time.process_time() - started_s)
    await store.close()
    story = Story.model_validate_json(body)
    assert len(body) < MAX_BYTES, len(body)
    assert min(took) < MAX_S, took
    assert len(story.generations) == len(story.incidents) == GENERATIONS and len(story.progress) <= 400
    assert story.generations[0].repeated == 20 and story.nodes_since_generation == 1
    assert sum(last - first + 1 for node in story.nodes for place in node.places for first, last in place.ranks) > RANKS
