"""Course and cost of one incident of a job. Pure.

Every number is measured, or computed from measured ones; `basis` explains the computation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.operations.story.spans import GenerationSpan, RestoredFrom
from regroup.service.operations.why import ADVICE_BY_REASON
from regroup.service.store.rows.records import Checkpoint, Incident

_REMEDIES: Mapping[str, str] = {
    Reason.RANK_EXIT: "Read the standard error of the rank. Signal 9 without a request usually means that the node ran "
    "out of memory: compare `uses` of the rank with the limits of the node.",
    Reason.STORE_EXIT: "Nothing to do if it was once. If it repeats, search the logs of that node for other processes "
    "that were killed.",
    Reason.ZYGOTE_EXIT: "Nothing to do if it was once. If it repeats, check the free memory of that node.",
    Reason.AGENT_LOST: "Check the node: its memory, its network and its clock. Cordon it if this repeats.",
    Reason.NODE_LOST: "Check why the node left the cluster. A spare node (`spares`) makes the next recovery faster.",
    Reason.CLUSTER_LOST: "Check Ray's head node. The job continued from durable storage.",
    Reason.HANG: "Compare the stacks of the ranks: the rank that differs is usually the cause. Search its code for "
    "a call that not all ranks make, or for a read that waits.",
    Reason.IO_ERROR: "Check the storage and the network that the error names.",
    Reason.LOSS_SPIKE: "Inspect the samples of that step. A lower learning rate or gradient clipping avoids spikes.",
    Reason.SILENT_CORRUPTION: "Test the devices of the nodes that differ, and cordon them until then.",
    Reason.DEVICE_ERROR: "Test the device. If its memory ran out, use a smaller `micro_batch`.",
}
_SOURCES: Mapping[RestoredFrom, str] = {
    RestoredFrom.MEMORY: "from snapshots in the memory of its nodes",
    RestoredFrom.MIRROR: "from mirrors in the memory of other nodes",
    RestoredFrom.DISK: "from a checkpoint in durable storage",
    RestoredFrom.NOTHING: "without a stored state",
}


@dataclass(frozen=True)
class Cost:
    """Devices that an incident used for nothing."""

    device_s: float
    """Device-seconds: all devices wait during the recovery, then repeat the lost steps."""
    basis: str


@dataclass(frozen=True)
class WithoutMemory:
    """Cost that the incident would have had without snapshots and mirrors in memory."""

    restored_step: int
    """Step of the newest checkpoint that was in durable storage; that of the start without one."""
    more_steps: int
    """Steps that would have been repeated in addition."""
    more_s: float | None
    """Duration of these steps; None if the time of a step is unknown."""
    basis: str


@dataclass(frozen=True)
class IncidentAccount:
    """One incident, with its course in words, its cost and a remedy."""

    number: int
    """The oldest is 1."""
    cause: str
    reason: str | None
    rank: int | None
    node: str | None
    """Name of the node at fault."""
    generation: int | None
    next_generation: int | None
    recovery_action: str | None
    at_step: int | None
    steps_lost: int | None
    times: Mapping[str, float | None]
    durations: Mapping[str, float | None]
    from_s: float
    until_s: float | None
    """Time of the next step, or of the job's end; None: the recovery lasts."""
    restored_from: RestoredFrom | None
    restored_step: int | None
    has_evidence: bool
    summary: str
    """Course of the incident in one paragraph."""
    remedy: str
    cost: Cost | None
    without_memory: WithoutMemory | None


@dataclass(frozen=True)
class JobCourse:
    """Records of a job that the accounts of all its incidents use."""

    generations: Mapping[int, GenerationSpan]
    checkpoints: Sequence[Checkpoint]
    node_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node id → name."""


def account_for(number: int, incident: Incident, course: JobCourse, now_s: float) -> IncidentAccount:
    """Return the account of an incident.

    Args:
        number: its number; the oldest is 1.
        incident: its record.
        course: generations, checkpoints and nodes of its job.
        now_s: present time, for a recovery that lasts.
    """
    data = incident.data
    times: Mapping[str, float | None] = data.get("times") or {}
    ended = course.generations.get(data.get("generation") or 0)
    following = course.generations.get(data.get("next_generation") or 0)
    from_s = float(times.get("fault_s") or times.get("seen_s") or incident.time_s)
    until_s = times.get("first_step_s") or times.get("ended_s")
    node_id = data.get("node_id")
    reason = data.get("reason")
    return IncidentAccount(
        number=number,
        cause=str(data.get("cause", incident.cause)),
        reason=reason,
        rank=data.get("rank"),
        node=course.node_names.get(node_id, node_id) if node_id else None,
        generation=data.get("generation"),
        next_generation=data.get("next_generation"),
        recovery_action=data.get("recovery_action") or None,
        at_step=data.get("at_step"),
        steps_lost=data.get("steps_lost"),
        times=times,
        durations=data.get("durations") or {},
        from_s=from_s,
        until_s=until_s,
        restored_from=following.restored_from if following else None,
        restored_step=following.start_step if following else None,
        has_evidence=bool(data.get("evidence_bytes")),
        summary=_summary(data, ended, following),
        remedy=_remedy(reason),
        cost=_cost(ended, data.get("steps_lost") or 0, (until_s or now_s) - from_s),
        without_memory=_without_memory(ended, following, course, from_s),
    )


def _remedy(reason: str | None) -> str:
    remedies = {**{str(name): text for name, text in ADVICE_BY_REASON.items()}, **_REMEDIES}
    return remedies.get(reason or "", "")


def _cost(ended: GenerationSpan | None, lost: int, waited_s: float) -> Cost | None:
    if ended is None:
        return None
    waiting = f"{_count(ended.world_size, 'device')} for {_seconds(waited_s)}"
    if lost == 0:
        return Cost(ended.world_size * waited_s, waiting)
    if ended.step_s is None:
        return Cost(ended.world_size * waited_s, f"{waiting}; without {_count(lost, 'step')} of unknown duration")
    basis = f"{waiting}, and {_count(lost, 'step')} of {_seconds(ended.step_s)} again"
    return Cost(ended.world_size * (waited_s + lost * ended.step_s), basis)


def _without_memory(
    ended: GenerationSpan | None, following: GenerationSpan | None, course: JobCourse, fault_s: float
) -> WithoutMemory | None:
    if ended is None or following is None or following.restored_from not in (RestoredFrom.MEMORY, RestoredFrom.MIRROR):
        return None
    formed = [each for each in course.generations.values() if each.number <= ended.number]
    stored = [
        each.step
        for each in course.checkpoints
        if each.created_at <= fault_s
        and (each.removed_at is None or each.removed_at > fault_s)
        and each.step <= following.start_step
        and all(later.start_step >= each.step for later in formed if later.number > each.generation)
    ]
    start = min((each.start_step for each in formed), default=0)
    step = max([start, *stored])
    more = following.start_step - step
    source = f"the checkpoint of step {step}" if stored else "the start of the job: no checkpoint was in storage"
    pace = "" if ended.step_s is None else f", at {_seconds(ended.step_s)} a step"
    basis = f"continued from {source}{pace}; the time to read a checkpoint is not included"
    return WithoutMemory(step, more, None if ended.step_s is None else more * ended.step_s, basis)


def _summary(data: Mapping[str, Any], ended: GenerationSpan | None, following: GenerationSpan | None) -> str:
    spent: Mapping[str, float | None] = data.get("durations") or {}
    cause = str(data.get("cause") or "unknown cause").rstrip(".")
    of = f" of generation {data['generation']}" if data.get("generation") else ""
    size = f" with {_count(ended.world_size, 'rank')}" if ended else ""
    parts = [f"{cause[:1].upper()}{cause[1:]}, after step {data.get('at_step')}{of}{size}."]
    if (detected := spent.get("detect")) is not None:
        parts.append(f"regroup detected it after {_seconds(detected)}.")
    if (ending := spent.get("teardown")) is not None:
        parts.append(f"{_seconds(ending)} later, no rank of the generation was left.")
    if following is not None:
        restored = f"Generation {following.number} with {_count(following.world_size, 'rank')} continued"
        parts.append(f"{restored} at step {following.start_step}, {_SOURCES[following.restored_from]}.")
    total, lost = spent.get("total"), data.get("steps_lost")
    times: Mapping[str, float | None] = data.get("times") or {}
    if total is not None:
        repeated = "no step was lost" if not lost else f"{_count(lost, 'step')} had to be repeated"
        parts.append(f"Training continued {_seconds(total)} after the fault, and {repeated}.")
    elif times.get("ended_s") is not None:
        parts.append("The job ended before another step.")
    else:
        parts.append("The recovery is not complete yet.")
    return " ".join(parts)


def _seconds(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
