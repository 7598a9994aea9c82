"""End of a supervised job: the job finishes, or releases its nodes and queues again."""

import time

from regroup.service.domain.job_events import RecoveryAction, ResultRecorded
from regroup.service.domain.states import TERMINAL_BY_REASON, JobState, Reason
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.supervisor.failure_hold import FailureHold
from regroup.service.supervisor.gang.evidence import Evidence
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import GenerationLog
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState


class JobEnd:
    """Kills the last ranks, uploads evidence and records the last state."""

    def __init__(
        self,
        gang: Gang,
        generations: GenerationLog,
        journal: Journal,
        state: SupervisorState,
        evidence: Evidence,
        failure_hold: FailureHold,
    ) -> None:
        self._gang, self._generations, self._journal = gang, generations, journal
        self._state, self._evidence, self._failure_hold = state, evidence, failure_hold

    async def complete(self, monitor: GenerationMonitor, *, is_script: bool) -> Finished:
        """Record the result of a generation whose ranks have all returned. Return the end of the job."""
        number = monitor.generation.number
        await self._gang.kill_ranks(number)
        await self._journal.record("result", ResultRecorded(monitor.step, dict(monitor.result())), number)
        steps = f"all {monitor.step} steps committed"
        return Finished(Reason.COMPLETED, "the script exited with code 0 on every rank" if is_script else steps)

    async def finish(self, end: Finished) -> None:
        """End the job. Hold its nodes first if `hold_on_failure` asks for it."""
        number = self._last_generation
        target = TERMINAL_BY_REASON[end.reason]
        if (incident := self._state.incident) is not None and incident.recovery_action is not RecoveryAction.FAIL:
            incident.mark_job_end(time.time())
            await self._state.revise(incident)
        held_until = await self._failure_hold.start(end, number)
        if target is not JobState.SUCCEEDED:
            message = end.message + (f"; its nodes are kept until {held_until}" if held_until else "")
            await self._state.change(JobState.DRAINING, end.reason, message, generation=number, error=end.error)
        await self._gang.kill_ranks(max(1, number))
        await self._evidence.upload_pending()
        if held_until:
            self._state.set_phase(SupervisorPhase.HELD)
            await self._failure_hold.wait()
        self._state.set_phase(SupervisorPhase.ENDED)
        await self._state.change(target, end.reason, end.message, generation=number, error=end.error)

    async def requeue(self, message: str, reason: Reason) -> None:
        """Release the job's nodes and queue the job again."""
        self._state.set_phase(SupervisorPhase.RELEASED)
        await self._evidence.upload_pending()
        await self._state.change(JobState.QUEUED, reason, message, generation=self._last_generation)

    @property
    def _last_generation(self) -> int:
        return self._generations.past[-1].number if self._generations.past else 0
