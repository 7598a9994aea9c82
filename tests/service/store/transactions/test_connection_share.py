"""Work on many jobs leaves connections free for others."""

import asyncio
from pathlib import Path

from regroup.service.store.transactions.connection_share import ConnectionShare, limit_to_share, without_limit
from regroup.service.store.transactions.database import Database


async def test_limited_tasks_take_turns_and_others_do_not_wait():
    share, inside, most = ConnectionShare(2), 0, 0
    release = asyncio.Event()

    async def work(*, is_limited: bool) -> None:
        nonlocal inside, most
        if is_limited:
            limit_to_share()
        async with share.turn(), share.turn():
            inside += 1
            most = max(most, inside)
            await release.wait()
            inside -= 1

    limited = [asyncio.create_task(work(is_limited=True)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inside == 2, "a block inside a turn needs no other one"
    other = asyncio.create_task(work(is_limited=False))
    await asyncio.sleep(0)
    assert inside == 3
    release.set()
    await asyncio.gather(*limited, other)
    assert most == 3 and inside == 0


async def test_a_cancelled_waiter_takes_no_turn():
    share = ConnectionShare(1)

    async def occupy() -> None:
        limit_to_share()
        async with share.turn():
            await asyncio.Event().wait()

    holder, waiter = asyncio.create_task(occupy()), asyncio.create_task(occupy())
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    last = asyncio.create_task(occupy())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not share._free._value
    last.cancel()


async def test_the_database_serves_others_while_no_turn_is_free(tmp_path: Path):
    database = await Database.open(f"sqlite:///{tmp_path}/share.db")
    database._share = ConnectionShare(1)
    held, release = asyncio.Event(), asyncio.Event()

    async def occupy() -> None:
        limit_to_share()
        async with database.read():
            held.set()
            await release.wait()

    async def read() -> None:
        limit_to_share()
        await database.ping()

    holder = asyncio.create_task(occupy())
    await held.wait()
    waiter = asyncio.create_task(read())
    await database.ping()
    assert not waiter.done(), "a limited task waits for its turn"
    release.set()
    await asyncio.gather(holder, waiter)
    await database.close()


async def test_work_that_others_wait_for_needs_no_turn():
    share, done = ConnectionShare(1), list[str]()

    async def occupy() -> None:
        limit_to_share()
        async with share.turn():
            await asyncio.Event().wait()

    async def work() -> None:
        limit_to_share()
        with without_limit():
            async with share.turn():
                done.append("without")
        async with share.turn():
            done.append("with")

    tasks = [asyncio.create_task(occupy()), asyncio.create_task(work())]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["without"], "the limit applies again after the block"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
