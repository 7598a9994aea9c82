"""Processor time that a rank's training thread used for each of its newest steps, as the kernel accounts for it.

Work is time on a processor. The time in which the thread was ready to run is reported separately, because a crowded
node slows a rank too. Waiting for other ranks in a collective or for a disk counts as neither.
"""

import mmap
import statistics
import struct
from pathlib import Path

_COUNT = struct.Struct("<Q")
_STEP = struct.Struct("<dd")
"""Seconds on a processor, and ready for one."""
_KEPT = 16
_THREAD = Path("/proc/thread-self/schedstat")


class CpuTimeRing:
    """Ring of step times in the rank's shared page. The rank writes it at each step, and its agent reads it."""

    def __init__(self, page: mmap.mmap, offset: int) -> None:
        self._page, self._offset = page, offset
        self._until: tuple[float, float] | None = None
        """Seconds on a processor, and ready for one, up to the end of the last step."""

    def step_ended(self) -> None:
        """Record the work since the last call of the training thread; the first call only starts the count."""
        until = spent_s()
        before, self._until = self._until, until
        if before is None or until is None:
            return
        work_s, ready_s = until[0] - before[0], until[1] - before[1]
        if min(work_s, ready_s) < 0:  # another thread trains now
            return
        (count,) = _COUNT.unpack_from(self._page, self._offset)
        _STEP.pack_into(self._page, self._place(count), work_s, ready_s)
        _COUNT.pack_into(self._page, self._offset, count + 1)

    def read(self) -> tuple[int, float, float]:
        """Return the number of measured steps, and the median seconds on a processor and ready for one.

        The medians are over the newest 16 steps. They are 0 if no step was measured.
        """
        (count,) = _COUNT.unpack_from(self._page, self._offset)
        kept = [_STEP.unpack_from(self._page, self._place(each)) for each in range(max(0, count - _KEPT), count)]
        work_s, ready_s = (statistics.median(each) for each in zip(*kept, strict=True)) if kept else (0.0, 0.0)
        return count, work_s, ready_s

    def _place(self, number: int) -> int:
        return self._offset + _COUNT.size + number % _KEPT * _STEP.size


def spent_s() -> tuple[float, float] | None:
    """Return the seconds that this thread ran and was ready to run; None if the kernel does not count them.

    Source: proc_pid_schedstat(5).
    """
    try:
        ran_ns, ready_ns, _ = _THREAD.read_text().split()
    except (OSError, ValueError):
        return None
    return int(ran_ns) / 1e9, int(ready_ns) / 1e9


def busy_s() -> float | None:
    """Return the seconds in which this thread ran or waited only for a processor; None if the kernel does not count."""
    spent = spent_s()
    return None if spent is None else sum(spent)
