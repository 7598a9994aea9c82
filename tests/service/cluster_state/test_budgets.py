"""Readings of budgets are shared, and the pass never waits for the turns of jobs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regroup.service.cluster_state.budgets import BudgetReader
from regroup.service.store.store import Store
from regroup.service.store.transactions.connection_share import ConnectionShare, limit_to_share
from tests.support.servers.statements import recorded_statements
from tests.support.servers.stores import open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def test_projects_are_read_once_a_second_for_all_jobs(store: Store) -> None:
    budgets = BudgetReader(store, None)
    with recorded_statements(store) as statements:
        await asyncio.gather(*(budgets.read_projects(now) for now in (10.0, 10.1, 10.9)))
    assert len(statements) == 1
    with recorded_statements(store) as statements:
        await budgets.read_projects(11.1)
    assert len(statements) == 1


async def test_a_pass_does_not_wait_for_the_turn_of_a_job(store: Store) -> None:
    """Let a job and the pass need the same reading while other jobs use all turns."""
    budgets, release = BudgetReader(store, None), asyncio.Event()
    store._database._share = ConnectionShare(1)
    held = asyncio.Event()

    async def occupy() -> None:
        limit_to_share()
        async with store._database.read():
            held.set()
            await release.wait()

    async def reconcile() -> None:
        limit_to_share()
        await budgets.read_projects(10.0)

    occupying = asyncio.create_task(occupy())
    await held.wait()
    reconciling = asyncio.create_task(reconcile())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await budgets.read_projects(10.0)
        await reconciling
    assert not occupying.done(), "the only turn is still taken"
    release.set()
    await occupying
