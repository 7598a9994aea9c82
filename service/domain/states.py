"""Job states, the one transition table, and the closed enum of reasons.

Cancel, suspend, resume and resize are intents on the row, not states. `docs/states.md` is drawn from `TRANSITIONS`
by `state_diagram`; a test holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from regroup.service.domain.errors import IllegalTransitionError


class JobState(StrEnum):
    """Where a job stands in its life."""

    QUEUED = "QUEUED"
    """Accepted; holds nothing; its conditions say why it waits."""
    PLACING = "PLACING"
    """Nodes are allocated in the database; reservations are being taken."""
    STARTING = "STARTING"
    """Devices are held; agents and zygotes come up, the first generation forms."""
    RUNNING = "RUNNING"
    """Ranks of the newest generation commit steps."""
    RECOVERING = "RECOVERING"
    """A generation ended by a failure; the next one forms."""
    RESIZING = "RESIZING"
    """A generation ended by plan; the next one forms."""
    DRAINING = "DRAINING"
    """Told to stop; ranks are dying, devices are not free yet."""
    SUSPENDED = "SUSPENDED"
    """Holds nothing and does not wait for anything; queues again, to go on from its newest checkpoint, when resumed."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """No transition leaves this state."""
        return not TRANSITIONS[self]

    @property
    def holds_devices(self) -> bool:
        """Allocations of a job in this state are live."""
        return not self.is_terminal and self not in (JobState.QUEUED, JobState.SUSPENDED)


_S = JobState
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.PLACING, _S.SUSPENDED, _S.FAILED, _S.CANCELLED}),
    _S.PLACING: frozenset({_S.STARTING, _S.QUEUED, _S.DRAINING, _S.FAILED, _S.CANCELLED}),
    _S.STARTING: frozenset({_S.RUNNING, _S.RECOVERING, _S.QUEUED, _S.DRAINING, _S.FAILED, _S.SUCCEEDED}),
    _S.RUNNING: frozenset({_S.RECOVERING, _S.RESIZING, _S.DRAINING, _S.SUCCEEDED, _S.FAILED, _S.QUEUED}),
    _S.RECOVERING: frozenset({_S.RUNNING, _S.QUEUED, _S.DRAINING, _S.FAILED, _S.SUCCEEDED}),
    _S.RESIZING: frozenset({_S.RUNNING, _S.RECOVERING, _S.QUEUED, _S.DRAINING, _S.FAILED}),
    _S.DRAINING: frozenset({_S.CANCELLED, _S.FAILED, _S.SUCCEEDED}),
    _S.SUSPENDED: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""The only table. A missing arrow is an error, not a surprise."""


class Reason(StrEnum):
    """Why a job changed its state or a generation ended. Closed; messages are for people, reasons are API."""

    SUBMITTED = "submitted"
    PLACED = "placed"
    RESERVED = "reserved"
    FIRST_STEP = "first_step"
    SCRIPT_STARTED = "script_started"
    """A script runs on every rank; whether it takes steps is its own affair."""
    REQUEUED = "requeued"
    """The gang did not come up in time or its nodes went; all was given back and the job queues again."""

    DRAINED = "drained"
    """A node of the job is about to leave: the job went on elsewhere, or queues again. Nobody's failure."""
    RESIZED = "resized"
    """The job was given another layout: it goes on with more, fewer, or otherwise split ranks."""

    PREEMPTED = "preempted"
    """It made room for another job: its state is in durable storage, and it queues again. Nobody's failure."""
    SUSPENDED = "suspended"
    """It was told to hold nothing until it is resumed: its state is in durable storage. Nobody's failure."""
    RESUMED = "resumed"
    """It was suspended, and queues again."""

    COMPLETED = "completed"
    CANCELLED_BY_USER = "cancelled_by_user"
    MAX_DURATION = "max_duration"
    MAX_QUEUE_TIME = "max_queue_time"
    DEPENDENCY_FAILED = "dependency_failed"
    """A job that it was to come after did not succeed."""
    INVALID_INPUT = "invalid_input"
    """Data, storage, preload or environment is not as the spec says."""
    USER_ERROR = "user_error"
    """The training code raised."""
    DESYNC = "desync"
    """Ranks went into different collectives: an error of the training code, too."""
    NON_FINITE = "non_finite"
    """A loss or a gradient's norm was no number, and `recovery.non_finite` leaves nothing to try."""
    DEVICE_ERROR = "device_error"
    """A device was out of memory, or an error spoiled its context: at the same step as before, if that ends the job."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The same cause came back more often than its budget allows."""
    PLATFORM_ERROR = "platform_error"
    """Our fault; please report it."""

    RANK_EXIT = "rank_exit"
    STORE_EXIT = "store_exit"
    ZYGOTE_EXIT = "zygote_exit"
    AGENT_LOST = "agent_lost"
    NODE_LOST = "node_lost"
    HANG = "hang"
    IO_ERROR = "io_error"
    """Connection, timeout or storage errors raised in training code."""
    LOSS_SPIKE = "loss_spike"
    """A step's loss or gradient norm stood out from those before it, and `recovery.loss_spike` wants it done again."""
    SILENT_CORRUPTION = "silent_corruption"
    """Ranks held different values of what all of them hold alike."""


TERMINAL_BY_REASON: Mapping[Reason, JobState] = {
    Reason.COMPLETED: JobState.SUCCEEDED,
    Reason.CANCELLED_BY_USER: JobState.CANCELLED,
    Reason.MAX_DURATION: JobState.FAILED,
    Reason.MAX_QUEUE_TIME: JobState.FAILED,
    Reason.DEPENDENCY_FAILED: JobState.FAILED,
    Reason.INVALID_INPUT: JobState.FAILED,
    Reason.USER_ERROR: JobState.FAILED,
    Reason.DESYNC: JobState.FAILED,
    Reason.NON_FINITE: JobState.FAILED,
    Reason.DEVICE_ERROR: JobState.FAILED,
    Reason.BUDGET_EXHAUSTED: JobState.FAILED,
    Reason.PLATFORM_ERROR: JobState.FAILED,
}
"""Reasons that end a job, and how."""

BUDGET_BY_REASON: Mapping[Reason, str] = {
    Reason.RANK_EXIT: "rank_exit",
    Reason.STORE_EXIT: "rank_exit",
    Reason.ZYGOTE_EXIT: "rank_exit",
    Reason.AGENT_LOST: "node_loss",
    Reason.NODE_LOST: "node_loss",
    Reason.HANG: "hang",
    Reason.IO_ERROR: "io_error",
    Reason.LOSS_SPIKE: "loss_spike",
    Reason.SILENT_CORRUPTION: "silent_corruption",
}
"""Reasons that end a generation, and the budget (`spec.recovery.budgets`) each is charged to."""

PLANNED_REASONS = frozenset({Reason.DRAINED, Reason.RESIZED, Reason.PREEMPTED, Reason.SUSPENDED})
"""Reasons that end a generation at a step that its ranks agreed on."""

PROGRESS_REASONS = frozenset(
    {
        Reason.SUBMITTED,
        Reason.PLACED,
        Reason.RESERVED,
        Reason.FIRST_STEP,
        Reason.SCRIPT_STARTED,
        Reason.REQUEUED,
        Reason.RESUMED,
        *PLANNED_REASONS,
    }
)
"""Reasons of ordinary progress and of what is planned: neither terminal nor charged. With the two maps above they cover
`Reason`."""


@dataclass(frozen=True)
class Transition:
    """A checked state change, ready for the store to write with its event."""

    job_id: str
    source: JobState
    target: JobState
    reason: Reason
    message: str = ""


def check_transition(job_id: str, source: JobState, target: JobState, reason: Reason, message: str = "") -> Transition:
    """Check a state change against `TRANSITIONS`.

    Raises:
        IllegalTransitionError: the table has no such arrow, or the reason does not lead to that terminal state.
    """
    if target not in TRANSITIONS[source]:
        legal = ", ".join(sorted(TRANSITIONS[source])) or "nothing: it is terminal"
        raise IllegalTransitionError(f"job {job_id} cannot go from {source} to {target}; legal from {source}: {legal}")
    if target.is_terminal and TERMINAL_BY_REASON.get(reason) is not target:
        raise IllegalTransitionError(f"job {job_id} cannot end as {target} for reason {reason!r}")
    return Transition(job_id, source, target, reason, message)


def state_diagram() -> str:
    """Mermaid text of `TRANSITIONS`, in table order."""
    lines = ["stateDiagram-v2", "    [*] --> QUEUED"]
    for source, targets in TRANSITIONS.items():
        lines += [f"    {source} --> {target}" for target in JobState if target in targets]
        if not targets:
            lines.append(f"    {source} --> [*]")
    return "\n".join(lines)
