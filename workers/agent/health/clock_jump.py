"""Whether this node's clock is set while a job runs. Leases and timeouts do not use it; times that people read do."""

import time
from collections.abc import Callable

from regroup.workers.os import procfs

_LEAST_S = 1.0
"""Between two looks: a daemon that disciplines a clock changes it by less than a thousandth of the time."""


class WallClock:
    """The clock that is shown, held against one that counts from the machine's start, and that nobody can set."""

    def __init__(
        self, shown_s: Callable[[], float] = time.time, steady_s: Callable[[], float] = procfs.boottime_s
    ) -> None:
        self._shown_s, self._steady_s = shown_s, steady_s
        self._offset_s = shown_s() - steady_s()

    def jumped_s(self) -> float:
        """By how much it was set since the last look: forward above 0, back below; 0 if it was not."""
        offset_s = self._shown_s() - self._steady_s()
        change_s, self._offset_s = offset_s - self._offset_s, offset_s
        return change_s if abs(change_s) >= _LEAST_S else 0.0
