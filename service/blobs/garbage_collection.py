"""The server's broom in the blob store: archives that no job used for long, uploads that nobody goes on with."""

import asyncio

import structlog

from regroup.service.blobs.store import Blobs
from regroup.service.domain.errors import UnavailableError
from regroup.service.store.store import Store

_EVERY_S = 3600.0
_log = structlog.get_logger(__name__)


async def keep_swept(blobs: Blobs, store: Store, every_s: float = _EVERY_S) -> None:
    """Sweep now and every `every_s`, until cancelled. Several servers may: what one removed the other finds gone."""
    while True:
        try:
            await sweep(blobs, store)
        except UnavailableError as error:
            _log.warning("sweeping the blob store is delayed", error=str(error))
        await asyncio.sleep(every_s)


async def sweep(blobs: Blobs, store: Store) -> None:
    """Remove what was not used for long; the code of a job that is not over is in use, however long it runs."""
    unfinished = [*await store.queued_jobs(), *await store.queue.suspended(), *await store.live_jobs()]
    in_use = {job.spec["code"]["archive"] for job in unfinished if job.spec.get("code")}
    for archive in await blobs.sweep(in_use):
        _log.info("removed unused code", archive=archive)
