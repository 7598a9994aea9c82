"""The manifest of a checkpoint in durable storage, and the list of its pieces. Blocking."""

import json
from collections.abc import Mapping
from typing import Any, cast

from regroup.workers.contract.checkpoint_manifest import MANIFEST, PIECES, ManifestError, Pieces, unpack_pieces
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError


def read_manifest(uri: str) -> Mapping[str, Any]:
    """Return the manifest of a checkpoint.

    Raises:
        StorageError: It is missing or damaged.
    """
    data = fsspec_storage.read_bytes(fsspec_storage.join(uri, MANIFEST))
    if data is None:
        raise StorageError(f"{uri} has no {MANIFEST}: the checkpoint was never finished")
    try:
        manifest = cast(Mapping[str, Any], json.loads(data))
        for entry in manifest["files"]:
            _ = entry["name"], entry["size_bytes"], entry["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{uri}/{MANIFEST} is damaged: {type(error).__name__}: {error}") from error
    return manifest


def read_pieces(uri: str, manifest: Mapping[str, Any]) -> Pieces:
    """Return the pieces of a checkpoint.

    Raises:
        StorageError: The list is missing or damaged.
    """
    try:
        return unpack_pieces(fsspec_storage.read_verified(uri, PIECES, manifest["files"]))
    except ManifestError as error:
        raise StorageError(f"{uri}/{PIECES}: {error}") from error
