"""The blob store: archives under their content address, and the uploads that bring them.

An upload is named by what it brings and knows how far it is by its parts (`backend.py`), so any server can go on
with what another one began, and the same upload from two sides is one upload.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from regroup.service.blobs.backend import BlobFolder, DamagedUploadError, OffsetError
from regroup.service.domain.errors import RegroupError, UnavailableError

__all__ = ["Announced", "Blobs", "DamagedUploadError", "OffsetError", "TooLargeError", "Upload"]
_PREFIX = "sha256:"
T = TypeVar("T")


class TooLargeError(RegroupError):
    """The archive is larger than this server takes."""


@dataclass(frozen=True)
class Announced:
    """An archive that somebody wants to bring."""

    sha256: str
    """64 hexadecimal digits."""
    size_bytes: int

    @classmethod
    def from_id(cls, upload_id: str) -> "Announced":
        """The archive that an upload of this id brings."""
        sha256, _, size = upload_id.partition("-")
        return cls(sha256, int(size))

    @property
    def id(self) -> str:
        """Of its upload."""
        return f"{self.sha256}-{self.size_bytes}"

    @property
    def archive(self) -> str:
        """Its content address, as a spec names it."""
        return _PREFIX + self.sha256


@dataclass(frozen=True)
class Upload:
    """How far an upload has come."""

    announced: Announced
    offset_bytes: int
    """Where it goes on."""
    complete: bool
    """The archive is stored and verified."""


class Blobs:
    """Archives by content address. Every call raises UnavailableError where the storage refuses.

    Args:
        uri: a folder of its own.
        limit_bytes: the largest archive that is taken.
        kept_s: how long an archive is kept after its last use.
        clock: Unix seconds.
    """

    def __init__(self, uri: str, *, limit_bytes: int, kept_s: float, clock: Callable[[], float]) -> None:
        self.uri = uri
        self.limit_bytes = limit_bytes
        self._kept_s = kept_s
        self._clock = clock

    async def announce(self, announced: Announced) -> Upload:
        """Begin an upload, or find how far it is.

        Raises:
            TooLargeError: the archive is larger than the limit.
        """
        self._check_size(announced)
        sha256, size = announced.sha256, announced.size_bytes
        return self._upload(announced, await self._off_loop(lambda folder: folder.offset(sha256, size, self._clock())))

    async def append(self, announced: Announced, offset_bytes: int, data: bytes) -> Upload:
        """Add bytes to an upload; with the last ones the archive is verified and stored.

        Raises:
            TooLargeError: the archive is larger than the limit.
            OffsetError: the upload stands elsewhere.
            DamagedUploadError: there are too many bytes, or together they are another archive and dropped.
        """
        self._check_size(announced)
        sha256, size = announced.sha256, announced.size_bytes
        came = await self._off_loop(lambda folder: folder.append(sha256, size, offset_bytes, data, self._clock()))
        return self._upload(announced, came)

    async def use(self, archive: str) -> bool:
        """Whether the archive is here; if so, it is kept for as long again."""
        return await self._off_loop(lambda folder: folder.use(archive.removeprefix(_PREFIX), self._clock()))

    async def sweep(self, in_use: Iterable[str]) -> list[str]:
        """Remove archives that were not used for `kept_s`, and uploads that brought nothing for a day.

        Args:
            in_use: archives of jobs that are not over; they count as used now.

        Returns:
            The archives that were removed.
        """
        used = {archive.removeprefix(_PREFIX) for archive in in_use}
        removed = await self._off_loop(lambda folder: folder.sweep(used, self._kept_s, self._clock()))
        return [_PREFIX + sha256 for sha256 in removed]

    def _check_size(self, announced: Announced) -> None:
        if announced.size_bytes > self.limit_bytes:
            raise TooLargeError(
                f"the archive has {announced.size_bytes} bytes, this server takes {self.limit_bytes}: leave out what "
                "the code does not need (.regroupignore), keep data elsewhere, or raise REGROUP_UPLOAD_LIMIT_BYTES"
            )

    @staticmethod
    def _upload(announced: Announced, offset_bytes: int | None) -> Upload:
        return Upload(announced, announced.size_bytes if offset_bytes is None else offset_bytes, offset_bytes is None)

    async def _off_loop(self, ask: Callable[[BlobFolder], T]) -> T:
        def asking() -> T:
            try:
                return ask(BlobFolder(self.uri))
            except RegroupError:
                raise
            except Exception as error:  # each storage has classes of its own
                raise UnavailableError(f"blob store {self.uri}: {type(error).__name__}: {error}") from error

        return await asyncio.to_thread(asking)
