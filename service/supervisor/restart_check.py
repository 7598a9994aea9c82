"""Restart check (`recovery.verify`): the job restarts early, and the steps that it repeats must be equal."""

import time
from typing import Protocol

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.restart_check import ProgramOverlap, compare_program, find_difference, is_complete
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.workers.contract.messages import Note
from regroup.workers.contract.restart_check import COMPARED_STEPS, PROGRAM_STOPS, SAVED_STEP

_PLANNED = "restarting once from memory to compare repeated steps (recovery.verify)"
_SKIPPED = (
    f"the restart check was skipped: it needs a job that starts at step 0, and no failure or other planned end before "
    f"step {max(COMPARED_STEPS)}"
)
_PROGRAM_PLANNED = "restarting from the program's own checkpoint to compare repeated steps (regroup run --check)"
_FOUND_CHECKPOINT = (
    "the program continued from a checkpoint of step {step} that it found, and the check needs a start from the "
    "beginning: remove that checkpoint, or give the program another folder for the check"
)
_FAILED_BEFORE = "the restart check was skipped, because a failure or another planned end came before the comparison"
_NO_CHECKPOINT = (
    f"the program started from its beginning after every restart, the last one within step {PROGRAM_STOPS[-2]}: let it "
    "save a checkpoint in its first steps, and load it at the start"
)
_NOTHING_REPEATED = (
    "the program continued after the last step that was observed, so there is no repeated step to compare: let it save "
    "checkpoints at steps, not while a step runs"
)
_PROGRAM_ADVICE = (
    "Save and load everything that training changes: model, optimizer, schedule, scaler, the position in the data, and "
    "the state of random generators"
)
_EQUAL = f"steps {COMPARED_STEPS[0]} to {COMPARED_STEPS[-1]} are equal"


class Check(Protocol):
    """A restart check, as the supervisor uses it."""

    def find_end(self, monitor: GenerationMonitor) -> Cause | None:
        """Return the planned end of a generation after its ranks have ended at the agreed step."""
        ...

    def poll(self, monitor: GenerationMonitor) -> None:
        """Compare the states that are known. Raises Finished if the job ends with the comparison."""
        ...


def make_restart_check(log: EventLog, verify: str, *, is_program: bool) -> Check:
    """Return the check of a job. `verify` is its `recovery.verify`."""
    return ProgramCheck(is_on=verify != "off") if is_program else RestartCheck(log, verify)


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


class ProgramCheck:
    """Ends generations of a program that saves its own state, until one repeats steps, and judges these."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._previous: GenerationMonitor | None = None
        """The last generation that ended at its agreed step. It started from the beginning of the program."""

    def find_end(self, monitor: GenerationMonitor) -> Cause | None:
        """Return the planned end of a generation after its ranks have reached the agreed step."""
        if not (self._is_on and monitor.is_stopped):
            return None
        self._previous = monitor
        return Cause(Reason.RESTART_CHECK, _PROGRAM_PLANNED, time.time())

    def poll(self, monitor: GenerationMonitor) -> None:
        """Compare repeated steps.

        Raises:
            Finished: the verdict, or the reason why there is none.
        """
        if not self._is_on:
            return
        start = monitor.program_start
        if monitor.generation.number == 1:
            if start is not None and start.step > 0:
                raise Finished(Reason.RESTART_NOT_VERIFIED, _FOUND_CHECKPOINT.format(step=start.step))
            return
        if self._previous is None or self._previous.generation.number + 1 < monitor.generation.number:
            raise Finished(Reason.RESTART_NOT_VERIFIED, _FAILED_BEFORE)
        if start is None or self._previous is monitor:
            return
        overlap = compare_program(
            self._previous.digests,
            monitor.digests,
            start.step if start.has_step_count else None,
            len(monitor.generation.ranks),
        )
        if overlap is not None:
            self._judge(overlap, monitor.generation.number)

    def _judge(self, overlap: ProgramOverlap, number: int) -> None:
        if overlap.start == 0:
            if number >= len(PROGRAM_STOPS):
                raise Finished(Reason.RESTART_NOT_VERIFIED, _NO_CHECKPOINT)
            return  # the program has not saved a checkpoint yet: it continues to a later step
        if overlap.difference is not None:
            source = "checkpoint" if overlap.start is None else f"checkpoint of step {overlap.start}"
            raise Finished(
                Reason.STATE_NOT_RESTORED,
                f"a restart from the program's {source} changes the result: {overlap.difference}. {_PROGRAM_ADVICE}",
                overlap.difference.to_error(),
            )
        if overlap.is_decided and overlap.steps:
            first, last = overlap.steps[0], overlap.steps[-1]
            steps = f"step {last} is" if first == last else f"steps {first} to {last} are"
            raise Finished(Reason.RESTART_VERIFIED, f"{steps} equal")
        if overlap.is_decided:
            raise Finished(Reason.RESTART_NOT_VERIFIED, _NOTHING_REPEATED)
