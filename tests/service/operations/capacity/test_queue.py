"""The queue in scheduling order, also with a job whose spec is damaged."""

from typing import Any

import sqlalchemy as sa

from regroup.service.cluster_state.queued_jobs import QueueEntry, estimated_start_s
from regroup.service.domain.author import Author
from regroup.service.domain.queued_job import QueuedJob
from regroup.service.operations.capacity.queue import OrderedQueue, ProjectWaits, QueueList, order_queue
from regroup.service.store.rows.records import PLACEABLE, START_ESTIMATED, Condition
from regroup.service.store.schema.tables import jobs

DEFAULT = frozenset({"default"})


async def test_jobs_have_their_reason_and_their_start(live: Any) -> None:
    low = (await live.submit(name="low", priority="low"))["id"]
    high = (await live.submit(name="high", priority="high", layout={"dp": 4}))["id"]
    conditions = (
        Condition(PLACEABLE, False, "resources", "no node is free"),
        Condition(START_ESTIMATED, True, "promised", "2030-01-02T03:04Z"),
    )
    await live.store.set_conditions(live.lease, low, conditions, now=live.services.clock())
    queue = await QueueList(live.store, live.services.positions, live.services.clock).read()
    first, second = queue.part(DEFAULT, 0, 10)
    assert (first.id, first.position, first.ranks, first.priority) == (high, 0, 4, "high")
    assert (first.reason, first.estimated_start_s) == ("", None)
    assert (second.id, second.reason, second.message) == (low, "resources", "no node is free")
    assert second.estimated_start_s == estimated_start_s(await live.store.job(low)) == 1893553440.0
    assert queue.projects == {"default": ProjectWaits(2, 5)}


async def test_a_job_whose_spec_cannot_be_read_is_last(live: Any) -> None:
    damaged, sound = [(await live.submit(name=name))["id"] for name in ("damaged", "sound")]
    async with live.store._database.write() as connection:
        await connection.execute(sa.update(jobs).where(jobs.c.id == damaged).values(spec={"name": 7}))
    queue = await QueueList(live.store, live.services.positions, live.services.clock).read()
    found = queue.part(DEFAULT, 0, 10)
    assert [each.id for each in found] == [sound, damaged]
    assert (found[1].ranks, found[1].priority, found[1].position) == (None, "normal", None)
    assert queue.projects == {"default": ProjectWaits(2, 1)}


async def test_the_positions_are_those_of_the_moment(live: Any) -> None:
    first, second = [(await live.submit(name=name))["id"] for name in ("first", "second")]
    queue = QueueList(live.store, live.services.positions, live.services.clock)

    async def shown() -> list[tuple[str, int | None]]:
        return [(each.id, each.position) for each in (await queue.read()).part(DEFAULT, 0, 10)]

    assert await shown() == [(first, 0), (second, 1)]
    await live.store.queue.suspend(first, "why", now=2.0, author=Author("ana"))
    assert await shown() == [(second, 0)]
    await live.store.queue.resume(first, now=3.0, author=Author("ana"))
    assert {job for job, _ in await shown()} == {first, second}
    assert [position for _, position in await shown()] == [0, 1]


def entry(name: str, project: str = "default", ranks: int | None = 2) -> QueueEntry:
    return QueueEntry(QueuedJob(name, name, project, "normal", ranks, 0.0, None, "", "", None), None)


def test_a_part_of_the_queue_has_the_jobs_of_some_projects_with_positions_among_all() -> None:
    entries = [entry("a"), entry("b", "vision"), entry("c"), entry("damaged", "vision", None)]
    queue = order_queue(entries, {"c": 0, "b": 1, "a": 2})
    assert queue.projects == {"default": ProjectWaits(2, 4), "vision": ProjectWaits(2, 2)}
    both, vision = frozenset({"default", "vision", "other"}), frozenset({"vision"})
    assert [each.id for each in queue.part(both, 0, 10)] == ["c", "b", "a", "damaged"]
    assert [(each.id, each.position) for each in queue.part(vision, 0, 10)] == [("b", 1), ("damaged", None)]
    assert [each.id for each in queue.part(both, 1, 2)] == ["b", "a"]
    assert queue.part(frozenset(), 0, 10) == []
    assert OrderedQueue((), {}).part(both, 0, 10) == []
