"""How long a rank's training thread worked for each of its newest steps, by the kernel's account.

Work is time on a processor, and time spent ready for one: a crowded node slows a rank, too. Waiting is not work,
neither for other ranks in a collective nor for a disk.
"""

import mmap
import statistics
import struct
from pathlib import Path

_COUNT = struct.Struct("<Q")
_SECONDS = struct.Struct("<d")
_KEPT = 16
_THREAD = Path("/proc/thread-self/schedstat")


class Pace:
    """A ring in the rank's shared page: the rank writes it step by step, its agent reads it."""

    def __init__(self, page: mmap.mmap, offset: int) -> None:
        self._page, self._offset = page, offset
        self._until_s: float | None = None
        """Work of this thread up to the end of its last step."""

    def step_ended(self) -> None:
        """Note the work since the last call. To be called by the thread that trains; the first call only begins."""
        until_s = worked_s()
        before_s, self._until_s = self._until_s, until_s
        if before_s is None or until_s is None or until_s < before_s:  # another thread trains now
            return
        (count,) = _COUNT.unpack_from(self._page, self._offset)
        _SECONDS.pack_into(self._page, self._place(count), until_s - before_s)
        _COUNT.pack_into(self._page, self._offset, count + 1)

    def read(self) -> tuple[int, float]:
        """How many steps were measured, and the median of the newest 16 in seconds; 0 if there was none."""
        (count,) = _COUNT.unpack_from(self._page, self._offset)
        kept = [_SECONDS.unpack_from(self._page, self._place(each))[0] for each in range(max(0, count - _KEPT), count)]
        return count, statistics.median(kept) if kept else 0.0

    def _place(self, number: int) -> int:
        return self._offset + _COUNT.size + number % _KEPT * _SECONDS.size


def worked_s() -> float | None:
    """Seconds that this thread ran or was ready to (proc_pid_schedstat(5)); None where the kernel does not count."""
    try:
        ran_ns, ready_ns, _ = _THREAD.read_text().split()
    except (OSError, ValueError):
        return None
    return (int(ran_ns) + int(ready_ns)) / 1e9
