"""Garbage collection of the blob store, with a real database."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from regroup.service.blobs.garbage_collection import collect_garbage, run_garbage_collection
from regroup.service.blobs.store import ArchiveKey, BlobStore
from regroup.service.domain.author import Author
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import NewJob
from regroup.service.store.store import Store
from tests.support.doubles.fake_clock import Clock
from tests.support.inputs.archives import tar_of
from tests.support.servers.stores import open_store

RETENTION_S = 3600.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def blobs(tmp_path: Path, clock: Clock) -> BlobStore:
    return BlobStore(
        str(tmp_path / "blobs"), limit_bytes=20_000, quota_bytes=10**6, retention_s=RETENTION_S, clock=clock
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def upload(blobs: BlobStore, name: str) -> str:
    data = tar_of({name: b""})
    key = ArchiveKey(hashlib.sha256(data).hexdigest(), len(data))
    await blobs.append(key, 0, data)
    return key.archive


async def submit(store: Store, name: str, **fields: Any) -> str:
    training = {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": name, "workload": workload, "training": training, **fields})
    return (
        await store.submissions.submit(
            NewJob(f"j-{name}", spec, "file:///s", None), now=time.time(), author=Author("test")
        )
    ).id


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # a file emits no event
            await asyncio.sleep(0.02)


async def test_code_outlives_every_job_that_needs_it(store: Store, blobs: BlobStore, clock: Clock) -> None:
    unused, needed = await upload(blobs, "unused"), await upload(blobs, "needed")
    job_id = await submit(store, "long", code={"archive": needed})
    await submit(store, "plain")
    clock.now_s += RETENTION_S + 1
    await collect_garbage(blobs, store)
    assert not await blobs.touch(unused)
    await store.queue.suspend(job_id, "for the night", now=time.time(), author=Author("test"))
    clock.now_s += RETENTION_S + 1
    await collect_garbage(blobs, store)
    assert await blobs.touch(needed), "the suspended job may be resumed"
    await store.cancel(job_id, now=time.time(), author=Author("test"))
    clock.now_s += RETENTION_S - 1
    await collect_garbage(blobs, store)
    clock.now_s += 2
    await collect_garbage(blobs, store)
    assert not await blobs.touch(needed), "its job has ended, and its last use is longer ago than the retention time"


async def test_garbage_collection_continues_after_an_outage_of_the_storage(
    store: Store, blobs: BlobStore, clock: Clock, tmp_path: Path
) -> None:
    archive = await upload(blobs, "unused")
    clock.now_s += RETENTION_S + 1
    (tmp_path / "blobs").rename(tmp_path / "away")
    (tmp_path / "blobs").touch()
    stored = tmp_path / "blobs" / "sha256" / archive.removeprefix("sha256:")
    with capture_logs() as logs:
        task = asyncio.create_task(run_garbage_collection(blobs, store, interval_s=0.02))
        await wait_until(lambda: any("delayed" in entry["event"] for entry in logs))
        (tmp_path / "blobs").unlink()
        (tmp_path / "away").rename(tmp_path / "blobs")
        await wait_until(lambda: not stored.exists())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
