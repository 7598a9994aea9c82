"""Files of a checkpoint, as its manifest lists them, and the storage that holds them. Blocking calls run in threads."""

import asyncio
import json
import posixpath
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from regroup.service.domain.errors import ConflictError, NotFoundError, UnavailableError
from regroup.service.store.rows.records import Checkpoint, JobRow
from regroup.service.store.store import Store
from regroup.workers.contract.checkpoint_manifest import MANIFEST, checked_name, older_place
from regroup.workers.contract.storage_uri import StorageUriError, checked_uri

_MAX_READERS = 4
_READERS = threading.BoundedSemaphore(_MAX_READERS)
"""Threads of this process that read checkpoints."""
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint."""

    name: str
    """Path relative to the folder of the checkpoint. A file of an older checkpoint begins with `../`."""
    size_bytes: int
    crc32: int


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint with its files."""

    checkpoint: Checkpoint
    files: tuple[CheckpointFile, ...]

    @property
    def older_folders(self) -> tuple[str, ...]:
        """URIs of the folders of older checkpoints whose files it uses."""
        root = posixpath.dirname(self.checkpoint.uri.rstrip("/"))
        places = (older_place(each.name) for each in self.files)
        return tuple(sorted({f"{root}/{place[0]}" for place in places if place is not None}))


@dataclass(frozen=True)
class Folder:
    """A folder in durable storage."""

    fs: Any
    path: str

    def join(self, name: str) -> str:
        """Return the path of a file in it, or of one in the folder of an older checkpoint."""
        return posixpath.normpath(posixpath.join(self.path, name))


async def find_checkpoint(store: Store, job: JobRow, step: int) -> Checkpoint:
    """Return the newest checkpoint of a step in storage.

    Raises:
        NotFoundError: there is none.
    """
    found = [each for each in await store.checkpoints(job.id) if each.step == step]
    if not found:
        raise NotFoundError(f"job {job.id} has no checkpoint of step {step} in storage")
    return found[-1]


async def list_files(store: Store, job: JobRow, step: int) -> CheckpointFiles:
    """Return the files of a checkpoint.

    Raises:
        NotFoundError: there is no such checkpoint.
        ConflictError: its manifest is missing or damaged.
        UnavailableError: the storage does not answer.
    """
    checkpoint = await find_checkpoint(store, job, step)
    return CheckpointFiles(checkpoint, await run_in_storage(read_manifest, checkpoint.uri))


async def run_in_storage(function: Callable[[Folder], ResultT], uri: str) -> ResultT:
    """Return the result of a function of a folder in storage, which runs in a thread.

    Raises:
        UnavailableError: the storage does not answer, or too many threads read from it.
    """
    if not _READERS.acquire(blocking=False):
        raise UnavailableError(f"this server reads {_MAX_READERS} checkpoints now; try again later")
    try:
        return await asyncio.to_thread(_call, function, uri)
    finally:
        _READERS.release()


def open_folder(uri: str) -> Folder:
    """Return a folder; raises StorageUriError for a form that regroup does not accept."""
    from fsspec.core import url_to_fs  # imported late: it also imports the storage's package

    fs, path = url_to_fs(checked_uri(uri))
    return Folder(fs, path)


def read_manifest(folder: Folder) -> tuple[CheckpointFile, ...]:
    """Return the files that the manifest lists.

    Raises:
        ConflictError: the manifest is missing or damaged.
    """
    place = folder.join(MANIFEST)
    try:
        entries = cast(Mapping[str, Any], json.loads(folder.fs.cat_file(place)))["files"]
        return tuple(_file(entry) for entry in entries)
    except FileNotFoundError:
        raise ConflictError(f"{place} does not exist: the checkpoint is not complete, or was removed") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConflictError(f"{place} is damaged: {type(error).__name__}: {error}; use another checkpoint") from error


def _call(function: Callable[[Folder], ResultT], uri: str) -> ResultT:
    try:
        return function(open_folder(uri))
    except (OSError, ImportError, StorageUriError) as error:
        raise UnavailableError(f"the server cannot read {uri}: {type(error).__name__}: {error}") from error


def _file(entry: Mapping[str, Any]) -> CheckpointFile:
    name = checked_name(str(entry["name"]))
    return CheckpointFile(name, int(entry["size_bytes"]), int(entry["crc32"]))
