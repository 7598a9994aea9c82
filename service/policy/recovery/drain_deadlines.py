"""Nodes that are about to leave: which notices make one change, and how long a job may take its time. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause

WINDOW_S = 2.0
"""Notices that come within so long of the first are answered by one change of the job."""
_HASTE_S = 10.0
"""Where less than this is left, nobody waits for further notices."""
_LEAST_RESERVE_S = 5.0
_MOST_RESERVE_S = 60.0


@dataclass(frozen=True)
class DrainNotice:
    """One node is about to leave."""

    node_id: str
    node_name: str
    """What people call it."""
    noticed_s: float
    """Unix seconds."""
    deadline_s: float | None
    """Unix seconds; after that it may be gone. None: nobody said when."""
    why: str
    """For people."""


def merge_notices(notices: Iterable[DrainNotice]) -> dict[str, DrainNotice]:
    """Node id → what is known of its leaving: of two notices the first, with the earlier deadline."""
    found: dict[str, DrainNotice] = {}
    for notice in sorted(notices, key=lambda notice: notice.noticed_s):
        first = found.setdefault(notice.node_id, notice)
        found[notice.node_id] = replace(first, deadline_s=_earlier(first.deadline_s, notice.deadline_s))
    return found


def earliest_deadline_s(notices: Sequence[DrainNotice]) -> float | None:
    """When the first of these nodes may be gone."""
    return min((notice.deadline_s for notice in notices if notice.deadline_s is not None), default=None)


def change_due_s(notices: Sequence[DrainNotice]) -> float:
    """When the job is changed for all of these nodes at once: notices of one maintenance come one after the other."""
    first_s, deadline_s = min(notice.noticed_s for notice in notices), earliest_deadline_s(notices)
    if deadline_s is None:
        return first_s + WINDOW_S
    return min(first_s + WINDOW_S, max(first_s, deadline_s - _HASTE_S))


@dataclass(frozen=True)
class DrainSchedule:
    """Until when what is done; Unix seconds."""

    stop_s: float
    """Ranks are asked to end at the next step, even if the nodes that take over are not ready."""
    kill_s: float
    """Ranks that have not ended are ended where they are: the rest of the time is for handing over their snapshots."""


def schedule_drain(noticed_s: float, deadline_s: float | None) -> DrainSchedule:
    """How a planned end is paced: the last fifth of the time is for handing over, the fifth before it for the step."""
    if deadline_s is None:
        return DrainSchedule(float("inf"), float("inf"))
    left_s = max(0.0, deadline_s - noticed_s)
    reserve_s = min(max(left_s / 5, _LEAST_RESERVE_S), _MOST_RESERVE_S, left_s / 2)
    return DrainSchedule(deadline_s - 2 * reserve_s, deadline_s - reserve_s)


def release_by_s(noticed_s: float, deadline_s: float | None, *, step_s: float, checkpoint_s: float) -> float:
    """When a job for which there is no other node gives its nodes up: late, but not too late to save its last step."""
    needed_s = 2 * (step_s + checkpoint_s)
    return max(noticed_s, schedule_drain(noticed_s, deadline_s).stop_s - needed_s)


def excuse_announced_loss(cause: Cause, announced: Mapping[str, str]) -> Cause:
    """A node that was said to leave and did is nobody's failure. `announced`: node id → what was said."""
    said = announced.get(cause.node_id or "")
    if said is None or cause.reason is not Reason.AGENT_LOST:
        return cause
    return replace(cause, reason=Reason.DRAINED, summary=f"{said}; it left before the job did")


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)
