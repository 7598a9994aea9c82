"""The blob store: archives under their content address, and their uploads.

The id of an upload is its archive's checksum and size, and its progress is in its parts (`backend.py`). So any server
can continue an upload that another server began, and two clients that send the same archive share one upload.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from regroup.service.blobs.backend import (
    BlobFolder,
    DamagedUploadError,
    OffsetError,
    QuotaExceededError,
    RefusedArchiveError,
)
from regroup.service.domain.errors import RegroupError, UnavailableError
from regroup.workers.contract.archive_rules import ArchiveLimits

__all__ = [
    "ArchiveKey",
    "BlobStore",
    "DamagedUploadError",
    "OffsetError",
    "QuotaExceededError",
    "RefusedArchiveError",
    "TooLargeError",
    "Upload",
]
_PREFIX = "sha256:"
T = TypeVar("T")


class TooLargeError(RegroupError):
    """The archive is larger than the limit of this server."""


@dataclass(frozen=True)
class ArchiveKey:
    """Checksum and size of an archive that a client uploads."""

    sha256: str
    """64 hexadecimal digits."""
    size_bytes: int

    @classmethod
    def from_id(cls, upload_id: str) -> "ArchiveKey":
        """Parse the id of an upload."""
        sha256, _, size = upload_id.partition("-")
        return cls(sha256, int(size))

    @property
    def id(self) -> str:
        """Id of the upload."""
        return f"{self.sha256}-{self.size_bytes}"

    @property
    def archive(self) -> str:
        """Content address of the archive, as in a spec."""
        return _PREFIX + self.sha256


@dataclass(frozen=True)
class Upload:
    """State of an upload."""

    key: ArchiveKey
    offset_bytes: int
    """Offset at which the upload continues."""
    complete: bool
    """True once the archive is verified and stored."""


class BlobStore:
    """Archives by content address. Every call raises UnavailableError if the storage fails.

    Args:
        uri: folder that only this store uses.
        limit_bytes: maximum size of an archive, packed and unpacked.
        quota_bytes: maximum size of all archives and unfinished uploads together.
        retention_s: time after its last use at which an archive is removed.
        clock: Unix seconds.
    """

    def __init__(
        self, uri: str, *, limit_bytes: int, quota_bytes: int, retention_s: float, clock: Callable[[], float]
    ) -> None:
        self.uri = uri
        self.limit_bytes = limit_bytes
        self.quota_bytes = quota_bytes
        self._retention_s = retention_s
        self._clock = clock

    async def start_upload(self, key: ArchiveKey) -> Upload:
        """Start an upload, or return the state of one that was started before.

        Raises:
            TooLargeError: the archive is larger than the limit.
            QuotaExceededError: there is no space for the archive.
        """
        self._check_size(key)
        sha256, size = key.sha256, key.size_bytes
        return self._upload(key, await self._in_thread(lambda folder: folder.start(sha256, size, self._clock())))

    async def append(self, key: ArchiveKey, offset_bytes: int, data: bytes) -> Upload:
        """Add bytes to an upload. The last bytes complete it: the archive is verified and stored.

        Raises:
            TooLargeError: the archive is larger than the limit.
            QuotaExceededError: there is no space for the archive.
            OffsetError: the upload continues at another offset.
            DamagedUploadError: there are too many bytes or pieces, or the checksum is wrong and the upload was
                discarded.
            RefusedArchiveError: the archive breaks a rule, and the upload was discarded.
        """
        self._check_size(key)
        sha256, size = key.sha256, key.size_bytes
        offset = await self._in_thread(lambda folder: folder.append(sha256, size, offset_bytes, data, self._clock()))
        return self._upload(key, offset)

    async def used_bytes(self) -> int:
        """Return the size of all archives and unfinished uploads. An upload counts with its announced size."""
        return await self._in_thread(lambda folder: folder.used_bytes())

    async def touch(self, archive: str) -> bool:
        """Record a use of the archive, which restarts its retention time. Return False if it is not stored."""
        return await self._in_thread(lambda folder: folder.touch(archive.removeprefix(_PREFIX), self._clock()))

    async def collect_garbage(self, in_use: Iterable[str]) -> list[str]:
        """Remove archives without a use for the retention time, and uploads without new bytes for a day.

        Args:
            in_use: archives of jobs that have not ended; they count as used now.

        Returns:
            The removed archives.
        """
        used = {archive.removeprefix(_PREFIX) for archive in in_use}
        removed = await self._in_thread(lambda folder: folder.collect_garbage(used, self._retention_s, self._clock()))
        return [_PREFIX + sha256 for sha256 in removed]

    def _check_size(self, key: ArchiveKey) -> None:
        if key.size_bytes > self.limit_bytes:
            raise TooLargeError(
                f"archive too large: {key.size_bytes} bytes, limit {self.limit_bytes}; exclude files that the code "
                "does not need (.regroupignore), store data elsewhere, or raise REGROUP_UPLOAD_LIMIT_BYTES"
            )

    @staticmethod
    def _upload(key: ArchiveKey, offset_bytes: int | None) -> Upload:
        return Upload(key, key.size_bytes if offset_bytes is None else offset_bytes, offset_bytes is None)

    async def _in_thread(self, call: Callable[[BlobFolder], T]) -> T:
        def run() -> T:
            try:
                limits = ArchiveLimits(unpacked_bytes=self.limit_bytes)
                return call(BlobFolder(self.uri, limits, self.quota_bytes))
            except RegroupError:
                raise
            except Exception as error:  # each storage has its own error classes
                raise UnavailableError(f"blob store {self.uri}: {type(error).__name__}: {error}") from error

        return await asyncio.to_thread(run)
