"""The server's sweep of the blob store, over a real store."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from regroup.service.blobs.garbage_collection import keep_swept, sweep
from regroup.service.blobs.store import Announced, Blobs
from regroup.service.spec.job import parse_spec
from regroup.service.store.records import NewJob
from regroup.service.store.store import Store
from tests.support.fake_clock import Clock

KEPT_S = 3600.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def blobs(tmp_path: Path, clock: Clock) -> Blobs:
    return Blobs(str(tmp_path / "blobs"), limit_bytes=100, kept_s=KEPT_S, clock=clock)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def bring(blobs: Blobs, data: bytes) -> str:
    announced = Announced(hashlib.sha256(data).hexdigest(), len(data))
    await blobs.append(announced, 0, data)
    return announced.archive


async def submit(store: Store, name: str, **fields: Any) -> str:
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": name, "workload": workload, "training": training, **fields})
    return (await store.submit(NewJob(f"j-{name}", spec, "file:///s", None), now=time.time(), actor="test")).id


async def eventually(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not look():  # noqa: ASYNC110  # a file says nothing of itself
            await asyncio.sleep(0.02)


async def test_code_outlives_every_job_that_needs_it(store: Store, blobs: Blobs, clock: Clock) -> None:
    unused, needed = await bring(blobs, b"unused"), await bring(blobs, b"needed")
    job_id = await submit(store, "long", code={"archive": needed})
    await submit(store, "plain")
    clock.now_s += KEPT_S + 1
    await sweep(blobs, store)
    assert not await blobs.use(unused)
    await store.queue.suspend(job_id, "for the night", now=time.time(), actor="test")
    clock.now_s += KEPT_S + 1
    await sweep(blobs, store)
    assert await blobs.use(needed), "it may be resumed"
    await store.cancel(job_id, now=time.time(), actor="test")
    clock.now_s += KEPT_S - 1
    await sweep(blobs, store)
    clock.now_s += 2
    await sweep(blobs, store)
    assert not await blobs.use(needed), "its job is over, and it was in use a kept_s ago"


async def test_the_sweep_goes_on_when_the_storage_comes_back(
    store: Store, blobs: Blobs, clock: Clock, tmp_path: Path
) -> None:
    archive = await bring(blobs, b"unused")
    clock.now_s += KEPT_S + 1
    (tmp_path / "blobs").rename(tmp_path / "away")
    (tmp_path / "blobs").touch()
    kept = tmp_path / "blobs" / "sha256" / archive.removeprefix("sha256:")
    with capture_logs() as logs:
        task = asyncio.create_task(keep_swept(blobs, store, every_s=0.02))
        await eventually(lambda: any("delayed" in entry["event"] for entry in logs))
        (tmp_path / "blobs").unlink()
        (tmp_path / "away").rename(tmp_path / "blobs")
        await eventually(lambda: not kept.exists())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
