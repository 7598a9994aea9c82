"""One job's presence on one node: its zygote, its ranks, its snapshots. The agent without Ray.

Every call carries a generation; the highest ever seen is obeyed and older ones are refused and counted.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regroup.workers.agent.checkpoints import SAVER_FAULTS, CheckpointSaver
from regroup.workers.agent.diagnostics.evidence import Evidence, last_words
from regroup.workers.agent.exec_sessions import ExecSessions
from regroup.workers.agent.outbox import Outbox
from regroup.workers.agent.ranks import logs
from regroup.workers.agent.ranks.rank_group import RankGroup
from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_FOR_MIRRORS, BUFFERS_PER_RANK, BufferPool, Lent
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import Manifest, TransferAddress
from regroup.workers.contract.codec import build
from regroup.workers.contract.messages import (
    AgentReport,
    AgentRequest,
    BuffersRequest,
    Exited,
    FaultDue,
    Join,
    Message,
    Note,
    Report,
    Restore,
    StepRow,
    to_json,
)
from regroup.workers.environment import code_archive
from regroup.workers.environment.interpreter import JobPython
from regroup.workers.environment.process_env import rank_variables
from regroup.workers.os import node_facts, orphans, procfs, scratch_dir
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink
from regroup.workers.zygote.launch import Launch

RANK_NICE = 5
"""Ranks yield to the agent: a recovery must not wait for a busy core."""
_ZYGOTE_ANSWERS_S = 8.0
STORE_RANK = -1
ZYGOTE_RANK = -2


class StaleGeneration(Exception):
    """The caller acts for a generation that has been overtaken."""


class JobHost:
    """Holds processes and memory of one job on one node; speaks only through `wake` and what its calls return."""

    def __init__(
        self,
        config: AgentConfig,
        grant_fault: Callable[[FaultDue], Awaitable[bool]],
        wake: Callable[[], None],
        zygote: ZygoteLink | None = None,
    ) -> None:
        """`zygote`: one that was started before the job came, for the same interpreter and environment."""
        self.config = config
        self.outbox = Outbox()
        self.generation = 0
        self.stale = 0
        """Refused calls of older generations."""
        self.buffers = BufferPool(BUFFERS_PER_RANK + (BUFFERS_FOR_MIRRORS if config.mirror else 0))
        self.mirroring = Mirroring(config, self.buffers)
        self.scratch = scratch_dir.path_of(config.job_id, config.node_id)
        self._succeeds = self.scratch.exists()
        """An agent was here before, and did not end as it should."""
        self._hold = scratch_dir.make(self.scratch)
        self.log_dir = Path(config.log_dir) if config.log_dir else node_facts.session_log_dir() or self.scratch
        self.saving = CheckpointSaver(config, self.scratch, self.buffers, self.note)
        self.evidence = Evidence(config, self.scratch)
        self.executions = ExecSessions()
        """Commands that people run beside the ranks."""
        self.places: dict[int, tuple[Join, dict[str, str]]] = {}
        """Rank → its place in the newest generation here, and the variables it began with; kept when that has ended."""
        self.python = JobPython(config, self.scratch, Path(f"{self._log('environment', 0)}.out"), self.note)
        zygotes = {zygote.process.pid} if zygote is not None else set[int]()
        self._not_ours = frozenset(procfs.children(os.getpid())) - zygotes
        """Children that this process had before: they are no job's."""
        self._grant_fault, self._wake = grant_fault, wake
        self._zygote: ZygoteLink | None = None
        self._formation: RankGroup | None = None
        self._learned: dict[str, float] = {}
        self._store: int | None = None
        self._stepped = 0
        """Generation that has committed a step on this node."""
        self._restore = Restore("none")
        self._fetching: asyncio.Future[None] | None = None
        """Of what ranks of the newest generation restore from."""
        self._oom_kills = node_facts.oom_kills()
        self.dataset: dict[str, Any] = {}
        """Prepared data as this node reads it."""
        self._spare = zygote
        self._code: Path | None = None
        """The job's own code, unpacked."""

    # ------------------------------------------------------------ life

    async def prepare(self) -> records.NodeDescription:
        """Bring the zygote up; returns what a person wants to know of this node.

        Raises:
            CodeError: this node cannot have the job's code.
            PythonUnfit: nor its Python.
            ZygoteRefused: a preload failed.
            ZygoteDied: it ended for another reason.
        """
        procfs.become_subreaper()
        if self._succeeds:
            self._succeeds = False
            if stuck := await asyncio.to_thread(orphans.kill_remains, self.scratch):
                self.note("stuck", {"pids": stuck, "node": self.config.node_name})
        await asyncio.to_thread(scratch_dir.sweep)
        await self.python.made()
        if self.config.code:
            self._code = await asyncio.to_thread(
                code_archive.unpacked,
                self.config.code,
                self.config.blob_uri,
                code_archive.node_cache(),
                self.scratch / code_archive.DIRECTORY,
            )
        had_spare = self._spare is not None
        try:
            ready = await self._zygote_up().ready()
        except ZygoteDied:
            if not had_spare:
                raise
            ready = await self._zygote_up().ready()  # it had died while it waited: this one is the job's own
        if ready["why"]:
            self.note("launcher", {"message": ready["why"], "node": self.config.node_name})
        facts = {**ready, **node_facts.host_facts()}
        return build(records.NodeDescription, {**facts, "node_id": self.config.node_id, "boot_id": self.outbox.boot_id})

    def open_store(self, generation: int) -> tuple[str, int]:
        """Start the rendezvous store of a generation; returns its address. It listens when this returns."""
        self._accept(generation)
        first, last = self.config.port_first, self.config.port_last
        listener = node_facts.bind_listener(self.config.address, range(first, last + 1) if last else None)
        with listener:
            self._store = self._zygote_up().fork(
                Launch(
                    "store",
                    "regroup.workers.zygote.rendezvous_store:main",
                    log=str(self._log("store", generation)),
                    fds=(listener.fileno(),),
                )
            )
            host, port = listener.getsockname()[:2]
        return host, port

    async def form(self, joins: Sequence[Join], devices: Sequence[int], holders: Mapping[int, TransferAddress]) -> None:
        """Fork the ranks of a generation on this node and hand each its place. `holders`: of ranks whose state is in
        another node's memory, the address of its exchange.

        Raises:
            ExchangeError: such a state could not be fetched.
        """
        generation = joins[0].generation
        self._accept(generation)
        zygote = self._zygote_up()
        await zygote.ready()
        self._restore, ranks = joins[0].restore, [join.rank for join in joins]
        fetching = self._fetching = asyncio.ensure_future(self.mirroring.fetch(self._restore, holders, ranks))
        if self._restore.source == "checkpoint":
            directory = await asyncio.to_thread(self.saving.fetch, self._restore.uri)
            joins = [replace(join, checkpoint_dir=str(directory)) for join in joins]
        formation = self._formation = RankGroup(generation, zygote, self._tell, self._lend, self._grant, self._learned)
        self.places = {
            join.rank: (join, rank_variables(self.config, join.rank, device, self.scratch))
            for join, device in zip(joins, devices, strict=True)
        }
        for (join, env), device in zip(self.places.values(), devices, strict=True):
            formation.launch(join, device, self._log(f"rank{join.rank}", generation), self.scratch, env, RANK_NICE)
        await fetching

    async def end(self, generation: int) -> Sequence[int]:
        """Kill every rank of every generation up to this one and prove it; running savers go on.

        Returns pids that outlived SIGKILL, whose devices must not be used again.
        """
        self._accept(generation)
        self.evidence.note(self._formation, self.pids().ranks)
        self._store = None  # it dies by our hand now, maybe before whoever is the cause: that is no news
        stuck = await self._end_ranks()
        if self._formation is not None:
            self._learned = self._formation.learned()
            self._formation.close()
            self._formation = None
        self.buffers.release_all(saving=self.saving.busy > 0)
        return stuck

    def tell(self, generation: int, message: AgentRequest, rank: int | None = None) -> None:
        """Say something to the ranks here, or to one of them."""
        self._accept(generation)
        if self._formation is not None:
            self._formation.tell(message, rank)

    async def save(self, generation: int, step: int, ranks: Sequence[int], uri: str) -> records.SavedShards:
        """Write these ranks' pinned snapshots of `step` below `uri`; returns files and what the metadata needs."""
        return await self.saving.save(self._zygote_up(), generation, step, ranks, uri)

    async def finish_checkpoint(self, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest) -> Manifest:
        """Write the metadata of a saved set and, last of all, its manifest; returns the manifest as written."""
        return await self.saving.finish(self._zygote_up(), uri, parts, manifest)

    async def close(self) -> None:
        """End everything this host started and give back memory and scratch space."""
        await self.executions.close()
        await self._end_ranks()
        await self.python.close()
        if self._zygote is not None:
            self._zygote.close()
            await asyncio.to_thread(self._zygote.process.wait)
        await self.mirroring.close()
        self.buffers.close()
        await asyncio.to_thread(self.saving.archive_logs, self.log_dir, self._log_prefix)
        await asyncio.to_thread(self.saving.close)
        os.close(self._hold)

    # ------------------------------------------------------------ what the agent reports

    def report(self) -> AgentReport:
        """News since the last one, and who lives."""
        formation = self._formation
        return AgentReport(
            self.config.node_id,
            self.outbox.boot_id,
            self.generation,
            formation.running() if formation else (),
            self.outbox.batch(),
            formation.phases() if formation else {},
            formation.dwells() if formation else {},
            formation.firsts() if formation else {},
            self.outbox.supervisor_run,
        )

    def renew_lease(self, last_contact_s: float) -> None:
        """Ranks live until `orphan_s` after the last word from a supervisor (CLOCK_BOOTTIME seconds)."""
        if self._zygote is not None:
            with contextlib.suppress(ZygoteDied):
                self._zygote.lease(last_contact_s + self.config.orphan_s)

    def trim_logs(self) -> None:
        """Bound the disk space that the ranks' output takes."""
        if self._formation is not None:
            logs.trim(self._formation.logs())

    def said(self) -> list[dict[str, Any]]:
        """What the ranks of the running generation have said, for a supervisor that missed it."""
        return [to_json(message) for message in self._formation.heard()] if self._formation else []

    def zygote(self) -> ZygoteLink:
        """The job's zygote on this node, started if there is none."""
        return self._zygote_up()

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Tell the supervisor something a person may want to read."""
        self._tell(Note(self.generation, kind, data, time.time()))

    def pids(self) -> records.AgentPids:
        """Process ids, for people and tests."""
        zygote = self._zygote
        if zygote is None or zygote.dead:
            return records.AgentPids(os.getpid())
        ranks = self._formation.ranks if self._formation else {}
        store = zygote.pids.get(self._store) if self._store is not None else None
        running = {rank: zygote.pids.get(local.child) for rank, local in ranks.items()}
        return records.AgentPids(os.getpid(), zygote.process.pid, store, running)

    async def stacks(self) -> Mapping[int, records.RankStack]:
        """Rank → where every thread of it is now, with step and phase."""
        return await self.evidence.places(self._formation, self.pids().ranks)

    async def look(self) -> Mapping[int, records.RankInspection]:
        """Likewise, with the collectives that each entered last; kept as evidence of how this generation ends."""
        return await self.evidence.look(self._formation, self.pids().ranks)

    def inject(self, do: str) -> None:
        """Carry out a rehearsed fault that is not a rank's own."""
        pids = self.pids()
        match do:
            case "kill_store":
                victim = pids.store
            case "kill_zygote":
                victim = pids.zygote
            case "kill_agent":
                victim = pids.agent
            case do if do in SAVER_FAULTS:
                self.saving.inject_next(do)
                return
            case other:
                raise AssertionError(f"unknown fault {other!r}")
        if victim is not None:
            os.kill(victim, signal.SIGKILL)

    def log_path(self, generation: int, rank: int, stream: str) -> Path:
        """Where a rank's output is on this node."""
        suffix = {"stdout": "out", "stderr": "err"}[stream]
        return Path(f"{self._log(f'rank{rank}', generation)}.{suffix}")

    # ------------------------------------------------------------ inside

    @property
    def _log_prefix(self) -> str:
        return f"regroup-{self.config.job_name}-{self.config.job_id}-"

    def _log(self, who: str, generation: int) -> Path:
        return self.log_dir / f"{self._log_prefix}g{generation}-{who}"

    def _accept(self, generation: int) -> None:
        if generation < self.generation:
            self.stale += 1
            self._tell(
                Note(self.generation, "stale", {"refused_generation": generation, "count": self.stale}, time.time())
            )
            raise StaleGeneration(f"generation {generation} is over; this node serves {self.generation}")
        self.generation = generation

    def _zygote_up(self) -> ZygoteLink:
        if self._zygote is not None and not self._zygote.dead:
            return self._zygote
        spare, self._spare = self._spare, None
        if spare is not None and not spare.dead:
            with contextlib.suppress(ZygoteDied):
                return self._take(spare)
        python = self.python
        return self._take(ZygoteLink.start(python.executable, python.environment(), self._zygote_log(), self.scratch))

    def _take(self, zygote: ZygoteLink) -> ZygoteLink:
        zygote.serve(self._exited, self._zygote_died, self._zygote_log(), self._code or self.scratch, self._code)
        zygote.prepare(self.config.preload, self.config.warmup)
        self._zygote = zygote
        return zygote

    def _zygote_log(self) -> Path:
        return Path(f"{self._log('zygote', self.generation)}.err")

    async def _lend(self, want: BuffersRequest) -> Lent:
        """Once what comes from other nodes is here; ranks boot meanwhile."""
        assert self._fetching is not None, "ranks are forked after it has begun"
        await asyncio.shield(self._fetching)
        return self.buffers.lend(want, self._restore)

    async def _grant(self, due: FaultDue) -> bool:
        granted = await self._grant_fault(due)
        if granted and (due.do in SAVER_FAULTS or due.do in ("kill_zygote", "kill_agent")):
            self.inject(due.do)
        return granted

    def _exited(self, child: int, code: int, time_s: float) -> None:
        if child == self._store:
            self._store = None
            self._tell(Exited(STORE_RANK, self.generation, code, time_s))
        elif self._formation is not None and (local := self._formation.exited(child, code)):
            why = self._was_out_of_memory(code), last_words(local.log, code)
            exited = Exited(local.rank, self._formation.generation, code, time_s, *why)
            self._formation.said.append(exited)
            self._tell(exited)

    def _was_out_of_memory(self, code: int) -> bool:
        before, self._oom_kills = self._oom_kills, node_facts.oom_kills()
        return code == -signal.SIGKILL and self._oom_kills > before

    def _zygote_died(self) -> None:
        self._tell(Exited(ZYGOTE_RANK, self.generation, -signal.SIGKILL, time.time()))

    def _tell(self, message: Message) -> None:
        first = isinstance(message, StepRow) and message.generation > self._stepped
        if isinstance(message, StepRow):
            self._stepped = message.generation
        self.outbox.put(message)
        if first or not isinstance(message, StepRow | Report):
            self._wake()  # other step rows, and what was reported of them, travel with the beat

    async def _end_ranks(self) -> list[int]:
        zygote = self._zygote
        if zygote is None:
            return []
        try:
            return await zygote.kill_ranks(_ZYGOTE_ANSWERS_S)
        except (ZygoteDied, TimeoutError):
            zygote.close()
            self._zygote = None
            return await asyncio.to_thread(orphans.kill_orphans, zygote.process.pid, self._not_ours)
