"""Job states, the one transition table and the closed enum of reasons.

Cancel, suspend, resume and resize are intents on the job's row, not states. `state_diagram` draws `docs/states.md` from
`TRANSITIONS`; a test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from regroup.service.domain.errors import IllegalTransitionError


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "QUEUED"
    """Accepted. The job holds no devices; its conditions explain why it waits."""
    PLACING = "PLACING"
    """Nodes are allocated in the database; their reservations are being created."""
    STARTING = "STARTING"
    """Devices are reserved. Agents and zygotes start, and the first generation forms."""
    RUNNING = "RUNNING"
    """Ranks of the newest generation commit steps."""
    RECOVERING = "RECOVERING"
    """A generation ended by a failure. The next one forms."""
    RESIZING = "RESIZING"
    """A generation ended by plan. The next one forms."""
    DRAINING = "DRAINING"
    """The job is stopping. Its ranks are being killed; its devices are not free yet."""
    SUSPENDED = "SUSPENDED"
    """The job holds no devices and is not queued. On resume it returns to the queue and continues from its newest
    checkpoint."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """True if no transition leaves this state."""
        return not TRANSITIONS[self]

    @property
    def has_allocations(self) -> bool:
        """True if a job in this state has live allocations."""
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
"""The only table of legal state changes."""


class Reason(StrEnum):
    """Reason of a state change or of the end of a generation. The set is closed: reasons are API, messages are for
    people."""

    SUBMITTED = "submitted"
    """A user submitted the job."""
    PLACED = "placed"
    """The scheduler allocated nodes to the job."""
    RESERVED = "reserved"
    """Ray reserved the devices on these nodes."""
    FIRST_STEP = "first_step"
    """All ranks committed the first step of a generation."""
    SCRIPT_STARTED = "script_started"
    """A script runs on every rank. It may take no optimizer steps that the platform can observe."""
    REQUEUED = "requeued"
    """The gang did not form in time, or its nodes were lost. All devices were released and the job is queued again."""

    DRAINED = "drained"
    """A node of the job is going away. The job continued on other nodes or is queued again. Not a failure."""
    RESIZED = "resized"
    """The job has another layout: it continues with more, fewer or differently split ranks."""

    RESTART_CHECK = "restart_check"
    """The job restarts early, to check that a restart keeps its state (`recovery.verify`). Not a failure."""

    PREEMPTED = "preempted"
    """Another job needed the devices. The state is in durable storage and the job is queued again. Not a failure."""
    SUSPENDED = "suspended"
    """A user suspended the job, or the server did, for example at the end of a budget. It holds no devices until it is
    resumed; the state is in durable storage. Not a failure."""
    RESUMED = "resumed"
    """The suspended job is queued again."""

    COMPLETED = "completed"
    """The training code ended, and its last state is saved."""
    CANCELLED_BY_USER = "cancelled_by_user"
    """A user cancelled the job."""
    MAX_DURATION = "max_duration"
    """The job ran longer than its `max_duration`."""
    MAX_QUEUE_TIME = "max_queue_time"
    """The job was queued longer than its `max_queue_time`."""
    DEPENDENCY_FAILED = "dependency_failed"
    """A job in `depends_on` did not succeed."""
    INVALID_INPUT = "invalid_input"
    """An input of the spec is missing or invalid: data, storage, preload or environment."""
    USER_ERROR = "user_error"
    """The training code raised an exception."""
    DESYNC = "desync"
    """Ranks entered different collectives, which is also an error of the training code."""
    NON_FINITE = "non_finite"
    """A loss or gradient norm was non-finite, and `recovery.non_finite` allows no further attempt."""
    RESTART_VERIFIED = "restart_verified"
    """A restart changed nothing, and the job checks only that (`recovery.verify: restart_only`)."""
    RESTART_NOT_VERIFIED = "restart_not_verified"
    """The job checks only a restart (`recovery.verify: restart_only`), and no steps could be compared."""
    STATE_NOT_RESTORED = "state_not_restored"
    """A restart changed the result of the job (`recovery.verify`)."""
    DEVICE_ERROR = "device_error"
    """A device ran out of memory, or an error invalidated its context. Ends the job if it repeats at the same step."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The same cause occurred more often than its budget allows."""
    PLATFORM_ERROR = "platform_error"
    """An error in regroup itself. Report it with the job's evidence."""

    RANK_EXIT = "rank_exit"
    """The process of a rank exited."""
    STORE_EXIT = "store_exit"
    """The rendezvous store of the generation exited."""
    ZYGOTE_EXIT = "zygote_exit"
    """The process that forks the ranks of a node exited."""
    AGENT_LOST = "agent_lost"
    """The agent of the job on a node died or sends no heartbeat."""
    NODE_LOST = "node_lost"
    """A node of the job left the cluster."""
    CLUSTER_LOST = "cluster_lost"
    """Ray itself failed: the supervisor and the devices of the job were lost together."""
    HANG = "hang"
    """No rank made progress within the time that is usual for its phase."""
    IO_ERROR = "io_error"
    """Connection, timeout or storage errors raised in training code."""
    LOSS_SPIKE = "loss_spike"
    """The loss or gradient norm of a step spiked, and `recovery.loss_spike` repeats the step."""
    SILENT_CORRUPTION = "silent_corruption"
    """Ranks had different values of replicated state."""


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
    Reason.RESTART_VERIFIED: JobState.SUCCEEDED,
    Reason.RESTART_NOT_VERIFIED: JobState.FAILED,
    Reason.STATE_NOT_RESTORED: JobState.FAILED,
    Reason.DEVICE_ERROR: JobState.FAILED,
    Reason.BUDGET_EXHAUSTED: JobState.FAILED,
    Reason.PLATFORM_ERROR: JobState.FAILED,
}
"""Reason → terminal state."""

BUDGET_BY_REASON: Mapping[Reason, str] = {
    Reason.RANK_EXIT: "rank_exit",
    Reason.STORE_EXIT: "rank_exit",
    Reason.ZYGOTE_EXIT: "rank_exit",
    Reason.AGENT_LOST: "node_loss",
    Reason.NODE_LOST: "node_loss",
    Reason.CLUSTER_LOST: "node_loss",
    Reason.HANG: "hang",
    Reason.IO_ERROR: "io_error",
    Reason.LOSS_SPIKE: "loss_spike",
    Reason.SILENT_CORRUPTION: "silent_corruption",
}
"""Reason that ends a generation → budget (`spec.recovery.budgets`) that it is charged to."""

PLANNED_REASONS = frozenset({Reason.DRAINED, Reason.RESIZED, Reason.RESTART_CHECK, Reason.PREEMPTED, Reason.SUSPENDED})
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
"""Reasons of normal progress and planned changes, which are neither terminal nor charged to a budget. Together with the
two maps above they cover `Reason`."""


@dataclass(frozen=True)
class Transition:
    """A checked state change. The store writes it together with its event."""

    job_id: str
    source: JobState
    target: JobState
    reason: Reason
    message: str = ""


def check_transition(job_id: str, source: JobState, target: JobState, reason: Reason, message: str = "") -> Transition:
    """Check a state change against `TRANSITIONS` and return it.

    Raises:
        IllegalTransitionError: the table does not allow the change, or the reason does not lead to that terminal state.
    """
    if target not in TRANSITIONS[source]:
        legal = ", ".join(sorted(TRANSITIONS[source])) or "none (the state is terminal)"
        raise IllegalTransitionError(f"job {job_id} cannot change from {source} to {target}; legal targets: {legal}")
    if target.is_terminal and TERMINAL_BY_REASON.get(reason) is not target:
        raise IllegalTransitionError(f"job {job_id} cannot end as {target} with reason {reason!r}")
    return Transition(job_id, source, target, reason, message)


def state_diagram() -> str:
    """Render `TRANSITIONS` as a Mermaid diagram, in table order."""
    lines = ["stateDiagram-v2", "    [*] --> QUEUED"]
    for source, targets in TRANSITIONS.items():
        lines += [f"    {source} --> {target}" for target in JobState if target in targets]
        if not targets:
            lines.append(f"    {source} --> [*]")
    return "\n".join(lines)
