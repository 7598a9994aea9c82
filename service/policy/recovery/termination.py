"""Time that ranks get to save their work, from SIGTERM until SIGKILL. Pure."""

from regroup.service.policy.recovery.drain_deadlines import schedule_drain

LONGEST_S = 3600.0
"""Longest time between the two signals: a node may be drained days ahead, and a program may never end."""
_KILL_RESERVE_S = 2.0
"""Time before the deadline of a node that a kill with proof of death takes."""


def script_terminates_at_s(noticed_s: float, deadline_s: float | None, grace_s: float) -> float:
    """Return the latest time of SIGTERM for a script, in Unix seconds: it gets its whole grace if the notice allows."""
    if deadline_s is None:
        return float("inf")
    stop_s = schedule_drain(noticed_s, deadline_s).stop_s
    return max(noticed_s, min(stop_s, deadline_s - grace_s - _KILL_RESERVE_S))


def script_time_s(now_s: float, deadline_s: float | None, grace_s: float) -> float:
    """Return the time that a script has after SIGTERM: the rest of the notice, or its grace without a deadline."""
    left_s = grace_s if deadline_s is None else deadline_s - _KILL_RESERVE_S - now_s
    return min(max(0.0, left_s), LONGEST_S)


def function_time_s(now_s: float, deadline_s: float | None, grace_s: float) -> float:
    """Return the time that a function has after SIGTERM, if it did not stop in time.

    Its snapshots must still reach other nodes, so it gets at most half of the time that is left.
    """
    return grace_s if deadline_s is None else min(grace_s, max(0.0, deadline_s - now_s) / 2)
