"""A supervisor of a running job whose agents exist only as numbers. It answers the controller's syncs.

Real: the reader of requests, the journal with its long poll, the log that makes events, and the codec of replies, as in
`Supervisor.sync`. Simulated: agents and ranks. Steps, mirrored sets and checkpoints come at fixed times.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.control_plane.running_jobs import RANKS, RANKS_PER_NODE, RunningJob
from regroup.service.domain.job_events import CheckpointWritten, MirrorChanged, NoteRecorded
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_reports import encode_rank_reports
from regroup.service.ports.sync import SupervisorStatus, SyncReply
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.intents import SyncReader
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.pace import status_pace
from regroup.workers.contract.messages import StepRow

MIRROR_EVERY_S, CHECKPOINT_EVERY_S = 12.0, 600.0
"""Seconds between two mirrored sets, and between two checkpoints."""
_GENERATION = 1
_LAYOUT = Layout(dp_shard=RANKS)


class NoRecords:
    """Create-only records that nothing reads: no supervisor of the benchmark restarts."""

    async def create(self, key: str, value: bytes) -> bool:
        """Return True: each key is new."""
        return True

    async def read(self, prefix: str) -> Mapping[str, bytes]:
        """Return nothing."""
        return {}


@dataclass
class SyncTimes:
    """Record of the calls of the controller."""

    count: int = 0
    last_s: float = 0.0
    """Monotonic time of the end of the last reply."""
    longest_gap_s: float = 0.0
    """Longest time from a reply to the next call."""
    notes_s: list[float] = field(default_factory=list[float])
    """Seconds from each note until the controller said that it is in the database."""


class SimulatedSupervisor:
    """The supervisor of one job."""

    def __init__(self, job: RunningJob) -> None:
        """Initialize a supervisor whose generation has committed no step."""
        self.job, self.step = job, 0
        self.times = SyncTimes(last_s=time.monotonic())
        self._journal = Journal(NoRecords(), job.id)
        self._log = EventLog(self._journal, 1)
        self._requests, self._status_pace = SyncReader(), status_pace(RANKS)
        self._mirrors = self._notes = 0
        self._note: tuple[int, float] | None = None
        """Number and monotonic time of a note that is not in the database yet."""

    def commit_step(self, duration_s: float) -> None:
        """Emit a committed step, as the leading rank reports it."""
        self.step += 1
        loss = 2.0 + 8.0 / (1.0 + 0.01 * self.step)
        extra = {"mfu": 0.41, "peak_bytes": 6.1e10, "exposed_communication": 0.06}
        self._log.emit_step(
            StepRow(
                _GENERATION, self.step, time.time(), duration_s, loss, 65_536, RANKS, self.step * 7919, 3e-4, 1.0,
                stall_s=0.003, extra=extra,
            )
        )  # fmt: skip

    def complete_mirror(self) -> None:
        """Emit that the other nodes hold a newer set."""
        self._mirrors += 1
        key = f"mirror:{self._journal.boot_id[:8]}:{self._mirrors}"
        self._journal.emit(key, MirrorChanged(self.step), _GENERATION, time.time())

    def complete_checkpoint(self) -> None:
        """Emit that a checkpoint is complete in durable storage."""
        uri = f"file:///nowhere/step-{self.step}.gen-{_GENERATION}"
        written = CheckpointWritten(self.step, _GENERATION, uri, 10**11, 2 * RANKS, 30.0)
        self._journal.emit(f"checkpoint:{self.step}:{_GENERATION}", written, _GENERATION, time.time())

    def emit_note(self) -> None:
        """Emit an observation that must not wait for others, unless the one before is not stored yet."""
        if self._note is None:
            self._notes += 1
            note = NoteRecorded("benchmark", {"number": self._notes})
            self._journal.emit(f"note:benchmark:{self._notes}", note, _GENERATION, time.time())
            self._note = self._journal.last_seq, time.monotonic()

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a long poll."""
        times = self.times
        times.count += 1
        times.longest_gap_s = max(times.longest_gap_s, time.monotonic() - times.last_s)
        sync = self._requests.read(request)
        if self._note is not None and sync.acked_seq >= self._note[0]:
            times.notes_s.append(time.monotonic() - self._note[1])
            self._note = None
        try:
            events = await self._journal.since(sync.boot_id, sync.acked_seq, sync.wait_s, sync.gather_s)
        finally:
            times.last_s = time.monotonic()
        return SyncReply.of(self._journal.boot_id, events, self._status()).to_json()

    def _status(self) -> SupervisorStatus:
        nodes = [node.id for node in self.job.nodes]
        ranks = None
        if self._status_pace.is_due():
            phase = self.step + 1, "forward", 0.5, 0.01, 0.2
            ranks = encode_rank_reports(dict.fromkeys(range(RANKS), phase))
        return SupervisorStatus(
            state="RUNNING",
            phase="training",
            step=self.step,
            generation=_GENERATION,
            ranks=ranks,
            nodes=tuple(sorted(nodes)),
            ranks_by_node=dict.fromkeys(nodes, RANKS_PER_NODE),
            layout=_LAYOUT,
        )
