"""Garbage collection of the blob store: it removes unused archives and abandoned uploads."""

import asyncio

import structlog

from regroup.service.blobs.store import BlobStore
from regroup.service.domain.errors import UnavailableError
from regroup.service.store.store import Store

_INTERVAL_S = 3600.0
_log = structlog.get_logger(__name__)


async def run_garbage_collection(blobs: BlobStore, store: Store, interval_s: float = _INTERVAL_S) -> None:
    """Collect garbage now and every `interval_s`, until cancelled. Several servers may do so at the same time."""
    while True:
        try:
            await collect_garbage(blobs, store)
        except UnavailableError as error:
            _log.warning("garbage collection of the blob store is delayed", error=str(error))
        await asyncio.sleep(interval_s)


async def collect_garbage(blobs: BlobStore, store: Store) -> None:
    """Remove unused archives. The code of a job that has not ended is in use."""
    unfinished = [*await store.queued_jobs(), *await store.queue.suspended(), *await store.live_jobs()]
    in_use = {str(code["archive"]) for job in unfinished if (code := job.spec.get("code"))}
    for archive in await blobs.collect_garbage(in_use):
        _log.info("removed an unused code archive", archive=archive)
