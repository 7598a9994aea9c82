"""Checkpoints and logs between this node and durable storage.

A saver, forked from the zygote, writes a pinned snapshot from shared memory to scratch space. The agent uploads it.
Ranks have no storage credentials and never wait for storage.
"""

import asyncio
import json
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from regroup.workers.agent.ranks import logs
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan, Manifest, SavedFile, SavedShards
from regroup.workers.contract.codec import build
from regroup.workers.environment.redaction import Redactor
from regroup.workers.os import job_files
from regroup.workers.storage import async_storage, fsspec_storage
from regroup.workers.zygote.client import TaskDied, ZygoteLink

_Result = TypeVar("_Result")
MANIFEST = "manifest.json"
_SAVER_NICE = 10
SAVER_FAULTS: Mapping[str, str] = {
    "kill_saver": "regroup.workers.rank.faults.saver_faults:die_at_work",
    "fill_disk": "regroup.workers.rank.faults.saver_faults:find_disk_full",
    "break_disk": "regroup.workers.rank.faults.saver_faults:find_disk_broken",
}
"""Planned fault → task that runs instead of the saver."""
_MAX_SAVERS = 3
"""Number of savers that one checkpoint may use. If all of them die, another one would die as well."""


class CheckpointSaver:
    """Saves, finds and fetches checkpoints, and archives logs."""

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
        """Number of savers that use buffers."""
        self._config, self._scratch, self._buffers, self._note, self._user = config, scratch, buffers, note, user
        self._injected: list[str] = []
        self._writing: set[str] = set()

    async def save(
        self, zygote: ZygoteLink, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str]
    ) -> SavedShards:
        """Write the pinned snapshots of `ranks` below `uri` and release them.

        Args:
            differing: Groups of tensors of which each rank has a copy of its own.

        Raises:
            LookupError: a pinned snapshot is missing.
            TaskFailed: a saver raised an exception, or all savers died.
            StorageError: durable storage refused.
        """
        with self._writing_to(uri):
            return await self._save(zygote, generation, step, ranks, uri, differing)

    async def finish(
        self, zygote: ZygoteLink, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest
    ) -> Manifest:
        """Write the metadata of torch DCP, then the manifest. A checkpoint exists once its manifest does."""
        with self._writing_to(uri):
            return await self._finish(zygote, uri, parts, manifest)

    def fetch(self, uri: str) -> Path:
        """Fetch a checkpoint and return the folder of the verified local copy.

        Raises:
            StorageError: the manifest or a file is missing or damaged.
            StorageUnavailable: storage did not answer. The checkpoint may be intact.
        """
        with fsspec_storage.answering(uri):
            return self._fetch(uri)

    def _fetch(self, uri: str) -> Path:
        data = fsspec_storage.read_bytes(fsspec_storage.join(uri, MANIFEST))
        if data is None:
            raise fsspec_storage.StorageError(f"{uri} has no {MANIFEST}: the checkpoint was never finished")
        try:
            files = json.loads(data)["files"]
        except (ValueError, KeyError, TypeError) as error:
            raise fsspec_storage.StorageError(
                f"{uri}/{MANIFEST} is damaged: {type(error).__name__}: {error}"
            ) from error
        target = self._scratch / "restore" / uri.rstrip("/").rpartition("/")[2]
        if self._user is not None:
            target.parent.mkdir(mode=0o711, exist_ok=True)
            target.parent.chmod(0o711)
            fsspec_storage.remove_local(target)  # the job may have replaced a file of an earlier copy by a link
        fsspec_storage.download(uri, target, files)
        job_files.assign_tree(target, self._user)
        return target

    def scan(self) -> CheckpointScan:
        """Find this job's checkpoints. Unreadable manifests are skipped.

        Raises:
            StorageUnavailable: storage did not answer.
        """
        writing = frozenset(self._writing)  # before the scan: a checkpoint that finishes during the scan is not torn
        root = fsspec_storage.join(self._config.storage_uri, "checkpoints")
        with fsspec_storage.answering(root):
            return self._scan(root, writing)

    def _scan(self, root: str, writing: Collection[str]) -> CheckpointScan:
        if fsspec_storage.has_vanished(self._config.storage_uri):
            raise fsspec_storage.StorageUnavailable(f"{self._config.storage_uri} no longer exists")
        finished, unfinished = list[Manifest](), list[str]()
        for folder in fsspec_storage.folders(root):
            uri = fsspec_storage.join(root, folder)
            data = fsspec_storage.read_bytes(fsspec_storage.join(uri, MANIFEST))
            if data is None:
                unfinished += [] if uri in writing else [uri]
                continue
            try:
                finished.append({**json.loads(data), "uri": uri})
            except ValueError:
                continue  # a person may be able to repair a damaged manifest
        return CheckpointScan(tuple(finished), tuple(unfinished))

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
        self, zygote: ZygoteLink, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str]
    ) -> SavedShards:
        # Duplicates: the pool may release its buffers if the layout changes.
        fds = [os.dup(fd) for fd in self._buffers.pinned(generation, step, ranks)]
        directory = self._scratch / f"save-{step}-{generation}"
        job_files.make_folder(directory, self._user)
        self.active_savers += 1
        try:
            shards = [{"rank": rank} for rank in ranks]
            args = {"directory": str(directory), "shards": shards, "differing": list(differing)}
            result = await self._run_saver(zygote, "regroup.workers.state.checkpoint:save_shards", args, fds)
        finally:
            self.active_savers -= 1
            self._buffers.release(fds)
            for fd in fds:
                os.close(fd)
        try:
            job_files.reclaim_tree(directory, self._user)
            files = await self._write(step, lambda: fsspec_storage.upload(directory, uri))
        finally:
            await asyncio.to_thread(fsspec_storage.remove_local, directory)
        return SavedShards(tuple(build(SavedFile, file) for file in files), result)

    async def _finish(
        self, zygote: ZygoteLink, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest
    ) -> Manifest:
        directory = self._scratch / f"metadata-{manifest['step']}-{manifest['generation']}"
        job_files.make_folder(directory, self._user)
        fd = os.memfd_create("regroup-parts", os.MFD_CLOEXEC)  # the parts of many ranks do not fit into a packet
        try:
            os.write(fd, json.dumps(list(parts)).encode())
            args = {"directory": str(directory)}
            await self._run_saver(zygote, "regroup.workers.state.checkpoint:write_metadata", args, [fd])
            job_files.reclaim_tree(directory, self._user)
            files = await self._write(manifest["step"], lambda: fsspec_storage.upload(directory, uri))
        finally:
            os.close(fd)
            await asyncio.to_thread(fsspec_storage.remove_local, directory)
        complete = {**manifest, "files": [*manifest["files"], *files]}
        await self._write(manifest["step"], lambda: _check_files(uri, complete["files"]))
        text = json.dumps(complete, indent=1).encode()
        await self._write(
            manifest["step"], lambda: fsspec_storage.write_bytes(fsspec_storage.join(uri, MANIFEST), text)
        )
        return complete

    async def _write(self, step: int, write: Callable[[], _Result]) -> _Result:
        def report(message: str) -> None:
            self._note("condition", {"node": self._config.node_name, "what": "storage", "message": message})

        return await async_storage.write_with_retries(f"the checkpoint of step {step}", write, report)

    @contextmanager
    def _writing_to(self, uri: str) -> Generator[None]:
        self._writing.add(uri)
        try:
            yield
        finally:
            self._writing.discard(uri)

    async def _run_saver(
        self, zygote: ZygoteLink, target: str, args: Mapping[str, Any], fds: Sequence[int]
    ) -> dict[str, Any]:
        """Run `target` in a saver process and return its result.

        If a saver is killed, another one starts. It writes the same files and overwrites those of the first.
        """
        for remaining in reversed(range(_MAX_SAVERS)):
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


def _check_files(uri: str, files: Sequence[Mapping[str, Any]]) -> None:
    """Check that this node sees every file of a manifest, also those that other nodes wrote.

    Raises:
        StorageError: a file is missing or has another size.
    """
    if missing := fsspec_storage.missing_files(uri, files):
        raise fsspec_storage.StorageError(
            f"{len(missing)} of {len(files)} files of {uri} are missing or incomplete here, for example {missing[0]}: "
            "do all nodes share this storage?"
        )
