"""Moves files between a node and durable storage (file, s3, gs by fsspec), with checksums. Blocking."""

import os
import posixpath
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import url_to_fs

_CHUNK_BYTES = 4 * 1024 * 1024


class StorageError(Exception):
    """Durable storage refused or does not hold what it should."""


class StorageUnavailable(OSError):
    """Durable storage did not answer: what it holds may be as good as before."""


def join(uri: str, *parts: str) -> str:
    """A URI below `uri`."""
    return posixpath.join(uri, *parts)


@contextmanager
def answering(folder: str) -> Generator[None]:
    """Reading below `folder`: tells storage that does not answer from storage that does not hold what it should.

    Raises:
        StorageUnavailable: whatever was raised inside but StorageError; and that, too, where the folder beside what is
            missing is missing itself, as it is while a file system is not mounted.
    """
    try:
        yield
    except StorageError as error:
        if has_vanished(posixpath.dirname(folder.rstrip("/"))):
            raise StorageUnavailable(f"{folder} is not there, nor is the folder it was in") from error
        raise
    except Exception as error:
        raise StorageUnavailable(f"{folder} cannot be read: {type(error).__name__}: {error}") from error


def check_writable(uri: str) -> None:
    """Prove that `uri` can be written by writing, reading and removing a small file.

    Raises:
        StorageError: with the reason the storage gave.
    """
    probe = join(uri, f".regroup-write-probe-{uuid.uuid4().hex}")  # nodes probe at the same time
    try:
        write_bytes(probe, b"regroup")
        fs, path = url_to_fs(probe)
        fs.rm(path)
    except Exception as error:
        raise StorageError(f"storage_uri {uri!r} is not writable: {type(error).__name__}: {error}") from error


def write_bytes(uri: str, data: bytes) -> None:
    """Write one small file, making its folder where folders exist."""
    fs, path = url_to_fs(uri)
    _make_folder(fs, posixpath.dirname(path))
    fs.pipe_file(path, data)


@contextmanager
def writing(uri: str) -> Generator[Any]:
    """A file to write bytes to, making its folder where folders exist."""
    fs, path = url_to_fs(uri)
    _make_folder(fs, posixpath.dirname(path))
    with fs.open(path, "wb") as file:
        yield file


def publish(source: Path, uri: str) -> None:
    """Copy a file to `uri`, where it appears whole or not at all.

    Raises:
        StorageError: with the reason the storage gave.
    """
    try:
        fs, path = url_to_fs(uri)
        _make_folder(fs, posixpath.dirname(path))
        if "file" not in _protocols(fs):
            fs.put_file(str(source), path)  # object storage shows an object when all of it is there
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
    """Write one small file, which appears whole or not at all.

    Raises:
        StorageError: with the reason the storage gave.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        publish(Path(file.name), uri)


def read_bytes(uri: str) -> bytes | None:
    """A small file's content, or None where it does not exist."""
    fs, path = url_to_fs(uri)
    try:
        return fs.cat_file(path)
    except FileNotFoundError:
        return None


def upload(source: Path, uri: str) -> list[dict[str, Any]]:
    """Copy every file of a local folder below `uri`; returns name, size_bytes and crc32 of each."""
    fs, root = url_to_fs(uri)
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
    """Copy the named files of `uri` into a local folder, verifying size and crc32 of each.

    Raises:
        StorageError: a file is missing, short or altered.
    """
    fs, root = url_to_fs(uri)
    target.mkdir(parents=True, exist_ok=True)
    for entry in files:
        path = posixpath.join(root, entry["name"])
        local = target / entry["name"]
        local.parent.mkdir(parents=True, exist_ok=True)
        crc = size = 0
        try:
            with fs.open(path, "rb") as reader, local.open("wb") as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    crc = zlib.crc32(chunk, crc)
                    size += len(chunk)
                    writer.write(chunk)
        except FileNotFoundError as error:
            raise StorageError(f"{join(uri, entry['name'])} is named in the manifest but missing") from error
        if (size, crc) != (entry["size_bytes"], entry["crc32"]):
            raise StorageError(
                f"{join(uri, entry['name'])} is damaged: {size} bytes with crc32 {crc}, "
                f"the manifest says {entry['size_bytes']} with {entry['crc32']}"
            )


def fetch(uri: str, target: Path) -> None:
    """Copy one file to this node.

    Raises:
        StorageError: with the reason the storage gave.
    """
    try:
        fs, path = url_to_fs(uri)
        fs.get_file(path, str(target))
    except Exception as error:
        raise StorageError(f"{uri} cannot be read: {type(error).__name__}: {error}") from error


def folders(uri: str) -> list[str]:
    """Names of the folders directly below `uri`; empty where it does not exist."""
    fs, root = url_to_fs(uri)
    try:
        listing: list[dict[str, Any]] = fs.ls(root, detail=True, refresh=True)
    except FileNotFoundError:
        return []
    return sorted(posixpath.basename(item["name"].rstrip("/")) for item in listing if item["type"] == "directory")


def remove(uri: str) -> None:
    """Remove a folder and all below it; nothing happens where it does not exist.

    Raises:
        StorageUnavailable: storage did not answer.
    """
    with answering(uri):
        fs, root = url_to_fs(uri)
        if fs.exists(root):
            fs.rm(root, recursive=True)


def has_vanished(uri: str) -> bool:
    """Whether a folder that was made is missing; object storage has no folders that could be."""
    fs, path = url_to_fs(uri)
    return "file" in _protocols(fs) and not fs.exists(path)


def local_path(uri: str) -> Path | None:
    """The path of a `file:` URI or a plain path; None for object storage."""
    fs, path = url_to_fs(uri)
    return Path(path) if "file" in _protocols(fs) else None


def remove_local(path: Path) -> None:
    """Remove a local scratch folder, whatever state it is in."""
    shutil.rmtree(path, ignore_errors=True)


def _make_folder(fs: fsspec.AbstractFileSystem, path: str) -> None:
    """Only where folders exist: object storage would make a bucket up out of a mistyped name."""
    if "file" in _protocols(fs):
        fs.makedirs(path, exist_ok=True)


def _protocols(fs: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
