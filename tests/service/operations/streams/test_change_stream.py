"""Followers of changes: one reader per server, nothing lost and nothing twice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.operations.streams import change_stream
from regroup.service.operations.streams.change_stream import MISSED, START, ChangeStream
from regroup.service.operations.streams.follower_queue import FollowerDroppedError
from regroup.service.store.rows.records import ProjectRow
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from tests.service.operations.streams.test_followers import Statements
from tests.support.servers.stores import open_store

ANA = Author("ana", "token", "127.0.0.1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


def stream_of(store: Store) -> ChangeStream:
    return ChangeStream(store, ServerTasks(), lambda: 5.0)


async def change(store: Store, name: str) -> None:
    await store.queue.put_project(ProjectRow(name), author=ANA)


async def read(items: Any, until: str, ready: asyncio.Event | None = None) -> list[str]:
    """Read notices until the project `until`; return projects, or kinds of notices of the stream."""
    found = list[str]()
    async with asyncio.timeout(20), aclosing(items):
        async for item in items:
            if item is not None:
                found.append(item.row.project or item.row.kind)
                if found[-1] == START and ready is not None:
                    ready.set()
                if found[-1] == until:
                    break
    return found


async def test_a_follower_gets_what_happens_from_now_on(store: Store) -> None:
    shared, ready = stream_of(store), asyncio.Event()
    await change(store, "before")
    following = asyncio.create_task(read(shared.follow(None), "c", ready))
    await ready.wait()
    for name in ("a", "b", "c"):
        await change(store, name)
    assert await following == [START, "a", "b", "c"]


async def test_a_follower_resumes_and_learns_that_notices_were_removed(store: Store) -> None:
    shared = stream_of(store)
    for name in ("a", "b", "c"):
        await change(store, name)
    first = (await store.notices.range()).oldest
    assert await read(shared.follow(first), "c") == ["b", "c"]
    assert await read(shared.follow(first - 1), "c") == ["a", "b", "c"]
    await store.notices.remove_before(4e9)
    for after in (first, first + 1000):
        assert await read(shared.follow(after), MISSED) == [MISSED]
    following = asyncio.create_task(read(shared.follow(first), "d"))
    while shared._position is None:  # noqa: ASYNC110  (the follower is connected)
        await asyncio.sleep(0.01)
    await change(store, "d")
    assert await following == [MISSED, "d"]


async def test_many_followers_cost_as_many_statements_as_one(store: Store) -> None:
    async def statements_for(count: int) -> int:
        shared, ready = stream_of(store), [asyncio.Event() for _ in range(count)]
        tasks = [asyncio.create_task(read(shared.follow(None), "last", each)) for each in ready]
        for each in ready:
            await each.wait()
        await asyncio.sleep(change_stream._PAUSE_S)
        counted = Statements(store)
        for number in range(10):
            await change(store, f"p{number}")
        await change(store, "last")
        expected = [START, *(f"p{number}" for number in range(10)), "last"]
        assert all(found == expected for found in await asyncio.gather(*tasks))
        return counted.count

    one = await statements_for(1)
    many = await statements_for(50)
    assert many <= one + 20, (one, many)


async def test_the_reader_finds_what_another_server_wrote(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, ready = stream_of(store), asyncio.Event()
    following = asyncio.create_task(read(shared.follow(None), "a", ready))
    await ready.wait()
    monkeypatch.setattr(store.queue, "_changes", type("Silent", (), {"announce": lambda *_: None})())
    loop = asyncio.get_running_loop()
    await change(store, "a")
    begin_s = loop.time()
    assert await following == [START, "a"] and loop.time() - begin_s < 1.0


async def test_a_slow_follower_is_dropped_and_the_reader_ends_with_the_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_stream, "QUEUE_LIMIT", 3)
    monkeypatch.setattr(change_stream, "IDLE_S", 0.05)
    shared = stream_of(store)
    items = shared.follow(None)
    first = await anext(items)
    assert first is not None and first.row.kind == START
    assert await anext(items) is None, "it has read the past"
    for number in range(10):
        await change(store, f"p{number}")
    while shared._position != (await store.notices.range()).newest:  # noqa: ASYNC110  (the reader has no event)
        await asyncio.sleep(0.01)
    with pytest.raises(FollowerDroppedError):
        async for _ in items:
            pass
    assert shared._reading is None and shared._position is None and not shared._queues


async def test_a_page_has_the_number_of_the_next(store: Store) -> None:
    shared = stream_of(store)
    for name in ("a", "b", "c"):
        await change(store, name)
    stored = await store.notices.range()
    page = await shared.page(None, 10)
    assert (page.notices, page.next_after, page.is_complete) == ((), stored.newest, True)
    page = await shared.page(stored.oldest, 1)
    assert ([each.project for each in page.notices], page.next_after) == (["b"], stored.oldest + 1)
    page = await shared.page(stored.newest, 10)
    assert (page.notices, page.next_after, page.is_complete) == ((), stored.newest, True)
    page = await shared.page(stored.newest + 5, 10)
    assert (page.next_after, page.is_complete) == (stored.newest, False)
