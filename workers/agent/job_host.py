"""One job on one node: its zygote, ranks and snapshots. The agent without Ray."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from regroup.workers.agent import job_identity
from regroup.workers.agent.checkpoints.saver import CheckpointSaver
from regroup.workers.agent.checkpoints.stored_state import open_checkpoint
from regroup.workers.agent.diagnostics.evidence import Evidence, crash_output
from regroup.workers.agent.exec_sessions import ExecSessions
from regroup.workers.agent.generation_fence import GenerationFence
from regroup.workers.agent.job_zygote import JobZygote
from regroup.workers.agent.node_faults import NodeFaults
from regroup.workers.agent.outbox import Outbox
from regroup.workers.agent.ranks import logs
from regroup.workers.agent.ranks.log_files import LogFiles
from regroup.workers.agent.ranks.prepared_ranks import NextRanks
from regroup.workers.agent.ranks.rank_group import RankGroup
from regroup.workers.agent.ranks.rank_launch import RankLaunch, RankPlaces
from regroup.workers.agent.ranks.rank_lease import RankLease
from regroup.workers.agent.ranks.stores import Stores
from regroup.workers.agent.slices.node_restore import RestoreTraffic
from regroup.workers.agent.slices.restore_session import RestoreSession
from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_FOR_MIRRORS, BUFFERS_PER_RANK, BufferPool
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.contract import agent_records as records
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import Manifest, ShardHolder
from regroup.workers.contract.codec import build
from regroup.workers.contract.messages import (
    AgentReport,
    AgentRequest,
    Exited,
    FaultDue,
    Join,
    Message,
    Note,
    Report,
    StepRow,
    to_json,
)
from regroup.workers.contract.rank_activity import RankActivity
from regroup.workers.contract.start_messages import Restore
from regroup.workers.contract.storage_progress import StorageProgress
from regroup.workers.environment.interpreter import JobPython
from regroup.workers.environment.redaction import Redactor, secrets_on_node
from regroup.workers.os import node_facts, orphans, procfs, scratch_dir
from regroup.workers.zygote.client import ZygoteLink

STORE_RANK = -1
ZYGOTE_RANK = -2


class JobHost:
    """Owns the processes and the memory of one job on one node."""

    def __init__(
        self,
        config: AgentConfig,
        authorize_fault: Callable[[FaultDue], Awaitable[bool]],
        wake: Callable[[], None],
        spare: ZygoteLink | None = None,
    ) -> None:
        """Initialize the host and its scratch folder.

        Args:
            config: configuration of the agent.
            authorize_fault: returns True if the supervisor approves the injection of a fault.
            wake: called when a message should be reported at once.
            spare: zygote that was started before the job came, with the same interpreter and environment.
        """
        self.config = config
        self.outbox = Outbox()
        self.fence = GenerationFence(self._note_stale)
        self.buffers = BufferPool(BUFFERS_PER_RANK + (BUFFERS_FOR_MIRRORS if config.mirror else 0))
        self.mirroring = Mirroring(config, self.buffers, self.note)
        self.scratch = scratch_dir.path_of(config.job_id, config.node_id)
        self.redactor = Redactor(secrets_on_node(config))
        """Removes the secrets of this node from everything that leaves it."""
        self._has_remains = self.scratch.exists()
        """An earlier agent of the job ran here and did not shut down."""
        self._scratch_lock = scratch_dir.make(self.scratch)
        self.identity = job_identity.assign(config, self.scratch)
        user = self.identity.user
        self.log_files = LogFiles.of(config, self.scratch)
        self.checkpoints = CheckpointSaver(config, self.scratch, self.buffers, self.note, user)
        self.evidence = Evidence(config, self.scratch, self.redactor)
        self.exec_sessions = ExecSessions(self.redactor)
        self.rank_places: RankPlaces = {}
        """Rank → its `Join` and its variables at the start, of the newest generation here, also after its end."""
        log = Path(f"{self.log_files.base(0, 'environment')}.out")
        self.python = JobPython(config, self.scratch, log, self.note, user)
        events = (self._zygote_log, self._record_exit, self._record_zygote_death)
        self._zygote = JobZygote(config, self.scratch, self.python, *events, spare, self.identity)
        self._faults = NodeFaults(self.pids, self.checkpoints, self.mirroring.transfers, authorize_fault)
        self._wake = wake
        self._group: RankGroup | None = None
        self._lease = RankLease(config.orphan_s, config.termination_grace_s)
        self._first_visits_s: dict[str, float] = {}
        common = (config, self.scratch, self.log_files, self._lease, self._emit, self._faults.decide)
        self._launch = RankLaunch(*common, self.redactor.hide_message)
        self._stores = Stores(config, lambda generation: self.log_files.base(generation, "store"))
        self.next_ranks = NextRanks(self._launch, self._stores)
        self._stepped_generation = 0
        """Newest generation that committed a step on this node."""
        self._restore: RestoreSession | None = None
        """Restore of the newest generation here."""
        self._oom_kills = node_facts.oom_kills()
        self.dataset: dict[str, Any] = {}
        """Prepared data as this node reads it."""

    @property
    def generation(self) -> int:
        """Highest generation so far."""
        return self.fence.generation

    # ------------------------------------------------------------ start, generations, end

    async def prepare(self) -> records.NodeDescription:
        """Start the zygote with the job's Python and code, and describe this node.

        Raises:
            CodeError: this node cannot get the job's code.
            PythonUnfit: this node cannot get the job's Python.
            ZygoteRefused: a preload failed.
            UserUnavailable: this node cannot provide the user that the job needs.
            ZygoteDied: the zygote died for another reason.
        """
        self.identity.require()
        procfs.become_subreaper()
        self.learn_secrets()
        if self._has_remains:
            self._has_remains = False
            if stuck := await asyncio.to_thread(orphans.kill_remains, self.scratch):
                self.note("stuck", {"pids": stuck, "node": self.config.node_name})
        await asyncio.to_thread(scratch_dir.sweep)
        ready = self.redactor.hide_all(await self._zygote.prepare())  # the reason of a warm-up's failure is in it
        if ready["why"]:
            self.note("launcher", {"message": ready["why"], "node": self.config.node_name})
        facts = {**ready, **node_facts.host_facts(), "user": self.identity.user or os.geteuid()}
        return build(records.NodeDescription, {**facts, "node_id": self.config.node_id, "boot_id": self.outbox.boot_id})

    def learn_secrets(self) -> None:
        """Remove the present secrets, in addition to those before, from everything that leaves this node."""
        self.redactor.learn(secrets_on_node(self.config))

    def acquire_zygote(self) -> ZygoteLink:
        """Return the job's zygote on this node; start one if none is alive."""
        return self._zygote.acquire()

    def start_store(self, generation: int, *, is_next: bool = False) -> tuple[str, int]:
        """Start the rendezvous store of a generation and return its address, at which it listens already.

        Args:
            generation: number of the generation.
            is_next: it is prepared while the present one trains.
        """
        if is_next:
            self.fence.check(generation, is_next=True)
        else:
            self.fence.accept(generation)
        return self._stores.start(self._zygote.acquire(), generation)

    async def form_ranks(self, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]) -> None:
        """Fork the ranks of a generation on this node and send each its `Join`.

        Args:
            joins: one for each rank.
            devices: device of each of these ranks.
            holders: agents whose memory has the state to restore.

        Raises:
            TransferError, StateLostError: the state of a rank could not be found or fetched.
            StorageError: the checkpoint to restore is not complete, or damaged.
            StorageUnavailable: storage did not answer. The checkpoint may be intact.
            StartError: a rank could not be started.
        """
        self.fence.accept(joins[0].generation)
        await self.discard_ranks(self.generation)
        zygote = await self._ready_zygote()
        restore = self._open_restore(joins, holders)
        self._group = self._launch.new_group(joins[0].generation, zygote, restore, self._first_visits_s)
        self.rank_places = self._launch.fork(self._group, joins, devices, may_lock=True)
        await restore.wait()

    async def prepare_ranks(self, joins: Sequence[Join], devices: Sequence[int]) -> None:
        """Fork the ranks of the next generation while this one trains. They wait for `begin_ranks`.

        Raises:
            MemoryShortage: the node lacks memory for both generations.
            StartError: a rank could not be started.
        """
        generation = joins[0].generation
        self.fence.check(generation, is_next=True)
        running = self.pids().ranks.values()
        await self.next_ranks.prepare(joins, devices, self.generation, self._ready_zygote, running)

    async def begin_ranks(self, generation: int, restore: Restore, holders: Sequence[ShardHolder]) -> None:
        """Let the prepared ranks of a generation restore their state and train. The ranks before them are dead.

        Raises the errors of `form_ranks`, and LookupError if not all of them are alive and wait.
        """
        self.fence.accept(generation)
        prepared = self.next_ranks.acquire(generation)
        self._group = prepared.group
        self.rank_places = prepared.places_from(restore)
        session = self._open_restore([join for join, _ in self.rank_places.values()], holders)
        prepared.begin(restore, session, self._first_visits_s)
        await session.wait()

    async def discard_ranks(self, generation: int) -> None:
        """Kill the ranks prepared for generations up to this one, with their stores. The running ranks train on."""
        await self.next_ranks.discard(generation, self.generation)

    async def terminate_ranks(self, generation: int) -> None:
        """Send SIGTERM to the ranks of a generation, unless they got it before."""
        self.fence.accept(generation)
        if self._group is not None:
            self._group.terminate()

    @property
    def is_terminating(self) -> bool:
        """True if the ranks of the newest generation have got SIGTERM."""
        return self._group is not None and self._group.is_terminating

    async def kill_ranks(self, generation: int) -> Sequence[int]:
        """Kill every rank of every generation up to this one, with proof of death. Running savers continue.

        Return the pids that outlived SIGKILL. Their devices must not be reused.
        """
        self.fence.accept(generation)
        self.evidence.capture(self._group, self.pids().ranks)
        # The store is killed on purpose, possibly before the rank that failed: its exit is not reported.
        stuck = await self._zygote.kill_ranks(self.next_ranks.spared(generation))
        self.next_ranks.forget(generation)
        if self._group is not None:
            self._first_visits_s = self._group.longest_first_visits_s()
            self._group.close()
            self._group = None
        if self._restore is not None:
            self._restore.close()
            self._restore = None
        self.buffers.release_all(saving=self.checkpoints.active_savers > 0)
        return stuck

    def send_to_ranks(self, generation: int, message: AgentRequest, rank: int | None = None) -> None:
        """Send a message to all ranks on this node, or to one of them."""
        self.fence.accept(generation)
        if self._group is not None:
            self._group.send(message, rank)

    async def save_checkpoint(
        self, generation: int, step: int, ranks: Sequence[int], uri: str, differing: Sequence[str], base: str
    ) -> records.SavedShards:
        """Write these ranks' pinned snapshots of `step` below `uri`; return the files and their metadata."""
        return await self.checkpoints.save(self._zygote.acquire(), generation, step, ranks, uri, differing, base)

    async def finish_checkpoint(self, uri: str, parts: Sequence[dict[str, Any]], manifest: Manifest) -> Manifest:
        """Write the metadata of a checkpoint and, last, its manifest; return the manifest as written."""
        return await self.checkpoints.finish(self._zygote.acquire(), uri, parts, manifest)

    async def close(self) -> None:
        """End all processes that this host started, archive the logs, and release memory and scratch space."""
        await self.exec_sessions.close()
        await self._zygote.kill_ranks()
        await self.python.close()
        await self._zygote.close()
        await self.mirroring.close()
        self.buffers.close()
        files = self.log_files
        await asyncio.to_thread(self.checkpoints.archive_logs, files.folder, files.prefix, self.redactor)
        await asyncio.to_thread(self.checkpoints.close)
        os.close(self._scratch_lock)

    # ------------------------------------------------------------ reports and inspection

    def report(self) -> AgentReport:
        """Return the messages since the last report, and the live ranks."""
        running = self._group.running() if self._group else ()
        place = self.config.node_id, self.outbox.boot_id, self.generation, running
        return AgentReport(*place, self.outbox.next_batch(), supervisor_run=self.outbox.supervisor_run)

    def restore_progress(self) -> StorageProgress | None:
        """Return the progress of reading a checkpoint for the newest generation; None without one."""
        return self._restore.progress() if self._restore is not None else None

    def poll_ranks(self) -> tuple[dict[int, tuple[int, str]], dict[int, RankActivity], dict[str, float]]:
        """Return places, activity and longest first visits of the ranks. Call this every second."""
        group = self._group
        return (group.phases(), group.poll_activities(), group.first_visits_s()) if group else ({}, {}, {})

    def renew_lease(self, last_contact_s: float) -> None:
        """Let the ranks live until `orphan_s` after the last contact to a supervisor (CLOCK_BOOTTIME seconds)."""
        self._lease.renew(self._zygote.live, last_contact_s)

    def trim_logs(self) -> None:
        """Bound the disk space of the ranks' output."""
        if self._group is not None:
            logs.trim(self._group.log_paths())

    def messages_for_replay(self) -> list[dict[str, Any]]:
        """Return the messages of the running generation's ranks, for a supervisor that has restarted."""
        return [to_json(message) for message in self._group.messages_for_replay()] if self._group else []

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Emit an event for people."""
        self._emit(self.redactor.hide_message(Note(self.generation, kind, data, time.time())))

    def gpus(self) -> list[int]:
        """Return the indexes of the GPUs that the job uses on this node."""
        return [int(env["REGROUP_DEVICE_INDEX"]) for join, env in self.rank_places.values() if join.device == "cuda"]

    def pids(self) -> records.AgentPids:
        """Return the process ids of the job on this node, for people and tests."""
        zygote = self._zygote.live
        if zygote is None:
            return records.AgentPids(os.getpid())
        ranks = self._group.ranks if self._group else {}
        store = zygote.pids.get(self._stores.child_of(self.generation))
        running = {rank: zygote.pids.get(local.child) for rank, local in ranks.items()}
        return records.AgentPids(os.getpid(), zygote.process.pid, store, running)

    async def dump_stacks(self) -> Mapping[int, records.RankStack]:
        """Return rank → its step and phase, and the stack of each of its threads."""
        return await self.evidence.dump_stacks(self._group, self.pids().ranks)

    async def inspect_ranks(self) -> Mapping[int, records.RankInspection]:
        """Return rank → its position, stacks and latest collectives. Retain them as evidence."""
        return await self.evidence.inspect(self._group, self.pids().ranks)

    def inject_fault(self, do: str) -> None:
        """Inject a planned fault that does not happen inside a rank."""
        self._faults.inject(do)

    # ------------------------------------------------------------ internals

    def _zygote_log(self) -> Path:
        return Path(f"{self.log_files.base(self.generation, 'zygote')}.err")

    def _open_restore(self, joins: Sequence[Join], holders: Sequence[ShardHolder]) -> RestoreSession:
        place = {"source": joins[0].restore.source, "node": self.config.node_name}
        on_restored = partial(self._note_restored, place)
        self._restore = RestoreSession(joins, holders, self.buffers, self.mirroring, on_restored, open_checkpoint)
        return self._restore

    def _note_restored(self, place: Mapping[str, str], traffic: RestoreTraffic) -> None:
        self.note("state_restored", {**asdict(traffic), **place})

    async def _ready_zygote(self) -> ZygoteLink:
        self.learn_secrets()  # a mounted Secret may have changed
        zygote = self._zygote.acquire()
        await zygote.ready()
        return zygote

    def _note_stale(self, generation: int, count: int) -> None:
        self.note("stale", {"refused_generation": generation, "count": count})

    def _record_exit(self, child: int, code: int, time_s: float) -> None:
        if (generation := self._stores.pop_exited(child)) is not None:
            self._emit(Exited(STORE_RANK, generation, code, time_s))
        for group in filter(None, (self._group, self.next_ranks.group())):
            if (local := group.record_exit(child, code)) is not None:
                why = self._was_out_of_memory(code), crash_output(local.log, code)
                is_planned, code = group.is_terminating, local.exit_code or 0
                ended = Exited(local.rank, group.generation, code, time_s, *why, is_planned)
                group.messages.append(exited := self.redactor.hide_message(ended))
                self._emit(exited)

    def _was_out_of_memory(self, code: int) -> bool:
        before, self._oom_kills = self._oom_kills, node_facts.oom_kills()
        return code == -signal.SIGKILL and self._oom_kills > before

    def _record_zygote_death(self) -> None:
        self._emit(Exited(ZYGOTE_RANK, self.generation, -signal.SIGKILL, time.time()))

    def _emit(self, message: Message) -> None:
        is_first_step = isinstance(message, StepRow) and message.generation > self._stepped_generation
        if isinstance(message, StepRow):
            self._stepped_generation = message.generation
        self.outbox.add(message)
        if is_first_step or not isinstance(message, StepRow | Report):
            self._wake()  # other step rows and script metrics travel with the next periodic report
