"""The size of the blob store, measured now and then, so that a scrape of the metrics does not wait for storage."""

import asyncio

import structlog

from regroup.service.blobs.store import BlobStore
from regroup.service.domain.errors import UnavailableError

_EVERY_S = 60.0
_log = structlog.get_logger(__name__)


class BlobUsage:
    """The newest measurement of this server."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        """Size of all code archives and unfinished uploads; None while it is unknown."""

    async def measure(self, blobs: BlobStore) -> None:
        """Measure the size. It is unknown if the storage does not answer."""
        try:
            self.bytes = await blobs.used_bytes()
        except UnavailableError as error:
            self.bytes = None
            _log.warning("the size of all code archives is unknown", error=str(error))


async def run_measurement(blobs: BlobStore, usage: BlobUsage, every_s: float = _EVERY_S) -> None:
    """Measure the size now and every `every_s`, until cancelled."""
    while True:
        await usage.measure(blobs)
        await asyncio.sleep(every_s)
