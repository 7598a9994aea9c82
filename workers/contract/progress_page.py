"""Shared page to which a rank writes its step and phase, and from which its agent reads them.

The rank also measures the duration of every phase, so that typical durations do not depend on samples.
"""

import mmap
import struct
import time
from collections.abc import Mapping

from regroup.workers.contract.messages import Phase
from regroup.workers.os.cpu_time import CpuTimeRing
from regroup.workers.os.memory_files import new_memory_file

PAGE_BYTES = 4096
_NOW = struct.Struct("<QQd")
_PAST = struct.Struct("<Qdd")
_PAST_OFFSET = 64
_PACE_OFFSET = 2048
_FORGETS = 0.99
"""Factor by which the typical duration decays at every visit: one slow step is forgotten after a few hundred."""
_PHASES = tuple(Phase)
_NUMBER = {phase.value: number for number, phase in enumerate(_PHASES)}


class ProgressPage:
    """Step, phase, the monotonic time of the last change, and how long each phase took before."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, PAGE_BYTES)
        self.pace = CpuTimeRing(self._page, _PACE_OFFSET)

    def set(self, step: int, phase: str) -> None:
        """Write where this rank is: `step` is the one in work, or the last committed one between steps."""
        now_s = time.monotonic()
        last, left, since_s = _NOW.unpack_from(self._page, 0)
        if step > last:
            self.pace.step_ended()
        if since_s:
            place = _PAST_OFFSET + left * _PAST.size
            visits, first_s, usual_s = _PAST.unpack_from(self._page, place)
            took_s = now_s - since_s
            if visits:
                usual_s = max(took_s, _FORGETS * usual_s)
            else:
                first_s = took_s  # a first visit may compile, connect or read: not typical
            _PAST.pack_into(self._page, place, visits + 1, first_s, usual_s)
        _NOW.pack_into(self._page, 0, step, _NUMBER[phase], now_s)

    def read(self) -> tuple[int, str]:
        """(step, phase) as last written."""
        step, number, _ = _NOW.unpack_from(self._page, 0)
        return step, _PHASES[number].value

    def age_s(self) -> float:
        """Return the seconds since the last write, on this machine's monotonic clock."""
        return time.monotonic() - _NOW.unpack_from(self._page, 0)[2]

    def usual(self) -> tuple[int, float]:
        """Return the earlier visits of the current phase, and its longest recent duration without the first visit."""
        _, number, _ = _NOW.unpack_from(self._page, 0)
        visits, _, usual_s = _PAST.unpack_from(self._page, _PAST_OFFSET + number * _PAST.size)
        return visits, usual_s

    def firsts(self) -> Mapping[str, float]:
        """Phase → seconds that it took the first time, of those that were left."""
        found: dict[str, float] = {}
        for number, phase in enumerate(_PHASES):
            visits, first_s, _ = _PAST.unpack_from(self._page, _PAST_OFFSET + number * _PAST.size)
            if visits:
                found[phase.value] = first_s
        return found

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()


def new_page() -> int:
    """Return a memory file for one `ProgressPage`."""
    return new_memory_file("regroup-progress", PAGE_BYTES)
