"""Prepared records on this node: list their sources, and fetch the records once they exist."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import (
    AgentErrorKind,
    AgentFailure,
    Dataset,
    PreparationPlace,
    SourceListing,
)
from regroup.workers.data.prepare import preparation
from regroup.workers.data.prepare.preparation import META
from regroup.workers.environment.code_archive import DIRECTORY
from regroup.workers.storage import fsspec_storage

NO_RECIPES = AgentFailure(
    AgentErrorKind.DATA,
    "data.prepare runs in Ray as the user of the agents, but this cluster runs code of jobs as users of their own "
    "(REGROUP_RANK_USERS): prepare the data elsewhere, or read its files in the training code",
)


def list_sources(
    config: AgentConfig, scratch: Path, python: Mapping[str, str], recipe: Mapping[str, Any]
) -> SourceListing:
    """Return the sources as this node sees them, and the place of a task that prepares records here.

    Raises:
        DataError: a source is missing or unreadable.
    """
    code = str(scratch / DIRECTORY) if config.code else ""
    return SourceListing(preparation.list_sources(recipe), PreparationPlace(str(scratch), code, dict(python)))


def fetch(config: AgentConfig, scratch: Path, prepared: Dataset) -> Dataset:
    """Return the prepared records with their folder on this node. Records in object storage are copied here once.

    Raises:
        StorageError: this node cannot read the records, or a file is damaged.
    """
    uri = fsspec_storage.join(config.datasets_uri, prepared["fingerprint"])
    local = fsspec_storage.local_path(uri)
    directory = local or scratch / "datasets" / prepared["fingerprint"]
    if local is None and not (directory / META).exists():
        _download(uri, directory)
    if not (directory / META).exists():
        raise fsspec_storage.StorageError(
            f"node {config.node_name} cannot read {directory}, which another node wrote; use a storage_uri that every "
            "node reaches"
        )
    for file in _files(json.loads((directory / META).read_text())):
        size = (directory / file["name"]).stat().st_size if (directory / file["name"]).exists() else None
        if size != file["size_bytes"]:
            raise fsspec_storage.StorageError(
                f"{directory / file['name']} {'is missing' if size is None else f'has {size} bytes'}; its manifest "
                f"lists {file['size_bytes']} bytes. Remove {directory} to prepare the data again"
            )
    return {**prepared, "directory": str(directory)}


def _download(uri: str, directory: Path) -> None:
    content = fsspec_storage.read_bytes(fsspec_storage.join(uri, META))
    if content is None:
        raise fsspec_storage.StorageError(f"{uri} contains no prepared data")
    directory.mkdir(parents=True)
    for file in _files(json.loads(content)):
        target = directory / file["name"]
        fsspec_storage.fetch(fsspec_storage.join(uri, file["name"]), target)
        with target.open("rb") as reader:
            digest = hashlib.file_digest(reader, "sha256").hexdigest()
        if digest != file["sha256"]:
            raise fsspec_storage.StorageError(
                f"{fsspec_storage.join(uri, file['name'])} is damaged: its sha256 is {digest}, but its manifest "
                f"lists {file['sha256']}"
            )
    (directory / META).write_bytes(content)


def _files(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [file for part in meta["splits"].values() for file in part["files"]]
