"""The queue in scheduling order, also with a job whose spec is damaged."""

from typing import Any

import sqlalchemy as sa

from regroup.service.operations.capacity.queue import QueuedJob, QueueList, devices_of, estimated_start_s
from regroup.service.store.rows.records import PLACEABLE, START_ESTIMATED, Condition
from regroup.service.store.schema.tables import jobs


async def test_jobs_have_their_reason_and_their_start(live: Any) -> None:
    low = (await live.submit(name="low", priority="low"))["id"]
    high = (await live.submit(name="high", priority="high", layout={"dp": 4}))["id"]
    conditions = (
        Condition(PLACEABLE, False, "resources", "no node is free"),
        Condition(START_ESTIMATED, True, "promised", "2030-01-02T03:04Z"),
    )
    await live.store.set_conditions(live.lease, low, conditions, now=live.services.clock())
    first, second = await QueueList(live.store, live.services.positions, live.services.clock).jobs()
    assert (first.id, first.position, first.ranks, first.priority) == (high, 0, 4, "high")
    assert (first.reason, first.estimated_start_s) == ("", None)
    assert (second.id, second.reason, second.message) == (low, "resources", "no node is free")
    assert second.estimated_start_s == estimated_start_s(await live.store.job(low)) == 1893553440.0
    assert devices_of([first, second]) == 5


async def test_a_job_whose_spec_cannot_be_read_is_last(live: Any) -> None:
    damaged, sound = [(await live.submit(name=name))["id"] for name in ("damaged", "sound")]
    async with live.store._database.write() as connection:
        await connection.execute(sa.update(jobs).where(jobs.c.id == damaged).values(spec={"name": 7}))
    found = await QueueList(live.store, live.services.positions, live.services.clock).jobs()
    assert [each.id for each in found] == [sound, damaged]
    assert (found[1].ranks, found[1].priority, found[1].position) == (None, "normal", None)
    assert devices_of(found) == 1


def test_jobs_without_a_known_size_request_no_devices() -> None:
    job = QueuedJob("j", "j", "default", "normal", None, 0.0, None, "", "", None)
    assert devices_of([job, job]) == 0
