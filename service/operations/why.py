"""Explanation of a job on one screen: why it waits, its incidents, and advice. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.states import JobState, Reason
from regroup.service.operations.placement_explanation import PlacementExplanation
from regroup.service.planner.host_memory import HostMemory, describe_host_memory, describe_shortage
from regroup.service.policy.accounting import TimeClass, allocated_s, goodput, mean_recovery_s, steps_lost
from regroup.service.policy.placement.demand import Shortage
from regroup.service.policy.scheduling.quota import WaitCause
from regroup.service.store.projects import is_suspended_for_budget
from regroup.service.store.rows.records import (
    PLATFORM_FAULT,
    START_ESTIMATED,
    TERMINATING,
    Condition,
    Incident,
    JobRow,
    Step,
)

_GOODPUT_AFTER_S = 60.0
"""Time with devices before a live job has a goodput. Before that, start-up dominates the ratio."""
_HIGH_LOSS = 0.1  # share of the time with devices
_LOST_CLASSES = (TimeClass.RECOVERING, TimeClass.RECOMPUTE, TimeClass.DETECTING, TimeClass.HANG)
_HIGH_STALL = 0.02  # the budget of snapshots and checkpoints together
_SLOW = 1.5

ADVICE_BY_REASON = {
    Reason.USER_ERROR: "The training code raised an exception; the traceback is in `error`. Fix the code and resubmit.",
    Reason.DESYNC: "Ranks of one group called different collectives. Find a branch near the calls in the message that "
    "not all ranks execute. The stacks in the incident's evidence show the position of each rank.",
    Reason.NON_FINITE: "The loss or a gradient is not finite, also after a retry. Lower the learning rate, lengthen "
    "the warm-up, or inspect the data of that step. With `recovery.non_finite: skip` the job skips such steps.",
    Reason.STATE_NOT_RESTORED: "A restart loses a part of the training state; the message names the parts that differ. "
    "Track every object that training changes with `run.track`, or save and load it in a script. On CUDA, also set "
    "`determinism: strict`. With `recovery.verify: off` the job runs without this check, and its result is wrong after "
    "a failure.",
    Reason.RESTART_NOT_VERIFIED: "No steps before and after a restart could be compared. See the message and the "
    "incidents, and run the check again.",
    Reason.DEVICE_ERROR: "The device failed again at the same step. If it ran out of memory, use a smaller "
    "`micro_batch` (the global batch stays the same), activation checkpointing, or more ranks; `regroup plan` shows "
    "what fits. A device-side assert is usually an index out of range; set CUDA_LAUNCH_BLOCKING=1 in `env` to find the "
    "line.",
    Reason.INVALID_INPUT: "An input in the spec is missing or invalid. Fix the field named in the message and "
    "resubmit.",
    Reason.BUDGET_EXHAUSTED: "The same cause occurred too often. See the incidents' evidence and the logs of that "
    "rank. `recovery.budgets` sets the number of retries.",
    Reason.MAX_DURATION: "The job reached `max_duration`. Resubmit with `resume_from` to continue from its last "
    "checkpoint.",
    Reason.MAX_QUEUE_TIME: "The job waited in the queue for `max_queue_time`. Request fewer resources, free nodes, or "
    "raise the limit.",
    Reason.DEPENDENCY_FAILED: "A job named in `depends_on` did not succeed. `regroup why` on that job shows the "
    "reason; then resubmit both jobs.",
    Reason.PLATFORM_ERROR: "This is a bug in regroup. Report it with the error below.",
    Reason.CANCELLED_BY_USER: "A user cancelled the job. Resubmit with `resume_from` to continue from its last "
    "checkpoint.",
}
"""Reason for the end of a job → what to do."""


@dataclass(frozen=True)
class Why:
    """Explanation of a job's state."""

    summary: str
    """One sentence."""
    advice: tuple[str, ...]
    """Actions, the most useful first."""
    conditions: tuple[Condition, ...]
    incidents: tuple[Incident, ...]
    queue_position: int | None
    """Number of jobs ahead in the queue; None if the job is not queued."""
    estimated_start: str | None
    """Estimated start in ISO 8601; None if the job is not queued or there is no estimate."""
    recovery_s: float
    """Seconds lost to incidents, from the fault to the first step."""
    mean_recovery_s: float | None
    """Mean recovery time of its failures (MTTR); None before the first recovery."""
    steps_lost: Mapping[str, int]
    """Number of repeated steps, by the reason of the incident."""
    stall_ratio: float | None
    """Share of recent step time in which training waited for snapshots and checkpoints."""
    seconds: Mapping[TimeClass, float]
    """Seconds by time class. The sum is the job's age."""
    goodput: float | None
    """Share of the time with devices that went into committed steps; None in the first minute, and without a step."""
    choice: PlacementExplanation | None = None
    """Placement decision of its nodes; None while it has none."""
    host_memory: str | None = None
    """Host memory of its newest generation, for people; None if it is unknown."""


def explain(
    job: JobRow,
    incidents: Sequence[Incident],
    recent: Sequence[Step],
    queue_position: int | None,
    seconds: Mapping[TimeClass, float],
    now: float,
    choice: PlacementExplanation | None = None,
    repeated: Mapping[str, int] | None = None,
    host_memory: HostMemory | None = None,
) -> Why:
    """Explain a job.

    Args:
        recent: newest committed steps.
        queue_position: number of jobs ahead in the queue.
        seconds: seconds by time class.
        now: Unix seconds.
        choice: placement decision of the job's nodes.
        repeated: number of repeated steps by reason, with those that no incident recorded; None: as the incidents tell.
        host_memory: host memory of its newest generation; None if it is unknown.
    """
    durations = [(row.duration_s, row.stall_s or 0.0) for row in recent if row.duration_s]
    busy = sum(duration for duration, _ in durations)
    stall_ratio = sum(stall for _, stall in durations) / busy if busy else None
    is_early = not job.state.is_terminal and allocated_s(seconds) < _GOODPUT_AFTER_S
    advice = _advice(job, incidents, [duration for duration, _ in durations], stall_ratio, seconds)
    if host_memory is not None and not job.state.is_terminal and (shortage := describe_shortage(host_memory)):
        advice.append(shortage)
    return Why(
        summary=_summary(job, queue_position, now),
        advice=tuple(advice),
        conditions=job.conditions,
        incidents=tuple(incidents),
        queue_position=queue_position,
        estimated_start=next((each.message for each in job.conditions if each.type == START_ESTIMATED), None),
        recovery_s=sum(_lost_s(item) for item in incidents),
        mean_recovery_s=mean_recovery_s(item.data for item in incidents),
        steps_lost=steps_lost(item.data for item in incidents) if repeated is None else repeated,
        stall_ratio=stall_ratio,
        seconds=seconds,
        goodput=None if is_early or job.step == 0 else goodput(seconds),
        choice=choice,
        host_memory=None if host_memory is None else describe_host_memory(host_memory),
    )


def _lost_s(incident: Incident) -> float:
    """Return the seconds from the fault to the first step; 0 for a suspension, which users request."""
    if incident.data.get("reason") == Reason.SUSPENDED:
        return 0.0
    return float(incident.data.get("durations", {}).get("total") or 0.0)


def _summary(job: JobRow, queue_position: int | None, now: float) -> str:
    message = f": {job.message}" if job.message else ""
    if job.state is JobState.QUEUED:
        unmet = job.platform_fault or next((condition for condition in job.conditions if not condition.status), None)
        cause = f": {unmet.message}" if unmet else f", {queue_position or 0} jobs ahead"
        start = next((each.message for each in job.conditions if each.type == START_ESTIMATED), None)
        estimate = f"; estimated start about {start}" if start else ""
        return f"Queued for {now - job.queued_at:.0f} s{cause}{estimate}"
    if job.state in (JobState.PLACING, JobState.STARTING) and job.phase:
        return f"Starting: {_activity(job.phase)}"
    if job.state.is_terminal:
        return f"Ended {job.state} at {_step(job)} ({job.reason}){message}"
    if job.is_held:
        return f"Failed at {_step(job)} ({job.reason}), nodes held{message}"
    if job.state is JobState.SUSPENDED:
        return f"Suspended at {_step(job)}, without devices{message}"
    if ending := next((each for each in job.conditions if each.type == TERMINATING), None):
        return f"{job.state} at {_step(job)}: {ending.message}"
    if job.intents.get("cancel"):
        return f"Cancellation requested; {job.state}{message}"
    doing = [_activity(job.phase)] if job.phase else []
    doing += [str(job.save["message"])] if job.save else []
    return "; ".join((f"{job.state} at {_step(job)}, generation {job.generation} ({job.reason}){message}", *doing))


def _activity(phase: Mapping[str, Any]) -> str:
    """Return what a job does that does not train, for example `data 3 of 9 files`."""
    name, message = str(phase.get("phase")), str(phase.get("message") or "")
    return message if message.startswith(name) else f"{name} {message}".rstrip()


def _duration(seconds: float) -> str:
    """Format the time of a step with three digits."""
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1000:.3g} ms"


def _step(job: JobRow) -> str:
    if job.step_is_estimated:
        return f"{job.step} steps, some of them repeated"
    return f"step {job.step}" if job.steps is None else f"step {job.step} of {job.steps}"


def _advice(
    job: JobRow,
    incidents: Sequence[Incident],
    durations: Sequence[float],
    stall_ratio: float | None,
    seconds: Mapping[TimeClass, float],
) -> list[str]:
    shown = (each for each in job.conditions if not each.status or each.type == PLATFORM_FAULT)
    advice = [f"{condition.type}: {condition.message}" for condition in shown]
    if any(condition.reason in (WaitCause.PROJECT_LIMIT, WaitCause.PROJECT_QUOTA) for condition in job.conditions):
        advice.append(f"`regroup projects get {job.project}` shows the limits of the project and its use.")
    if any(condition.reason == Shortage.NODES_CLOSED for condition in job.conditions):
        advice.append("`regroup nodes` shows why its nodes are closed; `regroup uncordon NODE` opens a node again.")
    if is_suspended_for_budget(job):
        return [*advice, "It queues again by itself when the budget is raised."]
    if job.state is JobState.SUSPENDED:
        return [*advice, f"`regroup resume {job.id}` queues it again; it continues from its newest checkpoint."]
    if job.is_held:
        advice += [
            f"`regroup exec {job.id} --rank N -- CMD` runs a command on the rank's node; `regroup stacks {job.id}` "
            "shows the stacks of the ranks.",
            f"`regroup release {job.id}` releases its nodes.",
        ]
    if job.state.is_terminal or job.is_held:
        return advice + [text for reason, text in ADVICE_BY_REASON.items() if job.reason == reason]
    lost_s = sum(seconds[kind] for kind in _LOST_CLASSES)
    if incidents and lost_s > _HIGH_LOSS * allocated_s(seconds):
        causes = ", ".join(sorted({item.cause for item in incidents}))
        advice.append(
            f"{len(incidents)} incident{'' if len(incidents) == 1 else 's'} took {lost_s / allocated_s(seconds):.0%} "
            f"of its time with devices: {causes}."
        )
    if stall_ratio is not None and stall_ratio > _HIGH_STALL:
        advice.append(
            f"Training waits for snapshots {stall_ratio:.0%} of the time. Raise `snapshot.every_steps`, or set it to "
            "`auto`."
        )
    if len(durations) >= 10:
        ordered = sorted(durations)
        newest = sorted(durations[-5:])[2]
        if newest > _SLOW * ordered[len(ordered) // 2]:
            advice.append(
                f"The newest steps take {_duration(newest)}, earlier steps took "
                f"{_duration(ordered[len(ordered) // 2])}. Check its nodes for other load."
            )
    return advice
