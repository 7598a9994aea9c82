"""Xid errors: errors that the NVIDIA driver reports while a job runs, as NVML events.

Numbers and meanings are those of NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors). A program causes most of
them. After one of `_DEVICE_FAULTS`, the GPU computes nothing until it is reset or replaced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from regroup.workers.os.nvml_events import LOST, XidEvents

_DEVICE_FAULTS: Mapping[int, str] = {
    48: "uncorrectable memory error",
    62: "the micro-controller has halted",
    64: "faulty memory rows could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "the GPU system processor does not answer",
    120: "the GPU system processor has failed",
    140: "unrecovered memory error",
}
_PROGRAM_FAULTS: Mapping[int, str] = {
    13: "exception in a kernel of a program",
    31: "a program accessed memory that does not belong to it",
    43: "the channel of a program was reset",
    45: "the work of a program was removed",
    63: "faulty memory rows will be remapped at the next reset",
    94: "contained memory error: the program must restart",
}


@dataclass(frozen=True)
class Xid:
    """One error."""

    gpu: int
    number: int
    """`nvml_events.LOST`: the driver has lost the device."""

    @property
    def is_device_fault(self) -> bool:
        """True if the GPU is faulty, independent of the program."""
        return self.number == LOST or self.number in _DEVICE_FAULTS

    @property
    def message(self) -> str:
        """The error as text for people."""
        if self.number == LOST:
            return f"GPU {self.gpu} is lost"
        meaning = (
            _DEVICE_FAULTS.get(self.number) or _PROGRAM_FAULTS.get(self.number) or "see NVIDIA's list of Xid errors"
        )
        return f"GPU {self.gpu}: Xid {self.number}, {meaning}"


class XidMonitor:
    """Receives the errors of some GPUs. Calls block; `wait` may run in a thread."""

    def __init__(self, events: XidEvents) -> None:
        """Initialize the monitor; use `open` instead."""
        self._events = events

    @classmethod
    def open(cls, indexes: Iterable[int]) -> Self | None:
        """Register for the errors of GPUs. Return None if there is no driver or it does not support the events."""
        events = XidEvents.open(indexes)
        return None if events is None else cls(events)

    def wait(self, within_s: float) -> Xid | None:
        """Return the next error, or None if none happens in time."""
        event = self._events.next(within_s)
        return None if event is None else Xid(*event)

    def close(self) -> None:
        """Unregister."""
        self._events.close()
