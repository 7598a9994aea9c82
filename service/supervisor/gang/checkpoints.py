"""The supervisor's side of checkpoints: starts the save of a pinned set, tracks saved sets and removes old ones."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from regroup.service.domain.job_events import CheckpointRemoved, CheckpointWritten, NoteRecorded
from regroup.service.policy.recovery.checkpoint_retention import FinishedCheckpoint, find_abandoned, find_surplus
from regroup.service.policy.recovery.restore_source import SavedCheckpoint
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.save_monitor import SaveMonitor
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog, PinnedSet
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.agent_records import Manifest
from regroup.workers.contract.checkpoint_manifest import VERSION, older_place
from regroup.workers.contract.messages import StepRow

T = TypeVar("T")


class Checkpoints:
    """Saves in the background, one set at a time."""

    def __init__(self, payload: JobConfig, gang: Gang, journal: Journal) -> None:
        self.scanned = False
        """True if this supervisor has scanned durable storage."""
        self.pinned: frozenset[tuple[int, int]] = frozenset()
        """(step, generation) of the checkpoints that a user pinned."""
        self.progress = SaveMonitor()
        """Progress of the save that runs."""
        self._payload, self._gang, self._journal = payload, gang, journal
        self._manifests: dict[str, dict[str, Any]] = {}
        self._excluded: dict[str, str] = {}
        self._unfinished: set[str] = set()
        """Known URIs without a manifest."""
        self._failed: set[str] = set()
        """URIs whose save failed in this supervisor."""
        self._running: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._call: asyncio.Future[Any] | None = None
        """Call of the agents in progress, of a save or of retention."""
        self._losses: list[AgentLostError] = []
        """All losses of agents, one for each node."""
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
        task = asyncio.get_running_loop().create_task(self._save(generation, pinned, lineage, log, len(self._losses)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: on_end())

    def record_loss(self, nodes: Sequence[str]) -> None:
        """Stop waiting for lost nodes, in saves and in retention. Ray itself may keep such a call waiting for long.

        A save of a generation that had a lost node fails, also one that has not begun.
        """
        for node in nodes:
            config = self._gang.configs.get(node)
            name = config.node_name if config else node[:8]
            self._losses.append(AgentLostError(node, f"the agent on node {name} was lost during a save"))
        if self._call is not None:
            self._call.cancel()

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
        """Exclude a checkpoint that could not be loaded for `generation`, and record a note. Do it once."""
        if uri in self._excluded:
            return
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
        self, generation: Generation, pinned: PinnedSet, lineage: list[list[int]], log: GenerationLog, losses: int
    ) -> None:
        """Save a set, then remove what is no longer needed.

        Args:
            losses: number of losses before the set was pinned.
        """
        async with self._one_at_a_time:
            started, step = time.time(), pinned.step
            uri = f"{self._payload.storage_uri}/checkpoints/step-{step}.gen-{generation.number}"

            def manifest(files: list[Any]) -> dict[str, Any]:
                return {
                    "version": VERSION,
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
                if lost := [each for each in self._losses[losses:] if each.node_id in generation.nodes]:
                    raise lost[0]
                with self.progress.follow(generation.number, step, generation.nodes):
                    saving = self._gang.save_checkpoint(generation, pinned, uri, self._base(uri), manifest)
                    whole, shards = await self._unless_lost(saving)
            except (AgentError, AgentLostError) as error:
                note = NoteRecorded("checkpoint_failed", {"step": step, "message": str(error)})
                await self._journal.record(f"checkpoint_failed:{generation.number}:{step}", note, generation.number)
                self._unfinished.add(uri)
                self._failed.add(uri)
                await self._retain(log.past[-1].number, losses)
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
                written_bytes=sum(file["size_bytes"] for file in whole["files"] if older_place(file["name"]) is None),
                write_s=max((each.write_s for each in shards), default=0.0),
            )
            await self._journal.record(f"checkpoint:{generation.number}:{step}", written, generation.number)
            await self._retain(log.past[-1].number, losses)

    def _base(self, uri: str) -> str:
        """Return the newest finished checkpoint that could be loaded, apart from `uri`; empty if there is none."""
        usable = [item for item in self.finished() if self.is_usable(item.uri) and item.uri != uri]
        newest = max(usable, key=lambda item: (item.generation, item.step), default=None)
        return newest.uri if newest is not None else ""

    async def _unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of calls of the agents; raise AgentLostError if one of the job's agents is lost before."""
        losses, self._call = len(self._losses), asyncio.ensure_future(work)
        try:
            return await self._call
        except asyncio.CancelledError:
            if len(self._losses) == losses:
                raise
            raise self._losses[-1] from None
        finally:
            self._call = None

    async def _retain(self, newest_generation: int, losses: int) -> None:
        """Remove surplus and abandoned checkpoints. A removal that fails is tried again after the next save.

        No call waits for a node that was lost: the next save, perhaps the last one of the job, waits for this.

        Args:
            losses: number of losses before the save. After another one, the gang may still contain the lost node.
        """
        if len(self._losses) == losses:
            with contextlib.suppress(AgentError, AgentLostError):
                await self._unless_lost(self._remove_unneeded(newest_generation))

    async def _remove_unneeded(self, newest_generation: int) -> None:
        await self.scan()
        await self._remove_surplus()
        await self._remove_abandoned(newest_generation)

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
            removed = CheckpointRemoved(item.step, item.generation)
            await self._journal.record(f"checkpoint_removed:{item.generation}:{item.step}", removed, item.generation)
            del self._manifests[item.uri]  # last: an interrupted removal is repeated

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
            message = f"{item.uri} was never finished, so it was removed"
            note = NoteRecorded("checkpoint_torn", {"step": item.step, "message": message})
            await self._journal.record(f"checkpoint_torn:{item.generation}:{item.step}", note, item.generation)
            self._unfinished.discard(item.uri)
