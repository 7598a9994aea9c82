"""Notices in both databases: each change has one, in an order that never changes, and old ones are removed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import RegroupError
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.store.notices import notice_store
from regroup.service.store.notices.notice_rows import Notice, Topic, record_notices
from regroup.service.store.rows.records import DrainRow, ProjectRow
from regroup.service.store.store import Store

ANA = Author("ana", "token", "127.0.0.1")


def text(notice: Notice) -> str:
    return f"{notice.topic} {notice.job_id or notice.node or notice.project} {notice.kind} {notice.state or ''}".strip()


async def test_each_change_has_a_notice(store: Store, queue: Any, walk: Any, emitter: Any) -> None:
    job = await queue(project="vision")
    await walk(job, emitter)
    await store.nodes.record_order(NodeEvent("n1", NodeEventKind.CORDONED, 5.0, "k", actor="ana"))
    await store.nodes.request_drain(DrainRow("id1", "n1", "why", "ana", 1.0, 2.0), now=6.0, author=ANA)
    assert await store.nodes.delete_drains(["id1"], now=7.0, author=ANA) == 1
    await store.queue.put_project(ProjectRow("vision", guaranteed=4), now=8.0, author=ANA)
    found = await store.notices.after(0, 100)
    assert [text(each) for each in found] == [
        f"job {job} state QUEUED", f"job {job} state PLACING", f"job {job} state STARTING",
        f"job {job} generation STARTING", f"job {job} state RUNNING", "node n1 cordoned", "node n1 drain",
        "node n1 undrain", "project vision put",
    ]  # fmt: skip
    of_job = [each for each in found if each.topic is Topic.JOB]
    assert [each.event for each in of_job] == [event.number for event in await store.events(job, 0, 100)]
    assert {each.project for each in of_job} == {"vision"} and found[-1].time_s == 8.0
    numbers = [each.number for each in found]
    assert numbers == sorted(set(numbers))
    stored = await store.notices.range()
    assert (stored.oldest, stored.newest) == (numbers[0], numbers[-1])
    assert await store.notices.after(numbers[2], 2) == found[3:5]


async def test_a_change_that_fails_has_none(store: Store, queue: Any) -> None:
    await queue("a")
    with pytest.raises(RegroupError):
        await queue("a")
    assert len(await store.notices.after(0, 10)) == 1


async def test_a_reader_waits_for_a_transaction_that_has_a_lower_number(store: Store) -> None:
    """Let the first transaction commit last. A reader in between passes neither of them."""
    if store._database.single_process:
        pytest.skip("SQLite writes one transaction at a time")

    async def write(node: str, written: asyncio.Event, end: asyncio.Event) -> None:
        async with store._database.write() as connection:
            await store._database.now(connection)
            await connection.exec_driver_sql("SELECT pg_current_xact_id()")
            await record_notices(connection, [Notice(Topic.NODE, "drain", 1.0, node=node)])
            written.set()
            await end.wait()

    events = [asyncio.Event() for _ in range(4)]
    first = asyncio.create_task(write("slow", events[0], events[1]))
    await events[0].wait()
    events[3].set()
    await write("fast", events[2], events[3])
    reading = asyncio.create_task(store.notices.after(0, 10))
    newest = asyncio.create_task(store.notices.range())
    done, _ = await asyncio.wait({reading, newest}, timeout=0.3)
    assert not done, "the lower number may still appear"
    events[1].set()
    await first
    assert [each.node for each in await reading] == ["slow", "fast"]
    assert (await newest).newest == (await reading)[-1].number


async def test_a_gap_of_a_failed_transaction_delays_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_store, "_SETTLE_S", 60.0)
    drain: Callable[[str], Notice] = lambda node: Notice(Topic.NODE, "drain", 1.0, node=node)  # noqa: E731
    for node in ("a", "b", "c"):
        try:
            async with store._database.write() as connection:
                await record_notices(connection, [drain(node)])
                if node == "b":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    async with asyncio.timeout(10):
        assert [each.node for each in await store.notices.after(0, 10)] == ["a", "c"]


async def test_old_notices_are_removed_and_the_newest_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_store, "BATCH_ROWS", 2)
    assert not (await store.notices.range()).newest and await store.notices.remove_before(4e9) == 0
    for number in range(6):
        await store.queue.put_project(ProjectRow(f"p{number}"), author=ANA)
    last = (await store.notices.range()).newest
    assert await store.notices.remove_before(0.0) == 0
    assert [await store.notices.remove_before(4e9) for _ in range(4)] == [2, 2, 1, 0]
    stored = await store.notices.range()
    assert (stored.oldest, stored.newest) == (last, last)
    assert [stored.has_all_after(number) for number in (0, last - 2, last - 1, last, last + 1)] == [
        False, False, True, True, False,
    ]  # fmt: skip
    await store.queue.remove_project("p0", author=ANA)
    assert (await store.notices.range()).newest > last
