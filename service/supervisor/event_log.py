"""What a supervisor says about its job: state changes, phases of starting, incidents as they fill."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.domain.job_events import (
    IncidentRevised,
    JobMoved,
    MetricsReported,
    NoteRecorded,
    PhaseProgressed,
    RecoveryAction,
    ScriptResumed,
    StateChanged,
    SupervisorPhase,
    decoded,
)
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.recovery.restore_source import RestoreSource
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation
from regroup.service.supervisor.incidents import Incident
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.outcomes import Relocated
from regroup.workers.contract.agent_records import NodeDescription
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Note, Report, Restored, StepRow


class EventLog:
    """Writes events under keys that are unique in the job's life, however often a supervisor restarts."""

    def __init__(self, journal: Journal, attempt: int, *, keeps_state: bool) -> None:
        """`keeps_state`: the job is a script, whose state is its own."""
        self._keeps_state = keeps_state
        self.state = JobState.STARTING
        self.phase: str = SupervisorPhase.AGENTS
        self.incident: Incident | None = None
        """The one that is being recovered from."""
        self.calm = asyncio.Event()
        """Cleared by who opens an incident; set when training goes on after it."""
        self._journal, self._attempt = journal, attempt
        self._phases = 0
        self._moves = 0
        """Of earlier lives, too."""

    async def change(
        self,
        state: JobState,
        reason: Reason,
        message: str,
        *,
        generation: int = 0,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """The job is in another state."""
        self.state = state
        key = "state:end" if state.is_terminal else f"state:{self._attempt}:{generation}:{state.value}"
        event = StateChanged(state, reason, message, dict(error) if error else None)
        await self._journal.record(key, event, generation)

    def enter(self, phase: str, fraction: float | None, message: str, generation: int = 0) -> None:
        """A part of starting has begun, or is so far."""
        self.phase = phase
        self._phases += 1
        key = f"phase:{self._journal.boot_id[:8]}:{self._phases}"
        self._journal.emit(key, PhaseProgressed(phase, fraction, message), generation, time.time())

    def step(self, row: StepRow) -> None:
        """A step was committed."""
        self._journal.emit(f"step:{row.generation}:{row.step}", row, row.generation, row.time_s)

    def report(self, report: Report) -> None:
        """Training code said more of a step than its row did."""
        key = f"report:{report.generation}:{report.step}:{report.time_s}"
        self._journal.emit(key, MetricsReported(report.step, report.metrics), report.generation, report.time_s)

    def note(self, node_id: str, note: Note) -> None:
        """Something of a node that a person may want to read."""
        if note.kind == "progress":
            self.enter(
                note.data.get("phase", SupervisorPhase.DATA), note.data.get("fraction"), note.data.get("message", "")
            )
            return
        key = f"note:{node_id[:8]}:{note.kind}:{note.time_s}"
        self._journal.emit(key, NoteRecorded(note.kind, note.data), note.generation, note.time_s)

    def nodes(self, facts: Mapping[str, NodeDescription]) -> None:
        """Host facts of every node, and how long its zygote took."""
        for node_id, found in facts.items():
            key = f"note:{node_id[:8]}:node:{found.boot_id}"
            self._journal.emit(key, NoteRecorded("node", plain(found)), 0, time.time())

    async def trains(self, watch: GenerationMonitor) -> None:
        """The generation has committed its first step (once)."""
        if watch.first_step_s is None:
            return
        number = watch.generation.number
        if self.state is not JobState.RUNNING:
            self.phase = SupervisorPhase.TRAINING
            await self.change(JobState.RUNNING, Reason.FIRST_STEP, f"generation {number} trains", generation=number)
        if (incident := self._of(watch)) is not None:
            # Rank 0's first step may be heard of before the last of the others has said that it was ready for it.
            for phase, heard in _phases_heard(watch):
                if heard:
                    incident.mark_phase(phase, max(heard.values()))
            incident.mark_phase("first_step_s", watch.first_step_s)
            await self.revise(incident)
            self.incident = None
            self.calm.set()

    async def runs(self, watch: GenerationMonitor) -> None:
        """The generation's script runs on every rank (once); it need not ever take a step."""
        number = watch.generation.number
        if self.state is not JobState.RUNNING and len(watch.joined) == len(watch.generation.ranks):
            self.phase = SupervisorPhase.RUNNING
            await self.change(
                JobState.RUNNING, Reason.SCRIPT_STARTED, f"generation {number} runs the script", generation=number
            )

    def resumed(self, restored: Restored) -> None:
        """A script took its first step of a generation: what number it had, and so what an incident cost."""
        number = restored.generation
        event = ScriptResumed(restored.step, restored.has_step_count)
        self._journal.emit(f"resumed:{number}", event, number, restored.time_s)
        incident = self.incident
        if incident is not None and incident.next_generation == number and restored.has_step_count:
            incident.steps_lost = max(0, incident.at_step - restored.step)

    def follow(self, watch: GenerationMonitor) -> None:
        """Note in the open incident how far its next generation is."""
        incident, world = self._of(watch), len(watch.generation.ranks)
        if incident is None:
            return
        for phase, heard in _phases_heard(watch):
            if len(heard) == world and phase not in incident.times:
                self.passed(incident, phase, max(heard.values()))

    def passed(self, incident: Incident, phase: str, time_s: float) -> None:
        """A phase of a recovery has ended: said at once, without the wait for a record. The next revision keeps it."""
        incident.mark_phase(phase, time_s)
        key = f"incident:{incident.id}:{incident.revision}:{phase}"
        self._journal.emit(key, incident.to_event(), incident.generation, time.time())

    def decide(self, incident: Incident, source: RestoreSource, recovery_action: RecoveryAction) -> None:
        """Where the next generation's state comes from, and so what the incident costs. What it costs a script is known
        once that has found its own checkpoint."""
        incident.recovery_action = RecoveryAction.RESPAWN if self._keeps_state else recovery_action
        if not self._keeps_state:
            incident.steps_lost = max(0, incident.at_step - source.step)
        self.passed(incident, "decided_s", time.time())

    def take_up(self, following: Generation) -> None:
        """An earlier life of this supervisor formed the generation that follows the open incident's."""
        incident = self.incident
        if incident is not None and incident.generation < following.number and incident.next_generation is None:
            incident.next_generation = following.number
            action = incident.recovery_action or following.source.recovery_action
            incident.recovery_action = RecoveryAction.RESPAWN if self._keeps_state else action
            incident.steps_lost = max(0, incident.at_step - following.start_step)

    def leaves(self, generation: int, message: str) -> None:
        """How far a planned end is."""
        key = f"leaving:{self._journal.boot_id[:8]}:{generation}:{message}"
        self._journal.emit(key, NoteRecorded("leaving", {"message": message}), generation, time.time())

    async def moved(self, moved: Relocated) -> None:
        """The job has other nodes from now on. On record before it goes there: a supervisor that restarts is born with
        those of the beginning."""
        if moved.is_recorded:
            return
        event = JobMoved(
            nodes=tuple(node.to_json() for node in moved.nodes),
            layout=moved.layout.to_json(),
            former=dict(moved.former),
            attempt=self._attempt,
        )
        generation = self.incident.generation if self.incident else 0
        self._moves += 1
        await self._journal.record(f"moved:{self._attempt}:{self._moves}", event, generation)

    async def revise(self, incident: Incident) -> None:
        """Say what is known of an incident by now, on record."""
        incident.revision += 1
        key = f"incident:{incident.id}:{incident.revision}"
        await self._journal.record(key, incident.to_event(), incident.generation)

    def recall(self, past: Sequence[SupervisorEvent]) -> None:
        """Take up the state, and the open incident, that an earlier life of this supervisor left."""
        states = decoded(past, StateChanged)
        incidents = {event.id: event for event in decoded(past, IncidentRevised)}
        self._moves = len(decoded(past, JobMoved))
        if states:
            self.state = states[-1].state
        newest = max(incidents.values(), key=lambda event: event.times["seen_s"], default=None)
        if newest is not None and "first_step_s" not in newest.times and not self.state.is_terminal:
            self.incident = Incident.from_event(newest)

    def _of(self, watch: GenerationMonitor) -> Incident | None:
        incident = self.incident
        return incident if incident and incident.next_generation == watch.generation.number else None


def _phases_heard(watch: GenerationMonitor) -> tuple[tuple[str, Mapping[int, float]], ...]:
    """Phase of a recovery → which ranks have passed it, and when."""
    return ("formed_s", watch.joined), ("restored_s", watch.restored)
