"""The supervisor's side of checkpoints: order the saving of a pinned set, know what is saved, give up the old."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

from regroup.service.policy.recovery import Saved
from regroup.service.policy.retention import Kept, surplus
from regroup.service.runtime.gang import AgentError, AgentLostError, Gang
from regroup.service.runtime.generations import Generation, GenerationLog
from regroup.service.runtime.journal import Journal
from regroup.service.runtime.payload import Payload
from regroup.workers.contract import StepRow


class Checkpoints:
    """Saves in the background, one set at a time."""

    def __init__(self, payload: Payload, gang: Gang, journal: Journal) -> None:
        self.scanned = False
        """Whether durable storage was looked through in this supervisor's life."""
        self.pinned: frozenset[tuple[int, int]] = frozenset()
        """(step, generation) that a person asked to keep."""
        self._payload, self._gang, self._journal = payload, gang, journal
        self._manifests: dict[str, dict[str, Any]] = {}
        self._distrusted: dict[str, str] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._validation: dict[tuple[int, int], float] = {}

    def begin(self, generation: Generation, step: int, log: GenerationLog) -> None:
        """Save a set that every rank holds pinned."""
        lineage = [[past.number, past.start_step] for past in log.past]
        task = asyncio.get_running_loop().create_task(self._save(generation, step, lineage))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def settle(self) -> None:
        """Wait until nothing is being saved."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def validation(self, row: StepRow) -> None:
        """Remember a validation loss, for `keep_best`."""
        if row.validation_loss is not None:
            self._validation[row.generation, row.step] = row.validation_loss

    def know(self, manifests: list[dict[str, Any]]) -> None:
        """Take up what a scan found."""
        self.scanned = True
        self._manifests.update({item["uri"]: item for item in manifests})

    def known(self) -> list[Saved]:
        """Finished checkpoints, without looking at storage."""
        return [Saved(item["uri"], item["generation"], item["step"]) for item in self._manifests.values()]

    async def distrust(self, uri: str, generation: int, why: str) -> None:
        """A checkpoint could not be loaded for `generation`: never restore from it, and tell."""
        self._distrusted[uri] = why
        data = {"kind": "checkpoint_unusable", "uri": uri, "message": why}
        await self._journal.write(f"checkpoint_unusable:{generation}", "note", generation, data)

    def trusts(self, uri: str) -> bool:
        """Whether a checkpoint may be restored from."""
        return uri not in self._distrusted

    def why_distrusted(self, uri: str) -> str:
        """What was wrong with a checkpoint."""
        return self._distrusted[uri]

    async def _save(self, generation: Generation, step: int, lineage: list[list[int]]) -> None:
        async with self._one_at_a_time:
            started = time.time()
            uri = f"{self._payload.storage_uri}/checkpoints/step-{step}.gen-{generation.number}"

            def manifest(files: list[Any]) -> dict[str, Any]:
                return {
                    "version": 1,
                    "job_id": self._payload.job_id,
                    "step": step,
                    "generation": generation.number,
                    "layout": asdict(generation.layout),
                    "files": files,
                    "lineage": lineage,
                    "created_s": time.time(),
                    "validation_loss": self._validation.get((generation.number, step)),
                }

            try:
                whole = await self._gang.save(generation, step, uri, manifest)
            except (AgentError, AgentLostError) as error:
                await self._journal.write(
                    f"checkpoint_failed:{generation.number}:{step}",
                    "note",
                    generation.number,
                    {"kind": "checkpoint_failed", "step": step, "message": str(error)},
                )
                return
            self._manifests[uri] = {**whole, "uri": uri}
            size = sum(file["size_bytes"] for file in whole["files"])
            await self._journal.write(
                f"checkpoint:{generation.number}:{step}",
                "checkpoint",
                generation.number,
                {
                    "step": step,
                    "generation": generation.number,
                    "uri": uri,
                    "size_bytes": size,
                    "files": len(whole["files"]),
                    "duration_s": time.time() - started,
                    "validation_loss": whole["validation_loss"],
                },
            )
            await self._retain()

    async def _retain(self) -> None:
        policy = self._payload.spec.checkpoint
        kept = [
            Kept(
                uri,
                item["generation"],
                item["step"],
                item.get("validation_loss"),
                (item["step"], item["generation"]) in self.pinned,
            )
            for uri, item in self._manifests.items()
            if uri not in self._distrusted
        ]
        for item in surplus(kept, keep_last=policy.keep_last, keep_best=policy.keep_best):
            uri = item.uri
            try:
                await self._gang.agents.call(next(iter(self._gang.configs)), "remove_checkpoint", uri, timeout_s=600)
            except AgentLostError:
                return  # the next save tries again
            del self._manifests[uri]
            await self._journal.write(
                f"checkpoint_removed:{item.generation}:{item.step}",
                "checkpoint_removed",
                item.generation,
                {"step": item.step, "generation": item.generation},
            )
