"""Intervals at which a supervisor and its agents do work whose cost grows with the number of ranks or nodes."""

import time
from collections.abc import Callable

_NODES_PER_S = 256
"""Periodic reports that a supervisor receives per second. An actor of Ray answers about 2,700 calls per second."""
_RANKS_PER_S = 4096
"""Ranks whose activity is compared per second."""
_SHOWN_RANKS_PER_S = 2048
"""Ranks whose activity is sent to the controller per second."""
_MOST_REPORT_S = 8.0
"""Longest time between reports: an agent that has not reported for 20 s counts as lost."""
_LEAST_STATUS_S = 1.0


class Pace:
    """Limits how often work is done."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Initialize the pace; the work is due at once. With `every_s` 0 it always is."""
        self._every_s, self._clock = every_s, clock
        self._due_s = -float("inf")

    def is_due(self) -> bool:
        """Return whether the work is due. It is due again after the interval."""
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._every_s
        return True


def report_interval_s(nodes: int) -> float:
    """Return the seconds between the periodic reports of an agent, in a job on this many nodes."""
    return min(_MOST_REPORT_S, max(1.0, nodes / _NODES_PER_S))


def rank_pace(world_size: int) -> Pace:
    """Return the pace at which the ranks of a job are compared with each other."""
    return Pace(world_size / _RANKS_PER_S if world_size > 256 else 0.0)


def status_pace(world_size: int) -> Pace:
    """Return the pace at which the activity of all ranks is sent to the controller."""
    return Pace(max(_LEAST_STATUS_S, world_size / _SHOWN_RANKS_PER_S))
