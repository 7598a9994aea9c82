"""The supervisor's side of checkpoints: starts the save of a pinned set, tracks saved sets and removes old ones."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from regroup.service.domain.job_events import CheckpointRemoved, CheckpointWritten, NoteRecorded
from regroup.service.policy.recovery.checkpoint_retention import FinishedCheckpoint, find_abandoned, find_surplus
from regroup.service.policy.recovery.restore_source import SavedCheckpoint
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog, PinnedSet
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.agent_records import Manifest
from regroup.workers.contract.messages import StepRow


class Checkpoints:
    """Saves in the background, one set at a time."""

    def __init__(self, payload: JobConfig, gang: Gang, journal: Journal) -> None:
        self.scanned = False
        """True if this supervisor has scanned durable storage."""
        self.pinned: frozenset[tuple[int, int]] = frozenset()
        """(step, generation) of the checkpoints that a user pinned."""
        self._payload, self._gang, self._journal = payload, gang, journal
        self._manifests: dict[str, dict[str, Any]] = {}
        self._excluded: dict[str, str] = {}
        self._unfinished: set[str] = set()
        """Known URIs without a manifest."""
        self._failed: set[str] = set()
        """URIs whose save failed in this supervisor."""
        self._running: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._saving: asyncio.Future[dict[str, Any]] | None = None
        self._lost: AgentLostError | None = None
        self._validation: dict[tuple[int, int], float] = {}

    @property
    def is_saving(self) -> bool:
        """True if a set is being saved or waits to be saved."""
        return bool(self._running)

    def start_save(
        self, generation: Generation, pinned: PinnedSet, log: GenerationLog, on_end: Callable[[], None]
    ) -> None:
        """Save a set that every rank has pinned. Call `on_end` after success or failure."""
        lineage = [[number, start_step] for number, start_step in sorted(log.starts.items())]
        task = asyncio.get_running_loop().create_task(self._save(generation, pinned, lineage, log))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: on_end())

    def record_loss(self, nodes: Sequence[str]) -> None:
        """Stop waiting for the saves of lost nodes. Ray itself may keep such a call waiting for long."""
        config = self._gang.configs.get(nodes[0])
        name = config.node_name if config else nodes[0][:8]
        self._lost = AgentLostError(nodes[0], f"the agent on node {name} was lost during a save")
        if self._saving is not None:
            self._saving.cancel()

    async def wait_for_saves(self) -> None:
        """Wait until nothing is being saved."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def record_validation(self, row: StepRow) -> None:
        """Store a validation loss for `keep_best`."""
        if row.validation_loss is not None:
            self._validation[row.generation, row.step] = row.validation_loss

    async def scan(self) -> None:
        """Scan durable storage, once per supervisor.

        Raises:
            AgentLostError: the agent that scans is gone.
        """
        if self.scanned:
            return
        self._merge_scan(*await self._gang.scan_checkpoints())
        self.scanned = True

    def finished(self) -> list[SavedCheckpoint]:
        """Return the finished checkpoints without scanning storage."""
        return [SavedCheckpoint(item["uri"], item["generation"], item["step"]) for item in self._manifests.values()]

    async def exclude(self, uri: str, generation: int, why: str) -> None:
        """Exclude a checkpoint that could not be loaded for `generation`, and record a note."""
        self._excluded[uri] = why
        note = NoteRecorded("checkpoint_unusable", {"uri": uri, "message": why})
        await self._journal.record(f"checkpoint_unusable:{generation}", note, generation)

    def is_usable(self, uri: str) -> bool:
        """Return whether a checkpoint may be restored from."""
        return uri not in self._excluded

    def why_excluded(self, uri: str) -> str:
        """Return why a checkpoint was excluded."""
        return self._excluded[uri]

    async def _save(
        self, generation: Generation, pinned: PinnedSet, lineage: list[list[int]], log: GenerationLog
    ) -> None:
        async with self._one_at_a_time:
            started, step = time.time(), pinned.step
            uri = f"{self._payload.storage_uri}/checkpoints/step-{step}.gen-{generation.number}"

            def manifest(files: list[Any]) -> dict[str, Any]:
                return {
                    "version": 1,
                    "job_id": self._payload.job_id,
                    "step": step,
                    "generation": generation.number,
                    "layout": generation.layout.to_json(),
                    "files": files,
                    "lineage": lineage,
                    "created_s": time.time(),
                    "validation_loss": self._validation.get((generation.number, step)),
                }

            try:
                whole = await self._unless_lost(self._gang.save_checkpoint(generation, pinned, uri, manifest))
            except (AgentError, AgentLostError) as error:
                note = NoteRecorded("checkpoint_failed", {"step": step, "message": str(error)})
                await self._journal.record(f"checkpoint_failed:{generation.number}:{step}", note, generation.number)
                self._unfinished.add(uri)
                self._failed.add(uri)
                await self._retain(log.past[-1].number)
                return
            self._manifests[uri] = {**whole, "uri": uri}
            size = sum(file["size_bytes"] for file in whole["files"])
            written = CheckpointWritten(
                step=step,
                generation=generation.number,
                uri=uri,
                size_bytes=size,
                files=len(whole["files"]),
                duration_s=time.time() - started,
                validation_loss=whole["validation_loss"],
            )
            await self._journal.record(f"checkpoint:{generation.number}:{step}", written, generation.number)
            await self._retain(log.past[-1].number)

    async def _unless_lost(self, save: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        self._lost, self._saving = None, asyncio.ensure_future(save)
        try:
            return await self._saving
        except asyncio.CancelledError:
            if self._lost is None:
                raise
            raise self._lost from None
        finally:
            self._saving = None

    async def _retain(self, newest_generation: int) -> None:
        """Remove surplus and abandoned checkpoints. A removal that fails is tried again after the next save."""
        try:
            await self.scan()
            await self._remove_surplus()
            await self._remove_abandoned(newest_generation)
        except (AgentError, AgentLostError):
            return

    async def _remove_surplus(self) -> None:
        policy = self._payload.spec.checkpoint
        kept = [
            FinishedCheckpoint(
                uri,
                item["generation"],
                item["step"],
                item.get("validation_loss"),
                (item["step"], item["generation"]) in self.pinned,
            )
            for uri, item in self._manifests.items()
            if uri not in self._excluded
        ]
        for item in find_surplus(kept, keep_last=policy.keep_last, keep_best=policy.keep_best):
            await self._gang.remove_checkpoint(item.uri)
            del self._manifests[item.uri]
            removed = CheckpointRemoved(item.step, item.generation)
            await self._journal.record(f"checkpoint_removed:{item.generation}:{item.step}", removed, item.generation)

    def _merge_scan(self, manifests: Sequence[Manifest], unfinished: set[str]) -> None:
        found = {item["uri"]: item for item in manifests}
        self._manifests.update(found)
        self._unfinished = (self._unfinished | unfinished) - found.keys()

    async def _remove_abandoned(self, newest_generation: int) -> None:
        """Remove abandoned checkpoints.

        No save of this incarnation runs now. A save of an earlier one may run, and its node reports it.
        """
        if not find_abandoned(self._unfinished, self._failed, newest_generation):
            return
        manifests, untouched = await self._gang.scan_checkpoints(by_all=True)
        self._merge_scan(manifests, untouched)
        for item in find_abandoned(untouched, self._failed, newest_generation):
            await self._gang.remove_checkpoint(item.uri)
            self._unfinished.discard(item.uri)
            message = f"{item.uri} was never finished, so it was removed"
            note = NoteRecorded("checkpoint_torn", {"step": item.step, "message": message})
            await self._journal.record(f"checkpoint_torn:{item.generation}:{item.step}", note, item.generation)
