"""Files in durable storage that are written in chunks: in a folder, as a multipart upload, or in order. Blocking."""

import os
import posixpath
import threading
import uuid
from pathlib import Path
from typing import Any, Protocol

from regroup.workers.contract.checkpoint_manifest import CHUNK_BYTES
from regroup.workers.storage import fsspec_storage

_MOST_PARTS = 10_000
"""Most parts of an upload to S3."""


class FileTarget(Protocol):
    """A file that becomes visible when it is complete."""

    is_in_order: bool
    """True if one thread must write the chunks one after the other."""

    def write(self, start: int, data: memoryview) -> None:
        """Write one chunk of the file."""
        ...

    def finish(self) -> None:
        """Make the complete file visible and durable."""
        ...

    def abort(self) -> None:
        """Remove what was written."""
        ...


def open_target(uri: str, name: str, size_bytes: int, device: str = "") -> FileTarget:
    """Return the target of a file below `uri`.

    Args:
        uri: Folder.
        name: Name of the file in it.
        size_bytes: Size that the file will have.
        device: Device that gets the last chunk instead, for a planned fault.
    """
    place = fsspec_storage.join(uri, name)
    if (path := fsspec_storage.local_path(place)) is not None:
        return LocalFile(path, size_bytes, device)
    fs, key = fsspec_storage.open_storage(place)
    if hasattr(fs, "call_s3") and CHUNK_BYTES < size_bytes <= CHUNK_BYTES * _MOST_PARTS:
        return S3Upload(fs, key)
    return OrderedFile(fs, key)


class LocalFile:
    """File in a folder. It gets its name when all of it is on the disk."""

    is_in_order = False

    def __init__(self, path: Path, size_bytes: int, device: str = "") -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._last = max(0, size_bytes - 1) // CHUNK_BYTES * CHUNK_BYTES
        self._device = device
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, start: int, data: memoryview) -> None:
        """Write at a position."""
        if self._device and start == self._last:
            with Path(self._device).open("r+b", buffering=0) as device:
                os.pwrite(device.fileno(), data[:1], 0)
        while data:
            count = os.pwrite(self._fd, data, start)
            data, start = data[count:], start + count

    def finish(self) -> None:
        """Wait until the disk has the file, and rename it."""
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._draft.replace(self._path)
        _sync_folder(self._path.parent)

    def abort(self) -> None:
        """Remove the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._draft.unlink(missing_ok=True)


class S3Upload:
    """Multipart upload to S3. Its parts are chunks, sent at the same time."""

    is_in_order = False

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self._bucket, self._key, _ = fs.split_path(path)
        self._lock = threading.Lock()
        self._upload = ""
        self._parts: dict[int, str] = {}

    def write(self, start: int, data: memoryview) -> None:
        """Send one part."""
        number = start // CHUNK_BYTES + 1
        sent = self._call("upload_part", PartNumber=number, UploadId=self._begun(), Body=bytes(data))
        self._parts[number] = sent["ETag"]

    def finish(self) -> None:
        """Complete the upload."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in sorted(self._parts.items())]
        self._call("complete_multipart_upload", UploadId=self._begun(), MultipartUpload={"Parts": parts})
        self._fs.invalidate_cache(self._path)

    def abort(self) -> None:
        """Remove the parts, as far as the storage answers."""
        if self._upload:
            try:
                self._call("abort_multipart_upload", UploadId=self._upload)
            except OSError:
                return  # the storage removes old uploads by its own rules

    def _begun(self) -> str:
        with self._lock:
            if not self._upload:
                self._upload = self._call("create_multipart_upload")["UploadId"]
            return self._upload

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._fs.call_s3(method, Bucket=self._bucket, Key=self._key, **arguments)


class OrderedFile:
    """File that the storage's own client writes from the beginning to the end."""

    is_in_order = True

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self._file: Any = None

    def write(self, start: int, data: memoryview) -> None:
        """Append a chunk."""
        if self._file is None:
            self._file = self._fs.open(self._path, "wb")
        self._file.write(data)

    def finish(self) -> None:
        """Close the file, which completes it."""
        self._file.close()
        self._fs.invalidate_cache(posixpath.dirname(self._path))

    def abort(self) -> None:
        """Drop what was not sent."""
        if self._file is not None and not self._file.closed:
            self._file.discard()
            self._file.closed = True  # otherwise its end would complete it


def _sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
