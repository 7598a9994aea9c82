"""A folder of blobs in durable storage (file, s3, gs by fsspec). All calls block.

Layout below the URI:

    sha256/<hex>                                a complete, verified archive
    used/<hex>                                  time of the archive's last use, in Unix seconds
    uploads/<hex>-<size>/<offset>-<n>-<time>    n bytes of an unfinished upload
"""

import errno
import hashlib
import posixpath
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import ConflictError, RegroupError
from regroup.workers.contract.archive_rules import ArchiveLimits, ArchiveRefused, check_archive
from regroup.workers.contract.storage_uri import checked_uri

_CHUNK_BYTES = 4 * 2**20
_UPLOAD_RETENTION_S = 24 * 3600.0
_MOST_PARTS = 4096
_LARGE_PART_BYTES = 2**20
_PART = re.compile(r"(\d+)-(\d+)-(\d+)")


class DamagedUploadError(RegroupError):
    """The uploaded bytes do not match the announced size or checksum."""


class RefusedArchiveError(RegroupError):
    """The uploaded archive breaks a rule for archives of code, or is not an archive."""


class QuotaExceededError(RegroupError):
    """All archives together would exceed the limit of this server."""


class OffsetError(ConflictError):
    """The bytes do not follow those that were uploaded before. `offset_bytes` is the expected offset."""

    def __init__(self, offset_bytes: int, got: int) -> None:
        self.offset_bytes = offset_bytes
        super().__init__(f"upload offset mismatch: got {got}, expected {offset_bytes}; continue from {offset_bytes}")


@dataclass(frozen=True)
class _Part:
    path: str
    offset: int
    size_bytes: int
    written_s: int
    is_whole: bool
    """False while the part is being written, or if its writer died."""


class BlobFolder:
    """One blob store. Each instance reads the storage again: it caches nothing of another instance.

    Args:
        uri: the folder.
        limits: largest archive to store.
        quota_bytes: largest size of all archives and unfinished uploads together.
    """

    def __init__(self, uri: str, limits: ArchiveLimits, quota_bytes: int) -> None:
        from fsspec.core import url_to_fs  # imported late: it also imports the storage's package

        self._limits, self._quota_bytes = limits, quota_bytes
        self._fs, self._root = url_to_fs(checked_uri(uri), use_listings_cache=False)

    def start(self, sha256: str, size: int, now_s: float) -> int | None:
        """Return `next_offset`, if there is space for the archive.

        Raises:
            QuotaExceededError: there is not.
        """
        offset = self.next_offset(sha256, size, now_s)
        if offset is not None:
            self._check_quota(sha256, size)
        return offset

    def next_offset(self, sha256: str, size: int, now_s: float) -> int | None:
        """Return the offset at which the upload of an archive continues.

        Returns:
            None if the archive is stored already; this call then counts as a use of it.
        """
        if self._size(self._blob(sha256)) == size:
            self._mark_used(sha256, now_s)
            return None
        return _end_offset(self._contiguous_parts(sha256, size))

    def append(self, sha256: str, size: int, offset: int, data: bytes, now_s: float) -> int | None:
        """Add bytes, and return the offset at which the upload continues; None once the archive is stored.

        Raises:
            OffsetError: the upload continues at another offset.
            DamagedUploadError: there are too many bytes or pieces, or the checksum is wrong and the upload was
                discarded.
            QuotaExceededError: there is no space for the archive.
            RefusedArchiveError: the archive breaks a rule, and the upload was discarded.
        """
        expected = self.next_offset(sha256, size, now_s)
        if expected is None:
            return None
        if offset != expected:
            raise OffsetError(expected, offset)
        if offset + len(data) > size:
            raise DamagedUploadError(
                f"upload too long: got {offset + len(data)} bytes, announced {size}; announce the actual size"
            )
        self._check_quota(sha256, size)
        if len(self._parts(self._upload(sha256, size))) >= max(_MOST_PARTS, size // _LARGE_PART_BYTES):
            self._remove(self._upload(sha256, size))
            raise DamagedUploadError(
                f"upload in more than {_MOST_PARTS} pieces of less than 1 MiB, the limit; discarded, restart the "
                "upload with larger pieces"
            )
        try:
            if data:
                # The name has offset and length, so two writers of the same bytes never overwrite each other.
                self._write(f"{self._upload(sha256, size)}/{offset}-{len(data)}-{int(now_s)}", data)
            if offset + len(data) == size:
                self._finish(sha256, size, now_s)
        except FileNotFoundError:
            pass  # another request finished or discarded the same upload
        return self.next_offset(sha256, size, now_s)

    def used_bytes(self) -> int:
        """Return the size of all archives and unfinished uploads. An upload counts with its announced size."""
        stored = sum(int(entry["size"]) for entry in self._list(f"{self._root}/sha256"))
        return stored + sum(_announced_bytes(name) for name in self._names("uploads"))

    def touch(self, sha256: str, now_s: float) -> bool:
        """Record a use of the archive. Return False if the archive is not stored."""
        if self._size(self._blob(sha256)) is None:
            return False
        self._mark_used(sha256, now_s)
        return self._size(self._blob(sha256)) is not None  # a garbage collection may have removed it before the mark

    def collect_garbage(self, in_use: Collection[str], retention_s: float, now_s: float) -> list[str]:
        """Remove archives without a use for `retention_s`, and uploads without new bytes for a day.

        Returns:
            The removed archives.
        """
        removed: list[str] = []
        for sha256 in sorted(self._names("sha256")):
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                continue
            used_s = self._used_s(sha256)
            if sha256 in in_use or used_s is None:
                self._mark_used(sha256, now_s)
            elif now_s - used_s > retention_s:
                self._remove(self._blob(sha256))
                self._remove(f"{self._root}/used/{sha256}")
                removed.append(sha256)
        for upload in sorted(self._names("uploads")):
            folder = f"{self._root}/uploads/{upload}"
            if now_s - max((part.written_s for part in self._parts(folder)), default=0) > _UPLOAD_RETENTION_S:
                self._remove(folder)
        return removed

    # ------------------------------------------------------------ uploads

    def _check_quota(self, sha256: str, size: int) -> None:
        """Refuse an upload without a piece so far, if it exceeds the quota. Others are counted already."""
        if self._list(self._upload(sha256, size)):
            return
        used_bytes = self.used_bytes()
        if used_bytes + size > self._quota_bytes:
            raise QuotaExceededError(
                f"no space for an archive of {size} bytes: all archives and uploads together have {used_bytes} bytes, "
                f"limit {self._quota_bytes}; raise REGROUP_BLOB_QUOTA_BYTES, or lower REGROUP_BLOB_RETENTION_S so "
                "that unused archives are removed earlier"
            )

    def _finish(self, sha256: str, size: int, now_s: float) -> None:
        """Store the parts as one archive under its address, or discard them if the checksum is wrong."""
        folder = self._upload(sha256, size)
        draft = f"{folder}/whole.{uuid.uuid4().hex}"
        digest = hashlib.sha256()
        parts = self._contiguous_parts(sha256, size)
        if _end_offset(parts) != size:
            return  # another request is removing them
        with self._fs.open(draft, "wb") as whole:
            for part in parts:
                with self._fs.open(part.path, "rb") as reader:
                    while chunk := reader.read(_CHUNK_BYTES):
                        digest.update(chunk)
                        whole.write(chunk)
        problem = self._find_problem(draft) if digest.hexdigest() == sha256 else ""
        if digest.hexdigest() == sha256 and not problem:
            self._mark_used(sha256, now_s)
            self._make_folder(f"{self._root}/sha256")
            self._fs.mv(draft, self._blob(sha256))
        self._remove(folder)
        if digest.hexdigest() != sha256:
            raise DamagedUploadError(
                f"upload checksum mismatch for {size} bytes: got sha256 {digest.hexdigest()}, expected {sha256}; "
                "discarded, restart the upload"
            )
        if problem:
            raise RefusedArchiveError(f"archive sha256:{sha256} is refused: {problem}")

    def _find_problem(self, path: str) -> str:
        """Return the rule that a complete archive breaks; empty if it breaks none."""
        try:
            with self._fs.open(path, "rb") as file:
                check_archive(file, self._limits)
        except ArchiveRefused as error:
            return str(error)
        return ""

    def _contiguous_parts(self, sha256: str, size: int) -> list[_Part]:
        """Return the parts that follow each other without a gap, from the first byte."""
        longest: dict[int, _Part] = {}
        for part in self._parts(self._upload(sha256, size)):
            if not part.is_whole:
                continue
            if part.offset not in longest or longest[part.offset].size_bytes < part.size_bytes:
                longest[part.offset] = part
        contiguous: list[_Part] = []
        while part := longest.get(_end_offset(contiguous)):
            contiguous.append(part)
        return contiguous

    def _parts(self, folder: str) -> list[_Part]:
        found: list[_Part] = []
        for entry in self._list(folder):
            match = _PART.fullmatch(posixpath.basename(entry["name"]))
            if match:
                offset, size, written_s = (int(digits) for digits in match.groups())
                found.append(_Part(entry["name"], offset, size, written_s, entry["size"] == size))
        return found

    # ------------------------------------------------------------ storage

    def _blob(self, sha256: str) -> str:
        return f"{self._root}/sha256/{sha256}"

    def _upload(self, sha256: str, size: int) -> str:
        return f"{self._root}/uploads/{sha256}-{size}"

    def _mark_used(self, sha256: str, now_s: float) -> None:
        self._write(f"{self._root}/used/{sha256}", str(now_s).encode())

    def _used_s(self, sha256: str) -> float | None:
        try:
            return float(self._fs.cat_file(f"{self._root}/used/{sha256}"))
        except (FileNotFoundError, ValueError):  # missing, or another request is writing it
            return None

    def _size(self, path: str) -> int | None:
        try:
            return int(self._fs.info(path)["size"])
        except FileNotFoundError:
            return None

    def _names(self, folder: str) -> list[str]:
        return [posixpath.basename(entry["name"].rstrip("/")) for entry in self._list(f"{self._root}/{folder}")]

    def _list(self, path: str) -> list[dict[str, Any]]:
        try:
            return self._fs.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return []

    def _write(self, path: str, data: bytes) -> None:
        self._make_folder(posixpath.dirname(path))
        self._fs.pipe_file(path, data)

    def _make_folder(self, path: str) -> None:
        """Create a folder on a file system. Object storage has no folders, and would create a mistyped bucket."""
        if "file" in self._fs.protocol:
            self._fs.makedirs(path, exist_ok=True)

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm(path, recursive=True)
        except OSError as error:
            # Another request removes the same files, or writes there. The next garbage collection removes the rest.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) and not isinstance(error, FileNotFoundError):
                raise


def _announced_bytes(upload: str) -> int:
    """Return the size of an upload with this id; 0 for another name."""
    size = upload.rpartition("-")[2]
    return int(size) if size.isdecimal() else 0


def _end_offset(parts: list[_Part]) -> int:
    return parts[-1].offset + parts[-1].size_bytes if parts else 0
