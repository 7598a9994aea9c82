"""Folders of checkpoints in durable storage: find them, and remove what no checkpoint needs. Blocking.

A checkpoint may use files of older ones. So a removed checkpoint first loses its manifest, which is kept under another
name, and then the files that no other one uses. A crash between two steps leaves nothing that a later removal does not
find, and no manifest whose files are missing.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from regroup.workers.contract.agent_records import CheckpointScan, Manifest
from regroup.workers.contract.checkpoint_manifest import (
    MANIFEST,
    PIECES,
    REMOVED,
    ManifestError,
    older_place,
    unpack_pieces,
    used_files,
)
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import join


def scan_folders(root: str, writing: Collection[str]) -> CheckpointScan:
    """Find the checkpoints below `root`. Unreadable manifests are skipped.

    Args:
        root: Folder of all checkpoints of a job.
        writing: URIs that this node writes now.
    """
    finished, unfinished = list[Manifest](), list[str]()
    for folder in fsspec_storage.folders(root):
        uri = join(root, folder)
        data = fsspec_storage.read_bytes(join(uri, MANIFEST))
        if data is None:
            is_unfinished = uri not in writing and fsspec_storage.read_bytes(join(uri, REMOVED)) is None
            unfinished += [uri] if is_unfinished else []
            continue
        try:
            finished.append({**json.loads(data), "uri": uri})
        except ValueError:
            continue  # a person may be able to repair a damaged manifest
    return CheckpointScan(tuple(finished), tuple(unfinished))


def remove_checkpoint(uri: str) -> None:
    """Remove a checkpoint, or what a save left of one, except the files that other checkpoints use.

    Raises:
        StorageUnavailable: Storage did not answer. The removal can be repeated.
    """
    root, _, _ = uri.rstrip("/").rpartition("/")
    with fsspec_storage.answering(uri):
        data = fsspec_storage.read_bytes(join(uri, MANIFEST))
        if data is not None:
            fsspec_storage.write_bytes(join(uri, REMOVED), data)
            fsspec_storage.remove_file(join(uri, MANIFEST))
        elif fsspec_storage.read_bytes(join(uri, REMOVED)) is None:
            fsspec_storage.remove(uri)  # no finished checkpoint uses files of one that was never finished
        sweep(root)


def sweep(root: str) -> None:
    """Remove the files of removed checkpoints that no finished one uses any more."""
    folders = fsspec_storage.folders(root)
    used: set[tuple[str, str]] = set()
    removed: list[str] = []
    for folder in folders:
        data = fsspec_storage.read_bytes(join(root, folder, MANIFEST))
        if data is not None:
            used |= _used_by(join(root, folder), data)
        elif fsspec_storage.read_bytes(join(root, folder, REMOVED)) is not None:
            removed.append(folder)
    for folder in removed:
        kept = {name for of, name in used if of == folder}
        uri = join(root, folder)
        if not kept:
            # The mark goes last: a folder without it counts as a save that did not end.
            fsspec_storage.remove_files(uri, excluded={REMOVED})
            fsspec_storage.remove(uri)
        else:
            fsspec_storage.remove_files(uri, excluded={REMOVED, *kept})


def _used_by(uri: str, manifest: bytes) -> set[tuple[str, str]]:
    """Return folder and name of each older file that a checkpoint uses.

    A person may be able to repair a damaged manifest, as long as the list of pieces is intact.
    """
    try:
        return used_files(cast(Mapping[str, Any], json.loads(manifest)))
    except ValueError:
        packed = fsspec_storage.read_bytes(join(uri, PIECES))
    try:
        names = unpack_pieces(packed or b"").files
    except ManifestError:
        return set()
    return {place for name in names if (place := older_place(name)) is not None}
