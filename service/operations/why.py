"""Explains a job on one screen: what holds it, what happened to it, what to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.accounting import TimeClass, allocated_s, goodput, mean_recovery_s, steps_lost
from regroup.service.policy.placement.place import PlacementChoice, Shortage
from regroup.service.policy.scheduling.quota import WaitCause
from regroup.service.store.records import START_ESTIMATED, Condition, Incident, JobRow, Step

_GOODPUT_AFTER_S = 60.0
"""A live job that holds devices for less has mostly started: a share of that time would say nothing of its health."""
_HIGH_LOSS = 0.1  # of the time with devices
_GONE = (TimeClass.RECOVERING, TimeClass.RECOMPUTE, TimeClass.DETECTING, TimeClass.HANG)
_HIGH_STALL = 0.02  # the budget of snapshots and checkpoints together
_SLOW = 1.5

_ADVICE_BY_REASON = {
    Reason.USER_ERROR: "The training code raised; the traceback is in `error`. Correct it and submit again.",
    Reason.DESYNC: "Ranks of one group called different collectives: look for a branch that not all ranks take, around "
    "the calls that the message names; the stacks in the incident's evidence show where each rank was.",
    Reason.NON_FINITE: "The loss or the gradient is no number, and was so again where that was tried; lower the "
    "learning rate, lengthen the warmup, or look at the data of that step. `recovery.non_finite: skip` leaves it out.",
    Reason.DEVICE_ERROR: "The device failed again at the same step. Out of memory: take a smaller `micro_batch` "
    "(gradients accumulate, the batch stays), checkpoint activations, or split the model over more ranks; `regroup "
    "plan` says what fits. A device-side assert is mostly an index out of range: CUDA_LAUNCH_BLOCKING=1 in `env` names "
    "the line.",
    Reason.INVALID_INPUT: "What the spec names is not so; correct the field that the message names and submit again.",
    Reason.BUDGET_EXHAUSTED: "The same cause came back too often; see the incidents' evidence and that rank's logs. "
    "`recovery.budgets` allows more.",
    Reason.MAX_DURATION: "It ran for `max_duration`; submit with `resume_from` to go on from its last checkpoint.",
    Reason.MAX_QUEUE_TIME: "It waited for `max_queue_time`; ask for less, free nodes, or wait longer.",
    Reason.DEPENDENCY_FAILED: "A job named in `depends_on` ended otherwise than SUCCEEDED; see why, then submit both again.",
    Reason.PLATFORM_ERROR: "This is our fault; please report it with the error below.",
    Reason.CANCELLED_BY_USER: "It was cancelled; submit with `resume_from` to go on from its last checkpoint.",
}


@dataclass(frozen=True)
class Why:
    """The explanation."""

    summary: str
    """One sentence."""
    advice: tuple[str, ...]
    """What to do, the most useful first."""
    conditions: tuple[Condition, ...]
    incidents: tuple[Incident, ...]
    queue_position: int | None
    """Jobs ahead of it; None if it does not queue."""
    estimated_start: str | None
    """When it is expected to start, in ISO 8601; None if it does not queue or that cannot be told."""
    recovery_s: float
    """Seconds lost to incidents, fault to first step."""
    mean_recovery_s: float | None
    """Mean of those of its failures (MTTR); None before one was mended."""
    steps_lost: Mapping[str, int]
    """Steps done again, by the reason of the incidents that cost them."""
    stall_ratio: float | None
    """Share of recent step time in which training waited for snapshots and checkpoints."""
    seconds: Mapping[TimeClass, float]
    """Where its time went; they sum to its age."""
    goodput: float | None
    """Share of its time with devices that went into steps that count; None as long as it is too early to say."""
    choice: PlacementChoice | None = None
    """Why its nodes are these; None while it has none."""


def explain(
    job: JobRow,
    incidents: Sequence[Incident],
    recent: Sequence[Step],
    queue_position: int | None,
    seconds: Mapping[TimeClass, float],
    now: float,
    choice: PlacementChoice | None = None,
) -> Why:
    """Explain a job.

    Args:
        recent: its newest committed steps.
        queue_position: jobs ahead of it in the queue.
        seconds: where its time went.
        now: Unix seconds.
        choice: why its nodes are these.
    """
    durations = [(row.duration_s, row.stall_s or 0.0) for row in recent if row.duration_s]
    busy = sum(duration for duration, _ in durations)
    stall_ratio = sum(stall for _, stall in durations) / busy if busy else None
    is_early = not job.state.is_terminal and allocated_s(seconds) < _GOODPUT_AFTER_S
    return Why(
        summary=_summary(job, queue_position, now),
        advice=tuple(_advice(job, incidents, [duration for duration, _ in durations], stall_ratio, seconds)),
        conditions=job.conditions,
        incidents=tuple(incidents),
        queue_position=queue_position,
        estimated_start=next((each.message for each in job.conditions if each.type == START_ESTIMATED), None),
        recovery_s=sum(_lost_s(item) for item in incidents),
        mean_recovery_s=mean_recovery_s(item.data for item in incidents),
        steps_lost=steps_lost(item.data for item in incidents),
        stall_ratio=stall_ratio,
        seconds=seconds,
        goodput=None if is_early else goodput(seconds),
        choice=choice,
    )


def _lost_s(incident: Incident) -> float:
    """From the fault to the first step; of a suspension nothing, for it lasts as long as people want."""
    if incident.data.get("reason") == Reason.SUSPENDED:
        return 0.0
    return float(incident.data.get("durations", {}).get("total") or 0.0)


def _summary(job: JobRow, queue_position: int | None, now: float) -> str:
    told = f": {job.message}" if job.message else ""
    if job.state is JobState.QUEUED:
        unmet = next((condition for condition in job.conditions if not condition.status), None)
        because = f": {unmet.message}" if unmet else f", {queue_position or 0} jobs ahead"
        start = next((each.message for each in job.conditions if each.type == START_ESTIMATED), None)
        expected = f"; it is expected to start about {start}" if start else ""
        return f"It has waited {now - job.queued_at:.0f} s{because}{expected}"
    if job.state in (JobState.PLACING, JobState.STARTING) and job.phase:
        return f"It is starting: {job.phase.get('phase')} {job.phase.get('message') or ''}".rstrip()
    if job.state.is_terminal:
        return f"It ended {job.state} at {_step(job)} ({job.reason}){told}"
    if job.is_held:
        return f"It failed at {_step(job)} ({job.reason}){told}"
    if job.state is JobState.SUSPENDED:
        return f"It is suspended at {_step(job)}, and holds nothing{told}"
    if job.intents.get("cancel"):
        return f"It was told to stop and is {job.state}{told}"
    return f"It is {job.state} at {_step(job)}, generation {job.generation} ({job.reason}){told}"


def _step(job: JobRow) -> str:
    return f"step {job.step}" if job.steps is None else f"step {job.step} of {job.steps}"


def _advice(
    job: JobRow,
    incidents: Sequence[Incident],
    durations: Sequence[float],
    stall_ratio: float | None,
    seconds: Mapping[TimeClass, float],
) -> list[str]:
    advice = [f"{condition.type}: {condition.message}" for condition in job.conditions if not condition.status]
    if any(condition.reason in (WaitCause.PROJECT_LIMIT, WaitCause.PROJECT_QUOTA) for condition in job.conditions):
        advice.append(f"`regroup projects get {job.project}` shows what its project may hold, and holds.")
    if any(condition.reason == Shortage.NODES_CLOSED for condition in job.conditions):
        advice.append("`regroup nodes` shows what happened to its nodes; `regroup uncordon NODE` trusts one again.")
    if job.state is JobState.SUSPENDED:
        return [*advice, f"`regroup resume {job.id}` has it queue again, and go on from its newest checkpoint."]
    if job.is_held:
        advice += [
            f"`regroup exec {job.id} --rank N -- CMD` runs a command where the rank ran; `regroup stacks {job.id}` "
            "shows where the ranks were.",
            f"`regroup release {job.id}` lets its nodes go.",
        ]
    if job.state.is_terminal or job.is_held:
        return advice + [text for reason, text in _ADVICE_BY_REASON.items() if job.reason == reason]
    gone_s = sum(seconds[kind] for kind in _GONE)
    if incidents and gone_s > _HIGH_LOSS * allocated_s(seconds):
        causes = ", ".join(sorted({item.cause for item in incidents}))
        advice.append(
            f"{len(incidents)} incident{'' if len(incidents) == 1 else 's'} took {gone_s / allocated_s(seconds):.0%} "
            f"of its time with devices: {causes}."
        )
    if stall_ratio is not None and stall_ratio > _HIGH_STALL:
        advice.append(
            f"Training waits {stall_ratio:.0%} of the time for snapshots: raise `snapshot.every_steps`, or "
            "make it `auto`."
        )
    if len(durations) >= 10:
        ordered = sorted(durations)
        newest = sorted(durations[-5:])[2]
        if newest > _SLOW * ordered[len(ordered) // 2]:
            advice.append(
                f"The newest steps take {newest:.2f} s against {ordered[len(ordered) // 2]:.2f} s before; "
                "look for another load on its nodes."
            )
    return advice
