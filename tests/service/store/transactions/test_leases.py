"""The lease and the transactions of its holder: they exclude another leader, but never delay a renewal."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from regroup.service.store.store import Store
from regroup.service.store.transactions import leases
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.stores import open_store

pytestmark = pytest.mark.postgres  # SQLite has one writer, and no other process can lead


@pytest.fixture
async def store(postgres_server: PostgresServer) -> AsyncIterator[Store]:
    opened = await open_store(postgres_server.create_database())
    yield opened
    await opened.close()


async def test_a_renewal_waits_for_no_transaction_of_the_leader(store: Store) -> None:
    lease = await store.acquire_lease("one", 30.0)
    assert lease is not None
    async with store._database.write() as first, store._database.write() as second:
        await leases.check(first, lease)
        await leases.check(second, lease)
        async with asyncio.timeout(5):
            await store.renew_lease(lease, 60.0)
        await leases.check(second, lease)


async def test_another_leader_waits_for_the_transactions_of_the_one_before(store: Store) -> None:
    lease = await store.acquire_lease("one", 30.0)
    assert lease is not None
    async with store._database.write() as connection:
        await leases.check(connection, lease)
        await store.release_lease(lease)
        acquiring = asyncio.create_task(store.acquire_lease("two", 30.0))
        done, _ = await asyncio.wait({acquiring}, timeout=0.5)
        assert not done, "a write of the former leader is in progress"
    newer = await acquiring
    assert newer is not None and newer.token > lease.token
