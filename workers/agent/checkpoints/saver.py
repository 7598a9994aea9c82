"""Checkpoints and logs between this node and durable storage.

A saver, forked from the zygote, plans the files of a pinned snapshot. The agent writes them from memory to storage.
Ranks have no storage credentials and never wait for storage.
"""

import asyncio
import base64
import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from regroup.workers.agent.checkpoints import folders
from regroup.workers.agent.checkpoints.node_write import NodeWrite
from regroup.workers.agent.checkpoints.reuse import BoxKey
from regroup.workers.agent.checkpoints.stored_files import read_manifest, read_pieces
from regroup.workers.agent.ranks import logs
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan, Manifest, SavedFile, SavedShards
from regroup.workers.contract.checkpoint_manifest import (
    CHUNK_BYTES,
    MANIFEST,
    PIECES,
    Pieces,
    merge,
    unpack_pieces,
)
from regroup.workers.contract.planned_shards import MAX_PLAN_BYTES, PlanError, PlannedShards, unpack_plan
from regroup.workers.contract.storage_progress import SaveProgress
from regroup.workers.environment.redaction import Redactor
from regroup.workers.os import job_files
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.storage import async_storage, fsspec_storage
from regroup.workers.storage.byte_meter import ByteMeter
from regroup.workers.storage.crc32 import combine
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.zygote.client import TaskDied, ZygoteLink

_Result = TypeVar("_Result")
_SAVER_NICE = 10
_DEVICES: Mapping[str, str] = {"fill_disk": "/dev/full", "break_disk": "/proc/self/mem"}
"""Planned fault → device that accepts no byte: ENOSPC; and EIO, because nothing is mapped at address 0."""
SAVER_FAULTS: Mapping[str, str] = {
    "kill_saver": "regroup.workers.rank.faults.saver_faults:die_at_work",
    "fill_disk": "regroup.workers.rank.faults.saver_faults:find_disk_full",
    "break_disk": "regroup.workers.rank.faults.saver_faults:find_disk_broken",
}
"""Planned fault → task that runs instead of the saver. A full or broken disk is also found when shards are written."""
_MAX_SAVERS = 3
"""Number of savers that one checkpoint may use. If all of them die, another one would die as well."""


class CheckpointSaver:
    """Saves and finds checkpoints, and archives logs."""

    def __init__(
        self,
        config: AgentConfig,
        scratch: Path,
        buffers: BufferPool,
        note: Callable[[str, dict[str, Any]], None],
        user: int | None = None,
    ) -> None:
        """Initialize without a saver. Savers run as `user`; None: the user of this process."""
        self.active_savers = 0
        """Number of saves that use buffers."""
        self._config, self._scratch, self._buffers, self._note, self._user = config, scratch, buffers, note, user
        self._injected: list[str] = []
        self._writing: set[str] = set()
        self._newest: tuple[int, int, ByteMeter] | None = None
        """Generation and step of the newest save, and what it has written."""
        self._former: tuple[str, Pieces] | None = None
        """URI of the last checkpoint that a save was compared with, and its pieces."""
        self._changed = frozenset[BoxKey]()
        """Pieces that had changed at the last save."""

    async def save(
        self,
        zygote: ZygoteLink,
        generation: int,
        step: int,
        ranks: Sequence[int],
        uri: str,
        differing: Sequence[str],
        base: str = "",
    ) -> SavedShards:
        """Write the pinned snapshots of `ranks` below `uri` and release them.

        Args:
            differing: Groups of tensors of which each rank has a copy of its own.
            base: Finished checkpoint whose unchanged pieces are not written again; empty: none.

        Raises:
            LookupError: a pinned snapshot is missing.
            TaskFailed: a saver raised an exception, or all savers died.
            StorageError: durable storage refused, or a snapshot is damaged.
        """
        with self._writing_to(uri):
            return await self._save(zygote, generation, step, ranks, uri, differing, base if base != uri else "")

    async def finish(
        self, zygote: ZygoteLink, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest
    ) -> Manifest:
        """Write the metadata of torch DCP, then the manifest. A checkpoint exists once its manifest does."""
        with self._writing_to(uri):
            return await self._finish(zygote, uri, parts, manifest)

    def progress(self) -> SaveProgress | None:
        """Return what this node has written of the newest checkpoint; None before it is known what is written."""
        if self._newest is None:
            return None
        generation, step, meter = self._newest
        progress = meter.progress()
        return SaveProgress(generation, step, progress) if progress is not None else None

    def scan(self) -> CheckpointScan:
        """Find this job's checkpoints. Unreadable manifests are skipped.

        Raises:
            StorageUnavailable: storage did not answer.
        """
        writing = frozenset(self._writing)  # before the scan: a checkpoint that finishes during the scan is not torn
        root = fsspec_storage.join(self._config.storage_uri, "checkpoints")
        with fsspec_storage.answering(root):
            if fsspec_storage.has_vanished(self._config.storage_uri):
                raise fsspec_storage.StorageUnavailable(f"{self._config.storage_uri} no longer exists")
            return folders.scan_folders(root, writing)

    def archive_logs(self, log_dir: Path, prefix: str, redactor: Redactor) -> None:
        """Copy this node's rank logs to durable storage, where they outlive the node."""
        logs.archive(log_dir, prefix, fsspec_storage.join(self._config.storage_uri, "logs"), redactor)

    def inject_next(self, do: str) -> None:
        """Inject one of `SAVER_FAULTS` into the next saver. Two calls inject into the next two savers."""
        self._injected.append(do)

    def close(self) -> None:
        """Remove the scratch space."""
        fsspec_storage.remove_local(self._scratch)

    async def _save(
        self,
        zygote: ZygoteLink,
        generation: int,
        step: int,
        ranks: Sequence[int],
        uri: str,
        differing: Sequence[str],
        base: str,
    ) -> SavedShards:
        # Duplicates: the pool may release its buffers if the layout changes.
        fds = [os.dup(fd) for fd in self._buffers.pinned(generation, step, ranks)]
        device = _DEVICES[self._injected.pop(0)] if self._injected[:1] and self._injected[0] in _DEVICES else ""
        memory = [os.memfd_create(f"regroup-{name}", os.MFD_CLOEXEC) for name in ("containers", "plan")]
        self.active_savers += 1
        try:
            args = {"shards": [{"rank": rank} for rank in ranks], "differing": list(differing)}
            result = await self._run_saver(
                zygote, "regroup.workers.state.checkpoint_plan:plan_shards", args, [*fds, *memory], memory
            )
            plan = await asyncio.to_thread(_read_plan, memory[1], len(ranks))
            former = await self._write(step, lambda: self._pieces_of(base)) if base else Pieces({}, ())
            folder = base.rstrip("/").rpartition("/")[2]
            meter, started_s = ByteMeter(), time.monotonic()
            self._newest = generation, step, meter
            write = NodeWrite(
                uri, plan, ranks, fds, memory[0], former, folder, device, meter, self._changed, _is_intact
            )
            pieces = await self._write(step, write.run)
            if write.damaged:
                raise StorageError(
                    f"the snapshots of ranks {sorted(write.damaged)} of step {step} fail their checksums; "
                    "the checkpoint is not finished"
                )
            self._changed = write.changed
            write_s = time.monotonic() - started_s
        finally:
            self.active_savers -= 1
            self._buffers.release(fds)
            for fd in (*fds, *memory):
                os.close(fd)
        part = {**result, "pieces": base64.b64encode(pieces.packed()).decode(), "base": base if write.reuses else ""}
        files = tuple(_saved(name, pieces) for name in pieces.files)
        return SavedShards(files, part, write_s)

    async def _finish(
        self, zygote: ZygoteLink, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest
    ) -> Manifest:
        packed = await asyncio.to_thread(_merged, parts)
        directory = self._scratch / f"metadata-{manifest['step']}-{manifest['generation']}"
        job_files.make_folder(directory, self._user)
        fd = os.memfd_create("regroup-pieces", os.MFD_CLOEXEC)  # the pieces of many ranks do not fit into a packet
        try:
            fsspec_storage.write_all(fd, packed)
            args = {"directory": str(directory)}
            await self._run_saver(zygote, "regroup.workers.state.checkpoint:write_metadata", args, [fd])
            job_files.reclaim_tree(directory, self._user)
            (directory / PIECES).write_bytes(packed)
            files = await self._write(manifest["step"], lambda: fsspec_storage.upload(directory, uri))
        finally:
            os.close(fd)
            await asyncio.to_thread(fsspec_storage.remove_local, directory)
        own = {file["name"]: file for file in (*manifest["files"], *files)}  # several nodes may use the same older file
        complete = {**manifest, "files": list(own.values())}
        bases = {part["base"] for part in parts if part.get("base")}
        if removed := await self._write(manifest["step"], lambda: _publish(uri, complete, bases)):
            raise StorageError(f"{removed}, whose unchanged pieces {uri} uses, was removed during the save")
        return complete

    def _pieces_of(self, uri: str) -> Pieces:
        """Return the pieces of a finished checkpoint; none if it cannot be read."""
        if self._former is None or self._former[0] != uri:
            try:
                found = read_pieces(uri, read_manifest(uri))
            except StorageError:
                return Pieces({}, ())
            self._former = uri, found
        return self._former[1]

    async def _write(self, step: int, write: Callable[[], _Result]) -> _Result:
        def report(message: str) -> None:
            self._note("condition", {"node": self._config.node_name, "what": "storage", "message": message})

        return await async_storage.write_with_retries(f"the checkpoint of step {step}", write, report)

    @contextlib.contextmanager
    def _writing_to(self, uri: str) -> Generator[None]:
        self._writing.add(uri)
        try:
            yield
        finally:
            self._writing.discard(uri)

    async def _run_saver(
        self,
        zygote: ZygoteLink,
        target: str,
        args: Mapping[str, Any],
        fds: Sequence[int],
        memory: Collection[int] = (),
    ) -> dict[str, Any]:
        """Run `target` in a saver process and return its result.

        If a saver is killed, another one starts. It writes the same files, or into the same `memory`, once more.
        """
        for remaining in reversed(range(_MAX_SAVERS)):
            for fd in memory:
                os.ftruncate(fd, 0)
            task = (target, args)
            if self._injected:
                task = (SAVER_FAULTS[self._injected.pop(0)], {"target": target, "args": dict(args)})
            try:
                return await zygote.run_task(*task, fds, nice=_SAVER_NICE)
            except TaskDied as error:
                if zygote.dead or not remaining:
                    raise
                self._note("saver_died", {"message": str(error), "node": self._config.node_name})
        raise AssertionError("the last saver has returned or raised")


def _read_plan(fd: int, files: int) -> PlannedShards:
    try:
        return unpack_plan(fsspec_storage.read_all(fd, MAX_PLAN_BYTES), files)
    except PlanError as error:
        raise StorageError(str(error)) from error


def _is_intact(fd: int) -> bool:
    """Read a snapshot and return whether it is complete and has the right checksum."""
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        return buffer.verify()


def _merged(parts: Sequence[Mapping[str, Any]]) -> bytes:
    return merge([unpack_pieces(base64.b64decode(part["pieces"])) for part in parts]).packed()


def _saved(name: str, pieces: Pieces) -> SavedFile:
    file = pieces.files[name]
    sizes = [min(CHUNK_BYTES, file.size_bytes - number * CHUNK_BYTES) for number in range(len(file.crcs))]
    return SavedFile(name, file.size_bytes, combine(file.crcs, sizes))


def _publish(uri: str, manifest: Manifest, bases: Collection[str]) -> str:
    """Write the manifest, if this node sees every file of it, also those that other nodes wrote.

    Return a base that was removed, and then there is no manifest; else nothing.

    A removal of an older checkpoint may run at the same time, started by an earlier supervisor. It removes the manifest
    first and then searches for users of the files. So this manifest is withdrawn if that of a base is gone.

    Raises:
        StorageError: a file is missing or has another size.
    """
    _check_files(uri, manifest["files"])
    place = fsspec_storage.join(uri, MANIFEST)
    fsspec_storage.write_bytes(place, json.dumps(manifest, indent=1).encode())
    for base in bases:
        if fsspec_storage.read_bytes(fsspec_storage.join(base, MANIFEST)) is None:
            fsspec_storage.remove_file(place)
            return base
    return ""


def _check_files(uri: str, files: Sequence[Mapping[str, Any]]) -> None:
    """Check that this node sees every file of a manifest, also those that other nodes wrote.

    Raises:
        StorageError: a file is missing or has another size.
    """
    if missing := fsspec_storage.missing_files(uri, files):
        raise StorageError(
            f"{len(missing)} of {len(files)} files of {uri} are missing or incomplete here, for example {missing[0]}: "
            "do all nodes share this storage?"
        )
