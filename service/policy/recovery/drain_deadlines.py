"""Group drain notices into one change of a job, and schedule it before the deadline. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause

WINDOW_S = 2.0
"""Time after the first notice within which further notices join the same change of the job."""
_HASTE_S = 10.0
"""Remaining time below which the change does not wait for further notices."""
_LEAST_RESERVE_S = 5.0
_MOST_RESERVE_S = 60.0


@dataclass(frozen=True)
class DrainNotice:
    """Notice that one node is going away."""

    node_id: str
    node_name: str
    """Display name of the node."""
    noticed_s: float
    """Time of the notice in Unix seconds."""
    deadline_s: float | None
    """Time in Unix seconds after which the node may be gone; None if unknown."""
    why: str
    """Reason, for people."""


def merge_notices(notices: Iterable[DrainNotice]) -> dict[str, DrainNotice]:
    """Return node id → its merged notice: the first one, with the earliest deadline."""
    found: dict[str, DrainNotice] = {}
    for notice in sorted(notices, key=lambda notice: notice.noticed_s):
        first = found.setdefault(notice.node_id, notice)
        found[notice.node_id] = replace(first, deadline_s=_earlier(first.deadline_s, notice.deadline_s))
    return found


def earliest_deadline_s(notices: Sequence[DrainNotice]) -> float | None:
    """Return the earliest deadline of these notices; None if no notice has one."""
    return min((notice.deadline_s for notice in notices if notice.deadline_s is not None), default=None)


def change_due_s(notices: Sequence[DrainNotice]) -> float:
    """Return the time at which the job changes for all of these nodes at once."""
    first_s, deadline_s = min(notice.noticed_s for notice in notices), earliest_deadline_s(notices)
    if deadline_s is None:
        return first_s + WINDOW_S
    return min(first_s + WINDOW_S, max(first_s, deadline_s - _HASTE_S))


@dataclass(frozen=True)
class DrainSchedule:
    """Deadlines of a planned end, in Unix seconds."""

    stop_s: float
    """Ranks stop at the next step, even if the replacement nodes are not ready."""
    kill_s: float
    """Ranks that have not stopped are killed. The remaining time is for transferring their snapshots."""


def schedule_drain(noticed_s: float, deadline_s: float | None) -> DrainSchedule:
    """Schedule a planned end: the last fifth of the time is for the transfer, the fifth before it for the last step."""
    if deadline_s is None:
        return DrainSchedule(float("inf"), float("inf"))
    left_s = max(0.0, deadline_s - noticed_s)
    reserve_s = min(max(left_s / 5, _LEAST_RESERVE_S), _MOST_RESERVE_S, left_s / 2)
    return DrainSchedule(deadline_s - 2 * reserve_s, deadline_s - reserve_s)


def release_by_s(
    noticed_s: float, deadline_s: float | None, *, step_s: float, checkpoint_s: float, grace_s: float = 0.0
) -> float:
    """Return the time at which a job without replacement nodes releases its nodes, early enough to save its last step.

    Args:
        noticed_s: time of the notice in Unix seconds.
        deadline_s: time in Unix seconds after which a node may be gone; None if unknown.
        step_s: duration of a step.
        checkpoint_s: duration of a checkpoint.
        grace_s: time that the ranks of a script get from SIGTERM to SIGKILL.
    """
    needed_s = 2 * (step_s + checkpoint_s)
    stop_s = schedule_drain(noticed_s, deadline_s).stop_s - needed_s
    return max(noticed_s, stop_s if deadline_s is None else min(stop_s, deadline_s - grace_s))


def excuse_announced_loss(cause: Cause, announced: Mapping[str, str]) -> Cause:
    """Return the cause as `drained` if the lost node had announced its removal; otherwise unchanged.

    Args:
        announced: node id → text of its notice.
    """
    notice = announced.get(cause.node_id or "")
    if notice is None or cause.reason is not Reason.AGENT_LOST:
        return cause
    return replace(cause, reason=Reason.DRAINED, summary=f"{notice}; the node was removed before the job left it")


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)
