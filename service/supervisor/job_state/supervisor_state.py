"""Job state, phase and open incident of a supervised job, and the transitions between them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.domain.job_events import (
    EventType,
    IncidentRevised,
    RecoveryAction,
    StateChanged,
    decoded,
)
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.policy.recovery.restore_source import RestoreSource
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.workers.contract.messages import Restored
from regroup.workers.contract.storage_progress import StorageProgress

_WITHOUT_RANKS = frozenset(
    {SupervisorPhase.RECOVERING, SupervisorPhase.HELD, SupervisorPhase.ENDED, SupervisorPhase.RELEASED}
)
"""Phases in which the ranks of the newest generation are dead."""


class SupervisorState:
    """The state of one job. Each transition is written to the event log."""

    def __init__(self, log: EventLog, *, is_script: bool) -> None:
        """Initialize the state of a job that starts. `is_script`: the job saves and loads its state itself."""
        self.state = JobState.STARTING
        self.phase: str = SupervisorPhase.AGENTS
        self.incident: Incident | None = None
        """The incident from which the job is recovering."""
        self.recovered = asyncio.Event()
        """Cleared when an incident opens; set when training continues after it."""
        self.last_trained = 0
        """Newest generation that is recorded as running; 0: none."""
        self._log, self._is_script = log, is_script

    @property
    def is_without_ranks(self) -> bool:
        """True if the ranks of the newest generation are dead."""
        return self.phase in _WITHOUT_RANKS

    def replay(self, past: Sequence[SupervisorEvent]) -> None:
        """Restore the state and the open incident from the events of earlier incarnations of this supervisor."""
        states = decoded(past, StateChanged)
        incidents = {event.id: event for event in decoded(past, IncidentRevised)}
        running = [event.generation for event in past if event.type == EventType.STATE and _is_running(event)]
        self.last_trained = max(running, default=0)
        if states:
            self.state = states[-1].state
        elif incidents:  # the cluster was lost with its records, and the job queued
            self.state = JobState.QUEUED
        newest = max(incidents.values(), key=lambda event: event.times["seen_s"], default=None)
        if newest is not None and "first_step_s" not in newest.times and not self.state.is_terminal:
            self.incident = Incident.from_event(newest)
        else:
            self.recovered.set()

    async def change(
        self,
        state: JobState,
        reason: Reason,
        message: str,
        *,
        generation: int = 0,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the job's state and record the change."""
        self.state = state
        await self._log.record_state(state, reason, message, generation, error)

    def set_phase(self, phase: SupervisorPhase) -> None:
        """Set the phase without an event. A state change that follows shows it."""
        self.phase = phase

    def enter_phase(self, phase: str, fraction: float | None, message: str, generation: int = 0) -> None:
        """Enter a phase, or report its progress as a `fraction` between 0 and 1."""
        self.phase = phase
        self._log.emit_phase(phase, fraction, message, generation)

    def show_restore(self, progress: StorageProgress, message: str, generation: int) -> None:
        """Show the progress of a restore from a checkpoint as the phase."""
        self.phase = SupervisorPhase.RESTORING
        self._log.emit_restore(progress, message, generation)

    async def record_first_step(self, monitor: GenerationMonitor) -> None:
        """Mark the job as running, and close its incident, once the generation has committed its first step."""
        if monitor.first_step_s is None:
            return
        number = monitor.generation.number
        if self.state is not JobState.RUNNING:
            self.set_phase(SupervisorPhase.TRAINING)
            await self.change(JobState.RUNNING, Reason.FIRST_STEP, f"generation {number} trains", generation=number)
        if (incident := self._incident_before(monitor)) is not None:
            # Rank 0's first step may arrive before the last message of another rank that it was ready for that step.
            for phase, times_s in _phase_times(monitor):
                if times_s:
                    incident.mark_phase(phase, max(times_s.values()))
            incident.mark_phase("first_step_s", monitor.first_step_s)
            await self.revise(incident)
            self.incident = None
            self.recovered.set()

    async def record_script_start(self, monitor: GenerationMonitor) -> None:
        """Mark the job as running once its script runs on all ranks. A script may never take a step."""
        number = monitor.generation.number
        if self.state is not JobState.RUNNING and len(monitor.joined) == len(monitor.generation.ranks):
            self.set_phase(SupervisorPhase.RUNNING)
            await self.change(
                JobState.RUNNING, Reason.SCRIPT_STARTED, f"generation {number} runs the script", generation=number
            )

    def record_script_resume(self, restored: Restored) -> None:
        """Record the first step that a script took in a generation. It shows how many steps the incident cost."""
        self._log.emit_script_resume(restored)
        incident = self.incident
        if incident is not None and incident.next_generation == restored.generation and restored.has_step_count:
            incident.steps_lost = max(0, incident.at_step - restored.step)

    def open_incident(self, incident: Incident) -> None:
        """Open an incident. Record it next with `revise`."""
        self.incident = incident
        self.recovered.clear()

    async def revise(self, incident: Incident) -> None:
        """Record an incident with all that is known now."""
        incident.revision += 1
        await self._log.record_incident(incident)

    def decide(self, incident: Incident, source: RestoreSource, recovery_action: RecoveryAction) -> None:
        """Set the recovery action, and the steps that it costs.

        The steps that a script loses are known once the script has loaded its own checkpoint.
        """
        incident.recovery_action = RecoveryAction.RESPAWN if self._is_script else recovery_action
        if not self._is_script:
            incident.steps_lost = max(0, incident.at_step - source.step)
        self._mark_phase(incident, "decided_s", time.time())

    def link_generation(self, number: int) -> None:
        """Link the open incident, if any, to the generation that follows it."""
        if self.incident is not None:
            self.incident.next_generation = number

    def adopt_generation(self, adopted: Generation) -> None:
        """Link the open incident to a generation that an earlier incarnation of this supervisor formed after it."""
        incident = self.incident
        if incident is not None and incident.generation < adopted.number and incident.next_generation is None:
            incident.next_generation = adopted.number
            action = incident.recovery_action or adopted.source.recovery_action
            incident.recovery_action = RecoveryAction.RESPAWN if self._is_script else action
            incident.steps_lost = max(0, incident.at_step - adopted.start_step)

    def mark_phases(self, monitor: GenerationMonitor) -> None:
        """Mark the phases of the recovery that all ranks of the next generation have completed."""
        incident, world_size = self._incident_before(monitor), len(monitor.generation.ranks)
        if incident is None:
            return
        for phase, times_s in _phase_times(monitor):
            if len(times_s) == world_size and phase not in incident.times:
                self._mark_phase(incident, phase, max(times_s.values()))

    def _mark_phase(self, incident: Incident, phase: str, time_s: float) -> None:
        incident.mark_phase(phase, time_s)
        self._log.emit_incident_phase(incident, phase)

    def _incident_before(self, monitor: GenerationMonitor) -> Incident | None:
        incident = self.incident
        return incident if incident and incident.next_generation == monitor.generation.number else None


def _is_running(event: SupervisorEvent) -> bool:
    return event.data.get("state") == JobState.RUNNING


def _phase_times(monitor: GenerationMonitor) -> tuple[tuple[str, Mapping[int, float]], ...]:
    """Return each phase of a recovery with the times at which ranks completed it."""
    return ("formed_s", monitor.joined), ("restored_s", monitor.restored)
