"""A folder of blobs in durable storage (file, s3, gs by fsspec). Blocking.

Below its URI:

    sha256/<hex>                                an archive: whole and verified, or not there
    used/<hex>                                  when it was last used, in Unix seconds
    uploads/<hex>-<size>/<offset>-<n>-<time>    n bytes of an archive on its way
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

_CHUNK_BYTES = 4 * 2**20
_UPLOAD_KEPT_S = 24 * 3600.0
_PART = re.compile(r"(\d+)-(\d+)-(\d+)")


class DamagedUploadError(RegroupError):
    """The bytes that came are not those that were announced."""


class OffsetError(ConflictError):
    """The bytes do not follow those that are there; `offset_bytes` says where to go on."""

    def __init__(self, offset_bytes: int, got: int) -> None:
        self.offset_bytes = offset_bytes
        super().__init__(f"these bytes begin at {got}, the upload stands at {offset_bytes}: go on from there")


@dataclass(frozen=True)
class _Part:
    path: str
    offset: int
    size_bytes: int
    written_s: int
    is_whole: bool
    """Otherwise it is still being written, or its writer died."""


class BlobFolder:
    """One blob store, seen anew: nothing is remembered between two of these."""

    def __init__(self, uri: str) -> None:
        from fsspec.core import url_to_fs  # a server starts without it; it imports the storage's own package, too

        self._fs, self._root = url_to_fs(uri, use_listings_cache=False)

    def offset(self, sha256: str, size: int, now_s: float) -> int | None:
        """Where the upload of an archive goes on; None if the archive is here, which counts as a use."""
        if self._size(self._blob(sha256)) == size:
            self._mark_used(sha256, now_s)
            return None
        return _reach(self._chain(sha256, size))

    def append(self, sha256: str, size: int, offset: int, data: bytes, now_s: float) -> int | None:
        """Add bytes; returns where to go on, None once the archive is here.

        Raises:
            OffsetError: the upload stands elsewhere.
            DamagedUploadError: too many bytes, or together they are another archive; the upload is dropped.
        """
        at = self.offset(sha256, size, now_s)
        if at is None:
            return None
        if offset != at:
            raise OffsetError(at, offset)
        if offset + len(data) > size:
            raise DamagedUploadError(f"{offset + len(data)} bytes came of an archive of {size}: announce what you send")
        try:
            if data:
                # Named by offset and length: two writers of the same bytes never overwrite each other.
                self._write(f"{self._upload(sha256, size)}/{offset}-{len(data)}-{int(now_s)}", data)
            if offset + len(data) == size:
                self._finish(sha256, size, now_s)
        except FileNotFoundError:
            pass  # another request finished the same upload, or dropped it
        return self.offset(sha256, size, now_s)

    def use(self, sha256: str, now_s: float) -> bool:
        """Whether the archive is here; if so, remember that it was used."""
        if self._size(self._blob(sha256)) is None:
            return False
        self._mark_used(sha256, now_s)
        return self._size(self._blob(sha256)) is not None  # a sweep may have been at it before it saw the mark

    def sweep(self, in_use: Collection[str], kept_s: float, now_s: float) -> list[str]:
        """Remove archives unused for `kept_s`, and uploads that brought nothing for a day; returns the archives."""
        removed: list[str] = []
        for sha256 in sorted(self._names("sha256")):
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                continue
            used_s = self._used_s(sha256)
            if sha256 in in_use or used_s is None:
                self._mark_used(sha256, now_s)
            elif now_s - used_s > kept_s:
                self._remove(self._blob(sha256))
                self._remove(f"{self._root}/used/{sha256}")
                removed.append(sha256)
        for upload in sorted(self._names("uploads")):
            folder = f"{self._root}/uploads/{upload}"
            if now_s - max((part.written_s for part in self._parts(folder)), default=0) > _UPLOAD_KEPT_S:
                self._remove(folder)
        return removed

    # ------------------------------------------------------------ uploads

    def _finish(self, sha256: str, size: int, now_s: float) -> None:
        """Put the parts together under their address, or drop them if they are something else."""
        folder = self._upload(sha256, size)
        draft = f"{folder}/whole.{uuid.uuid4().hex}"
        digest = hashlib.sha256()
        parts = self._chain(sha256, size)
        if _reach(parts) != size:
            return  # another request is removing them
        with self._fs.open(draft, "wb") as whole:
            for part in parts:
                with self._fs.open(part.path, "rb") as reader:
                    while chunk := reader.read(_CHUNK_BYTES):
                        digest.update(chunk)
                        whole.write(chunk)
        if digest.hexdigest() == sha256:
            self._mark_used(sha256, now_s)
            self._make_folder(f"{self._root}/sha256")
            self._fs.mv(draft, self._blob(sha256))
        self._remove(folder)
        if digest.hexdigest() != sha256:
            raise DamagedUploadError(
                f"the {size} bytes that came have sha256 {digest.hexdigest()}, not {sha256}; "
                "they are dropped: begin again"
            )

    def _chain(self, sha256: str, size: int) -> list[_Part]:
        """The parts that follow each other from the first byte on."""
        longest: dict[int, _Part] = {}
        for part in self._parts(self._upload(sha256, size)):
            if not part.is_whole:
                continue
            if part.offset not in longest or longest[part.offset].size_bytes < part.size_bytes:
                longest[part.offset] = part
        chain: list[_Part] = []
        while part := longest.get(_reach(chain)):
            chain.append(part)
        return chain

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
        except (FileNotFoundError, ValueError):  # none yet, or just being written
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
        """Only where folders exist: object storage would make a bucket up out of a mistyped name."""
        if "file" in self._fs.protocol:
            self._fs.makedirs(path, exist_ok=True)

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm(path, recursive=True)
        except OSError as error:
            # Another request removes the same, or writes there: what is left goes with the sweep.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) and not isinstance(error, FileNotFoundError):
                raise


def _reach(chain: list[_Part]) -> int:
    return chain[-1].offset + chain[-1].size_bytes if chain else 0
