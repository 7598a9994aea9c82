"""The shared page in which a rank writes its step and phase, and its agent reads them without asking."""

import mmap
import os
import struct
import time

from regroup.workers.contract import Phase

PAGE_BYTES = 4096
_LAYOUT = struct.Struct("<QQd")
_PHASES = tuple(Phase)
_NUMBER = {phase.value: number for number, phase in enumerate(_PHASES)}


class Progress:
    """Step, phase and the monotonic time of the last change."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, PAGE_BYTES)

    def set(self, step: int, phase: str) -> None:
        """Write where this rank is: `step` is the one in work, or the last committed one between steps."""
        _LAYOUT.pack_into(self._page, 0, step, _NUMBER[phase], time.monotonic())

    def read(self) -> tuple[int, str]:
        """(step, phase) as last written."""
        step, number, _ = _LAYOUT.unpack_from(self._page, 0)
        return step, _PHASES[number].value

    def age_s(self) -> float:
        """Seconds since the last write, on this machine's monotonic clock."""
        return time.monotonic() - _LAYOUT.unpack_from(self._page, 0)[2]

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()


def new_page() -> int:
    """A memory file for one `Progress`."""
    fd = os.memfd_create("regroup-progress", os.MFD_CLOEXEC)
    os.truncate(fd, PAGE_BYTES)
    return fd
