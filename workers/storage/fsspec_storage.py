"""Copy files between a node and durable storage (file, s3, gs through fsspec), with checksums. Blocking."""

import os
import posixpath
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Collection, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from regroup.workers.contract.checkpoint_manifest import ManifestError, checked_name
from regroup.workers.contract.storage_uri import checked_uri

_CHUNK_BYTES = 4 * 1024 * 1024
_STREAMS = 8
"""Files that are downloaded at the same time."""


class StorageError(Exception):
    """Durable storage refused a call, or lacks expected content."""


class StorageUnavailable(OSError):
    """Durable storage did not answer. Its content may be intact."""


def open_storage(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path in it.

    Raises:
        StorageUriError: the URI has none of the accepted forms.
    """
    fs, path = url_to_fs(checked_uri(uri))
    return fs, path


def join(uri: str, *parts: str) -> str:
    """Return a URI below `uri`."""
    return posixpath.join(uri, *parts)


@contextmanager
def answering(folder: str) -> Generator[None]:
    """Distinguish storage that does not answer from storage that lacks content, for reads below `folder`.

    Raises:
        StorageUnavailable: The body raised anything but StorageError. Or it raised StorageError, and the parent folder
            is missing too, as it is while a file system is not mounted.
    """
    try:
        yield
    except StorageError as error:
        if has_vanished(posixpath.dirname(folder.rstrip("/"))):
            raise StorageUnavailable(
                f"{folder} and its parent folder do not exist: is the file system mounted?"
            ) from error
        raise
    except Exception as error:
        raise StorageUnavailable(f"{folder} cannot be read: {type(error).__name__}: {error}") from error


def check_writable(uri: str) -> None:
    """Prove that `uri` can be written by writing, reading and removing a small file.

    Raises:
        StorageError: The storage refused; the message gives its reason.
    """
    probe = join(uri, f".regroup-write-probe-{uuid.uuid4().hex}")  # nodes probe at the same time
    try:
        write_bytes(probe, b"regroup")
        fs, path = open_storage(probe)
        fs.rm(path)
    except Exception as error:
        raise StorageError(f"storage_uri {uri!r} is not writable: {type(error).__name__}: {error}") from error


def write_bytes(uri: str, data: bytes) -> None:
    """Write one small file, and create its folder if the storage has folders."""
    fs, path = open_storage(uri)
    _make_folder(fs, posixpath.dirname(path))
    fs.pipe_file(path, data)


@contextmanager
def writing(uri: str) -> Generator[Any]:
    """Open a file for writing bytes, and create its folder if the storage has folders."""
    fs, path = open_storage(uri)
    _make_folder(fs, posixpath.dirname(path))
    with fs.open(path, "wb") as file:
        yield file


def publish(source: Path, uri: str) -> None:
    """Copy a file to `uri` atomically.

    Raises:
        StorageError: The storage refused; the message gives its reason.
    """
    try:
        fs, path = open_storage(uri)
        _make_folder(fs, posixpath.dirname(path))
        if "file" not in _protocols(fs):
            fs.put_file(str(source), path)  # object storage shows an object only when it is complete
            return
        draft = Path(path).with_name(f".{posixpath.basename(path)}.{uuid.uuid4().hex}")
        try:
            shutil.copyfile(source, draft)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except Exception as error:
        raise StorageError(f"{uri} cannot be written: {type(error).__name__}: {error}") from error


def publish_bytes(uri: str, data: bytes) -> None:
    """Write one small file atomically.

    Raises:
        StorageError: The storage refused; the message gives its reason.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        publish(Path(file.name), uri)


def read_bytes(uri: str) -> bytes | None:
    """Return the content of a small file, or None if it does not exist."""
    fs, path = open_storage(uri)
    try:
        return fs.cat_file(path)
    except FileNotFoundError:
        return None


def read_verified(uri: str, name: str, files: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content of a small file below `uri` that a manifest lists.

    Raises:
        StorageError: The manifest does not list it, or it is missing or altered.
    """
    entry = next((entry for entry in files if entry["name"] == name), None)
    if entry is None:
        raise StorageError(f"the manifest of {uri} lists no file {name}")
    data = read_bytes(join(uri, name))
    if data is None:
        raise StorageError(f"{join(uri, name)} is named in the manifest but missing")
    _check_content(join(uri, name), entry, len(data), zlib.crc32(data))
    return data


def upload(source: Path, uri: str) -> list[dict[str, Any]]:
    """Copy every file of a local folder below `uri`; return name, size_bytes and crc32 of each."""
    fs, root = open_storage(uri)
    _make_folder(fs, root)
    entries: list[dict[str, Any]] = []
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        name = file.relative_to(source).as_posix()
        target = posixpath.join(root, name)
        if "/" in name:
            _make_folder(fs, posixpath.dirname(target))
        crc = 0
        with file.open("rb") as reader, fs.open(target, "wb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                crc = zlib.crc32(chunk, crc)
                writer.write(chunk)
        entries.append({"name": name, "size_bytes": file.stat().st_size, "crc32": crc})
    return entries


def download(uri: str, target: Path, files: Iterable[Mapping[str, Any]]) -> None:
    """Copy the named files of `uri` into a local folder in parallel, verifying size and crc32 of each.

    Files of older checkpoints come into other folders of the same parent, as in storage.

    Raises:
        StorageError: A file is missing, short or altered, or its name leads to another place.
    """
    target.mkdir(parents=True, exist_ok=True)
    entries = list(files)
    try:
        names = [checked_name(entry["name"]) for entry in entries]
    except ManifestError as error:
        raise StorageError(f"the manifest of {uri} is damaged: {error}") from error
    with ThreadPoolExecutor(_STREAMS, "download") as pool:
        running = [pool.submit(_download, uri, target, *each) for each in zip(names, entries, strict=True)]
        try:
            for each in running:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _download(uri: str, target: Path, name: str, entry: Mapping[str, Any]) -> None:
    fs, root = open_storage(uri)
    path = posixpath.normpath(posixpath.join(root, name))
    local = Path(os.path.normpath(target / name))
    local.parent.mkdir(parents=True, exist_ok=True)
    crc = size = 0
    try:
        with fs.open(path, "rb") as reader, local.open("wb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                crc = zlib.crc32(chunk, crc)
                size += len(chunk)
                writer.write(chunk)
    except FileNotFoundError as error:
        raise StorageError(f"{join(uri, name)} is named in the manifest but missing") from error
    _check_content(join(uri, name), entry, size, crc)


def fetch(uri: str, target: Path) -> None:
    """Copy one file to this node.

    Raises:
        StorageError: The storage refused; the message gives its reason.
    """
    try:
        fs, path = open_storage(uri)
        fs.get_file(path, str(target))
    except Exception as error:
        raise StorageError(f"{uri} cannot be read: {type(error).__name__}: {error}") from error


def folders(uri: str) -> list[str]:
    """Return the names of the folders directly below `uri`; empty if it does not exist."""
    fs, root = open_storage(uri)
    try:
        listing: list[dict[str, Any]] = fs.ls(root, detail=True, refresh=True)
    except FileNotFoundError:
        return []
    return sorted(posixpath.basename(item["name"].rstrip("/")) for item in listing if item["type"] == "directory")


def remove(uri: str) -> None:
    """Remove a folder and everything below it, if it exists.

    Raises:
        StorageUnavailable: Storage did not answer.
    """
    with answering(uri):
        fs, root = open_storage(uri)
        if fs.exists(root):
            fs.rm(root, recursive=True)


def remove_file(uri: str) -> None:
    """Remove one file."""
    fs, path = open_storage(uri)
    fs.rm_file(path)


def remove_files(uri: str, excluded: Collection[str]) -> None:
    """Remove the files of a folder, except those with these names relative to it."""
    fs, root = open_storage(uri)
    fs.invalidate_cache(root)
    found = [str(path) for path in fs.find(root)]
    if surplus := [path for path in found if posixpath.relpath(path, root) not in excluded]:
        fs.rm(surplus)


def missing_files(uri: str, files: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of those files of a manifest that are not below `uri` with their size."""
    fs, root = url_to_fs(uri)
    entries = list(files)
    folders = {posixpath.normpath(posixpath.join(root, posixpath.dirname(entry["name"]))) for entry in entries}
    sizes: dict[str, int] = {}
    for folder in sorted({root, *folders}):
        fs.invalidate_cache(folder)
        listed: dict[str, Any] = fs.find(folder, detail=True)
        sizes |= {posixpath.relpath(path, root): found["size"] for path, found in listed.items()}
    return sorted(str(entry["name"]) for entry in entries if sizes.get(entry["name"]) != entry["size_bytes"])


def _check_content(place: str, entry: Mapping[str, Any], size_bytes: int, crc32: int) -> None:
    if (size_bytes, crc32) != (entry["size_bytes"], entry["crc32"]):
        raise StorageError(
            f"{place} is damaged: {size_bytes} bytes with crc32 {crc32}, "
            f"the manifest says {entry['size_bytes']} with {entry['crc32']}"
        )


def has_vanished(uri: str) -> bool:
    """Return True if a folder that was created is missing. Object storage has no folders."""
    fs, path = open_storage(uri)
    return "file" in _protocols(fs) and not fs.exists(path)


def local_path(uri: str) -> Path | None:
    """Return the path of a `file:` URI or a plain path; None for object storage."""
    fs, path = open_storage(uri)
    return Path(path) if "file" in _protocols(fs) else None


def read_all(fd: int, most_bytes: int) -> bytes:
    """Return the content of a memory file, at most this number of bytes."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.read(most_bytes)


def write_all(fd: int, data: bytes) -> None:
    """Append all of the data to a memory file."""
    with open(fd, "wb", closefd=False) as file:
        file.write(data)


def remove_local(path: Path) -> None:
    """Remove a local scratch folder in any state."""
    shutil.rmtree(path, ignore_errors=True)


def _make_folder(fs: fsspec.AbstractFileSystem, path: str) -> None:
    """Create a folder if the storage has folders. Object storage would create a bucket from a mistyped name."""
    if "file" in _protocols(fs):
        fs.makedirs(path, exist_ok=True)


def _protocols(fs: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
