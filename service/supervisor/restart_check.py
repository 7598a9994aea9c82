"""Restart check (`recovery.verify`): the job restarts once from memory, and repeated steps must be equal."""

import time

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.restart_check import find_difference, is_complete
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.workers.contract.messages import Note
from regroup.workers.contract.restart_check import COMPARED_STEPS, SAVED_STEP

_PLANNED = "restarting once from memory to compare repeated steps (recovery.verify)"
_SKIPPED = (
    f"the restart check was skipped: it needs a job that starts at step 0, and no failure or other planned end before "
    f"step {max(COMPARED_STEPS)}"
)
_EQUAL = f"steps {COMPARED_STEPS[0]} to {COMPARED_STEPS[-1]} are equal"


class RestartCheck:
    """Compares the first two generations of a job, once."""

    def __init__(self, log: EventLog, verify: str) -> None:
        """Initialize the check. `verify` is the job's `recovery.verify`."""
        self._log = log
        self._is_pending = verify != "off"
        self._ends_job = verify == "restart_only"
        self._first: GenerationMonitor | None = None

    def find_end(self, monitor: GenerationMonitor) -> Cause | None:
        """Return the planned end of the first generation after its ranks have ended at the agreed step."""
        if not (self._is_pending and self._is_first(monitor) and monitor.is_stopped):
            return None
        if not is_complete(monitor.digests, COMPARED_STEPS, len(monitor.generation.ranks)):
            return None
        self._first = monitor
        return Cause(Reason.RESTART_CHECK, _PLANNED, time.time())

    def poll(self, monitor: GenerationMonitor) -> None:
        """Compare the states once both generations have taken the same steps.

        Raises:
            Finished: they differ, so a failure would change the result of this job; or the job checks only that.
        """
        if not self._is_pending or self._is_first(monitor):
            return
        first, world_size = self._first, len(monitor.generation.ranks)
        is_second = first is not None and monitor.generation.start_step == SAVED_STEP
        if not is_second:
            self._end(monitor, "restart_check_skipped", _SKIPPED, Reason.RESTART_NOT_VERIFIED)
        elif is_complete(monitor.digests, COMPARED_STEPS, world_size):
            self._compare(first, monitor)

    def _compare(self, first: GenerationMonitor | None, second: GenerationMonitor) -> None:
        assert first is not None, "there are two generations to compare"
        difference = find_difference(first.digests, second.digests)
        if difference is None:
            self._end(second, "restart_verified", _EQUAL, Reason.RESTART_VERIFIED)
            return
        self._is_pending = False
        raise Finished(
            Reason.STATE_NOT_RESTORED,
            f"a restart from memory changes the result: {difference}. Track every object that training changes. On "
            "CUDA, also set determinism: strict, because other operations may differ between two runs",
            difference.to_error(),
        )

    def _is_first(self, monitor: GenerationMonitor) -> bool:
        return monitor.generation.start_step == 0 and monitor.generation.number == 1

    def _end(self, monitor: GenerationMonitor, kind: str, message: str, reason: Reason) -> None:
        self._is_pending = False
        number = monitor.generation.number
        self._log.emit_note("", Note(number, kind, {"message": message}, time.time()))
        if self._ends_job:
            raise Finished(reason, message)
