"""Token files on this node: list their sources, tokenize them once, and fetch the files."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import Dataset, SourceListing, TokenSources
from regroup.workers.contract.codec import plain
from regroup.workers.os import job_files
from regroup.workers.storage import fsspec_storage
from regroup.workers.zygote.client import ZygoteLink

META = "meta.json"
_FINGERPRINT = re.compile(r"[\w-]{1,128}")
_TASK_NICE = 5
_PROGRESS_S = 0.5


async def list_sources(zygote: ZygoteLink, sources: TokenSources) -> SourceListing:
    """Return path or URI → size of the sources, as this node sees them.

    Raises:
        TaskFailed: of kind `DataError`; a source matches no file or cannot be read.
    """
    found = await zygote.run_task("regroup.workers.data.tokenize:list_sources", plain(sources), nice=_TASK_NICE)
    return SourceListing(found["files"])


async def prepare(
    zygote: ZygoteLink,
    config: AgentConfig,
    scratch: Path,
    sources: TokenSources,
    note: Callable[[str, dict[str, Any]], None],
    user: int | None = None,
) -> Dataset:
    """Create the token files, or find existing ones by their content hash below `datasets_uri`.

    Raises:
        TaskFailed: of kind `DataError`; the data is invalid.
        StorageError: the files could not be stored.
    """
    local = _shared_folder(config, user)
    directory = local or scratch / "datasets"
    if user is not None:
        job_files.make_folder(directory, user)
    result = await zygote.run_task(
        "regroup.workers.data.tokenize:prepare",
        {**plain(sources), "directory": str(directory)},
        nice=_TASK_NICE,
        on_progress=_throttled(note),
    )
    if not _FINGERPRINT.fullmatch(result["fingerprint"]):  # a path, which code of the job may have chosen
        raise fsspec_storage.StorageError(f"{result['fingerprint'][:80]!r} is not the fingerprint of a dataset")
    if local is None:
        if user is not None:
            job_files.reclaim_tree(directory, user)
            directory.chmod(0o711)
        uri = fsspec_storage.join(config.datasets_uri, result["fingerprint"])
        if await asyncio.to_thread(fsspec_storage.read_bytes, fsspec_storage.join(uri, "files.json")) is None:
            files = await asyncio.to_thread(fsspec_storage.upload, directory / result["fingerprint"], uri)
            await asyncio.to_thread(
                fsspec_storage.write_bytes, fsspec_storage.join(uri, "files.json"), json.dumps(files).encode()
            )
    return result


def fetch(config: AgentConfig, scratch: Path, prepared: Dataset, user: int | None = None) -> Dataset:
    """Return the prepared data with its paths on this node. Files in object storage are copied here once.

    Raises:
        StorageError: this node cannot read `datasets_uri`, or a file is damaged.
    """
    fingerprint = prepared["fingerprint"]
    local = _shared_folder(config, user)
    directory = (local or scratch / "datasets") / fingerprint
    if local is not None:
        if not (directory / META).exists():
            raise fsspec_storage.StorageError(
                f"node {config.node_name} cannot read {directory}, which another node wrote; "
                f"use a storage_uri that every node reaches"
            )
    elif not (directory / META).exists():
        uri = fsspec_storage.join(config.datasets_uri, fingerprint)
        listing = fsspec_storage.read_bytes(fsspec_storage.join(uri, "files.json"))
        if listing is None:
            raise fsspec_storage.StorageError(f"{uri} contains no prepared data")
        fsspec_storage.download(uri, directory, json.loads(listing))
        if user is not None:
            directory.parent.chmod(0o711)
    if local is None:
        job_files.assign_tree(directory, user)
    paths = {
        name: str(directory / Path(prepared[name]).name) if prepared.get(name) else None
        for name in ("train", "validation")
    }
    return {**prepared, **paths}


def _shared_folder(config: AgentConfig, user: int | None) -> Path | None:
    """Return the folder of datasets if ranks read it in place; None if each node copies what it needs.

    A job with a user of its own can open no folder of the platform.
    """
    return fsspec_storage.local_path(config.datasets_uri) if user is None else None


def _throttled(note: Callable[[str, dict[str, Any]], None]) -> Callable[[float | None, str], None]:
    """Return a callback that forwards progress at most twice per second."""
    last_s = 0.0

    def forward(fraction: float | None, message: str) -> None:
        nonlocal last_s
        if (now_s := time.monotonic()) - last_s >= _PROGRESS_S:
            last_s = now_s
            note("progress", {"fraction": fraction, "message": message})

    return forward
