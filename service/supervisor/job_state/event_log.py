"""Events of a supervisor: each under a key that makes it unique among all events of its job."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.domain.job_events import (
    JobRelocated,
    MetricsReported,
    NoteRecorded,
    PhaseProgressed,
    ScriptResumed,
    StateChanged,
    decoded,
)
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.step_columns import step_key
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Relocated
from regroup.workers.contract.agent_records import NodeDescription
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Note, Report, Restored, StepRow
from regroup.workers.contract.storage_progress import StorageProgress

START_FAILED = "start_failed"
"""Kind of the note about a start at which an agent did not come up."""


class EventLog:
    """Writes events. `record_…` waits until the event is durable in the cluster; `emit_…` does not wait."""

    def __init__(self, journal: Journal, attempt: int) -> None:
        self._journal, self._attempt = journal, attempt
        self._phases = 0
        self._relocations = 0
        """Number of relocations of the job, also in earlier incarnations of its supervisor."""

    def replay(self, past: Sequence[SupervisorEvent]) -> None:
        """Restore the counters from the events of earlier incarnations."""
        self._relocations = len(decoded(past, JobRelocated))

    async def record_state(
        self, state: JobState, reason: Reason, message: str, generation: int, error: Mapping[str, Any] | None
    ) -> None:
        """Record a change of the job's state."""
        key = "state:end" if state.is_terminal else f"state:{self._attempt}:{generation}:{state.value}"
        event = StateChanged(state, reason, message, dict(error) if error else None)
        await self._journal.record(key, event, generation)

    async def record_incident(self, incident: Incident) -> None:
        """Record the present revision of an incident."""
        key = f"incident:{incident.id}:{incident.revision}"
        await self._journal.record(key, incident.to_event(), incident.generation)

    async def record_failed_start(self, attempt: int, message: str, charge: Mapping[str, Any]) -> None:
        """Record that a start of the job failed, with its charge to a budget."""
        note = NoteRecorded(START_FAILED, {"message": message, "charge": dict(charge)})
        await self._journal.record(f"start_failed:{attempt}", note, 0)

    async def record_relocation(self, relocated: Relocated, generation: int) -> None:
        """Record the job's new nodes before it moves there.

        A supervisor that restarts is created with the nodes of the job's first placement.
        """
        if relocated.is_recorded:
            return
        event = JobRelocated(
            nodes=tuple(node.to_json() for node in relocated.nodes),
            layout=relocated.layout.to_json(),
            former=dict(relocated.former),
            attempt=self._attempt,
        )
        self._relocations += 1
        await self._journal.record(f"relocated:{self._attempt}:{self._relocations}", event, generation)

    def emit_phase(self, phase: str, fraction: float | None, message: str, generation: int) -> None:
        """Emit the start or the progress of a phase. `fraction` is between 0 and 1, or None if unknown."""
        self._phases += 1
        key = f"phase:{self._journal.boot_id[:8]}:{self._phases}"
        self._journal.emit(key, PhaseProgressed(phase, fraction, message), generation, time.time())

    def emit_restore(self, progress: StorageProgress, message: str, generation: int) -> None:
        """Emit the progress of a restore from a checkpoint."""
        self._phases += 1
        key = f"phase:{self._journal.boot_id[:8]}:{self._phases}"
        fraction = min(1.0, progress.done_bytes / progress.total_bytes) if progress.total_bytes else None
        figures = progress.done_bytes, progress.total_bytes, progress.bytes_per_s
        event = PhaseProgressed(SupervisorPhase.RESTORING, fraction, message, *figures)
        self._journal.emit(key, event, generation, time.time())

    def emit_step(self, row: StepRow) -> None:
        """Emit a committed step."""
        self._journal.emit(step_key(row.generation, row.step), row, row.generation, row.time_s)

    def emit_report(self, report: Report) -> None:
        """Emit metrics that training code reported in addition to its step row."""
        key = f"report:{report.generation}:{report.step}:{report.time_s}"
        self._journal.emit(key, MetricsReported(report.step, report.metrics), report.generation, report.time_s)

    def emit_note(self, node_id: str, note: Note) -> None:
        """Emit a note about a node for people to read."""
        key = f"note:{node_id[:8]}:{note.kind}:{note.time_s}"
        self._journal.emit(key, NoteRecorded(note.kind, note.data), note.generation, note.time_s)

    def emit_nodes(self, facts: Mapping[str, NodeDescription]) -> None:
        """Emit host facts of each node, with the start-up time of its zygote."""
        for node_id, description in facts.items():
            key = f"note:{node_id[:8]}:node:{description.boot_id}"
            self._journal.emit(key, NoteRecorded("node", plain(description)), 0, time.time())

    def emit_script_resume(self, restored: Restored) -> None:
        """Emit the first step that a script took in a generation."""
        event = ScriptResumed(restored.step, restored.has_step_count)
        self._journal.emit(f"resumed:{restored.generation}", event, restored.generation, restored.time_s)

    def emit_incident_phase(self, incident: Incident, phase: str) -> None:
        """Emit an incident when a phase of its recovery ends. The next recorded revision contains the same times."""
        key = f"incident:{incident.id}:{incident.revision}:{phase}"
        self._journal.emit(key, incident.to_event(), incident.generation, time.time())

    def emit_termination(self, generation: int, message: str, *, is_over: bool) -> None:
        """Emit that ranks got SIGTERM, or what became of them. Until `is_over`, it is a condition of the job."""
        key = f"terminating:{self._journal.boot_id[:8]}:{generation}:{is_over}"
        event = NoteRecorded("terminating", {"message": message, "is_over": is_over})
        self._journal.emit(key, event, generation, time.time())

    def emit_planned_end(self, generation: int, message: str) -> None:
        """Emit the progress of a planned end of a generation."""
        key = f"leaving:{self._journal.boot_id[:8]}:{generation}:{message}"
        self._journal.emit(key, NoteRecorded("leaving", {"message": message}), generation, time.time())

    def emit_prepared(self, generation: int, message: str, facts: Mapping[str, Any]) -> None:
        """Emit that the ranks of the next generation were formed while this one trains, or why they were not."""
        key = f"prepared:{self._journal.boot_id[:8]}:{generation}:{facts['next_generation']}"
        event = NoteRecorded("prepared", {"message": message, **facts})
        self._journal.emit(key, event, generation, time.time())
