"""How long a rank's training thread worked for each of its newest steps, by the kernel's account.

Work is time on a processor. Time spent ready for one is told beside it: a crowded node slows a rank, too. Waiting is
neither, be it for other ranks in a collective or for a disk.
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


class Pace:
    """A ring in the rank's shared page: the rank writes it step by step, its agent reads it."""

    def __init__(self, page: mmap.mmap, offset: int) -> None:
        self._page, self._offset = page, offset
        self._until: tuple[float, float] | None = None
        """What this thread had of either up to the end of its last step."""

    def step_ended(self) -> None:
        """Note the work since the last call. To be called by the thread that trains; the first call only begins."""
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
        """How many steps were measured, and the medians of the newest 16 in seconds: on a processor, and ready for one.
        They are 0 if there was none."""
        (count,) = _COUNT.unpack_from(self._page, self._offset)
        kept = [_STEP.unpack_from(self._page, self._place(each)) for each in range(max(0, count - _KEPT), count)]
        work_s, ready_s = (statistics.median(each) for each in zip(*kept, strict=True)) if kept else (0.0, 0.0)
        return count, work_s, ready_s

    def _place(self, number: int) -> int:
        return self._offset + _COUNT.size + number % _KEPT * _STEP.size


def spent_s() -> tuple[float, float] | None:
    """Seconds that this thread ran, and was ready to (proc_pid_schedstat(5)); None where the kernel does not count."""
    try:
        ran_ns, ready_ns, _ = _THREAD.read_text().split()
    except (OSError, ValueError):
        return None
    return int(ran_ns) / 1e9, int(ready_ns) / 1e9


def busy_s() -> float | None:
    """Seconds that this thread ran or was ready to: it waited for nothing but a processor."""
    spent = spent_s()
    return None if spent is None else sum(spent)
