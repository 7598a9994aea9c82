"""A database that stops responding. No client waits forever, and the store works again when the database answers."""

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from regroup.service.domain.errors import UnavailableError
from regroup.service.store.store import Store
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.tcp_proxy import Proxy, proxied

pytestmark = pytest.mark.postgres

ANSWERS_IN_S = 3.0
"""Long enough for 40 concurrent queries on a busy machine."""


@pytest.fixture
def proxy(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr("regroup.service.store.transactions.database.ANSWER_TIMEOUT_S", ANSWERS_IN_S)
    with proxied(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy, postgres_server: PostgresServer) -> str:
    return postgres_server.create_database().replace(f":{postgres_server.port}/", f":{proxy.port}/")


async def test_queries_of_an_unresponsive_database_fail_in_time_and_work_later(proxy: Proxy, url: str) -> None:
    store = await Store.open(url)
    key = await store.own_key("paging")
    proxy.stall()
    queries = [store.own_key("paging") for _ in range(40)]  # More than the pool has connections.
    found = await asyncio.wait_for(asyncio.gather(*queries, return_exceptions=True), 8 * ANSWERS_IN_S)
    assert all(isinstance(each, UnavailableError) for each in found), found
    assert f"did not answer in {ANSWERS_IN_S:g} s" in str(found[0])
    proxy.resume()
    assert await asyncio.wait_for(asyncio.gather(*(store.own_key("paging") for _ in range(40))), 20) == [key] * 40
    await store.close()


async def test_a_server_with_an_unresponsive_database_can_stop(proxy: Proxy, url: str) -> None:
    store = await Store.open(url)
    await store.own_key("paging")
    proxy.stall()
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(store.own_key("paging"), 20)
    await asyncio.wait_for(store.close(), 20)


async def test_a_server_that_hangs_in_a_transaction_loses_its_locks(
    proxy: Proxy, url: str, postgres_server: PostgresServer
) -> None:
    hung = await Store.open(url)
    other = await Store.open(url.replace(f":{proxy.port}/", f":{postgres_server.port}/"))
    await hung.own_key("paging")
    locked = asyncio.Event()
    transaction = asyncio.create_task(_lock_table(hung, locked))
    await asyncio.wait_for(locked.wait(), 10)
    proxy.stall()
    refused = 0
    async with asyncio.timeout(20):
        while True:
            try:
                await other.own_key("paging")
                break
            except UnavailableError:
                refused += 1  # The wait for the lock has the same limit as an answer.
    assert refused > 0, "the lock blocked the other server"
    transaction.cancel()
    await asyncio.gather(transaction, return_exceptions=True)
    await hung.close()
    await other.close()


async def _lock_table(store: Store, locked: asyncio.Event) -> None:
    async with store._database.write() as connection:
        await connection.execute(sa.text("LOCK TABLE keys IN ACCESS EXCLUSIVE MODE"))
        locked.set()
        await asyncio.Event().wait()
