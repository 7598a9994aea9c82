"""Fixtures: a store with a running delivery, receivers on loopback, and a mail server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.credentials.keyring import Keyring
from regroup.service.domain.hooks import DeliveryState, HookKind
from regroup.service.operations.hooks.delivery import HookDelivery
from regroup.service.settings import Settings
from regroup.service.store.rows.hook_rows import DeliveryRow, HookRow
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store
from tests.support.servers.hook_receiver import HookReceiver, running_receiver
from tests.support.servers.mail_server import MailServer, running_mail_server
from tests.support.servers.stores import open_store

PROJECT = "vision"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


@pytest.fixture
async def receiver() -> AsyncIterator[HookReceiver]:
    async with running_receiver() as running:
        yield running


@pytest.fixture
async def mail_server() -> AsyncIterator[MailServer]:
    async with running_mail_server() as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, mail_server: MailServer) -> Settings:
    return Settings(
        state_dir=tmp_path, hook_private_networks=("127.0.0.0/8",), smtp_host="127.0.0.1", smtp_port=mail_server.port,
        smtp_tls="off", smtp_sender="regroup@example.com",
    )  # fmt: skip


class Clock:
    """The time since the start of the test, plus what the test adds."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def delivering(store: Store, settings: Settings, clock: Clock) -> Callable[..., Any]:
    """Run the delivery while the block runs; return a queue that gets an entry at each pass."""

    @asynccontextmanager
    async def run(
        is_leader: bool = True, keyrings: Sequence[Keyring | None] = (None,), **other_settings: Any
    ) -> AsyncIterator[asyncio.Queue[bool]]:
        lease, passes = await store.acquire_lease("test", 3600.0), asyncio.Queue[bool]()
        assert lease is not None

        def lease_of_server() -> Lease | None:
            passes.put_nowait(is_leader)
            return lease if is_leader else None

        used = settings.model_copy(update=other_settings)
        work = HookDelivery(store, used, lease_of_server, clock, interval_s=0.02, keys=lambda: keyrings[-1])
        task = asyncio.create_task(work.run())
        try:
            yield passes
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run


@pytest.fixture
def hook(store: Store) -> Callable[..., Any]:
    """Create a hook."""

    async def create(hook_id: str = "hook_1", **fields: Any) -> HookRow:
        usual: dict[str, Any] = {
            "name": "ci", "kind": HookKind.CLOUDEVENTS, "url": None, "recipients": (), "events": ("state",),
            "labels": {}, "is_enabled": True, "secret": SECRET, "created_at": 1.0, "created_by": "ana",
        }  # fmt: skip
        row = HookRow(hook_id, PROJECT, **{**usual, **fields})
        await store.hooks.create(row)
        return row

    return create


@pytest.fixture
def finished(store: Store) -> Callable[..., Any]:
    """Wait until this number of deliveries of a hook were attempted, and return all of them, the oldest first."""

    async def read(count: int = 1, attempts: int = 1, hook_id: str = "hook_1") -> list[DeliveryRow]:
        async with asyncio.timeout(20):
            while True:
                rows = await store.hooks.deliveries.page(PROJECT, hook_id, None, None, 1000)
                ended = [row for row in rows if row.duration_s is not None and row.attempts >= attempts]
                if len([row for row in ended if row.state is not DeliveryState.PENDING or row.error]) >= count:
                    return rows[::-1]
                await asyncio.sleep(0.02)

    return read
