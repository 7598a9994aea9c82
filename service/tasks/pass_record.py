"""The record of the controller's scheduling passes, for `/readyz`, `/livez` and the metrics."""

import time
from collections.abc import Callable

from regroup.service.tasks.supervised_task import UNHEALTHY_AFTER

STALE_AFTER_S = 60.0
"""Age of the last completed pass at which a leader is no longer ready."""
STUCK_AFTER_S = 600.0
"""Time without the end of a pass, completed or not, after which the process is unhealthy."""


class PassRecord:
    """Counts the passes of one server."""

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.completed_at_s: float | None = None
        """Unix time of the last completed pass; None before the first one."""
        self.duration_s = 0.0
        """Duration of the last completed pass."""
        self.failed = {"unavailable": 0, "fault": 0}
        """Number of failed passes, by cause: a component that does not answer, or a fault of the control plane."""
        self.job_faults = 0
        """Number of failures while one job was handled."""
        self._clock, self._monotonic = clock, monotonic
        self._consecutive_faults = 0
        self._last_fault = ""
        self._completed_s: float | None = None
        self._leading_s: float | None = None
        self._began_s = self._ended_s = monotonic()

    def lead(self) -> None:
        """Record that this server leads from now on."""
        self._leading_s = self._ended_s = self._monotonic()
        self._completed_s = None

    def yield_lead(self) -> None:
        """Record that this server no longer leads."""
        self._leading_s = None

    def begin(self) -> None:
        """Record the start of a pass."""
        self._began_s = self._monotonic()

    def complete(self) -> None:
        """Record that the pass completed."""
        now_s = self._monotonic()
        self.completed_at_s, self.duration_s = self._clock(), now_s - self._began_s
        self._completed_s = self._ended_s = now_s
        self._consecutive_faults = 0

    def fail(self, cause: str, why: str) -> int:
        """Record that the pass failed; return the number of consecutive failed passes by a fault."""
        self.failed[cause] += 1
        self._ended_s = self._monotonic()
        if cause == "fault":
            self._consecutive_faults += 1
            self._last_fault = why
        return self._consecutive_faults

    def last_at_s(self) -> float | None:
        """Return the Unix time of the last completed pass, else of the start of leading; None if it does not lead."""
        age_s = self.age_s()
        return None if age_s is None else self._clock() - age_s

    def age_s(self) -> float | None:
        """Return the time since the last completed pass, or since this server began to lead; None if it does not."""
        if self._leading_s is None:
            return None
        return self._monotonic() - (self._leading_s if self._completed_s is None else self._completed_s)

    def problem(self) -> str:
        """Return why the process should be restarted; empty unless passes failed repeatedly or one never ends."""
        if self._leading_s is None:
            return ""
        if self._consecutive_faults >= UNHEALTHY_AFTER:
            return (
                f"{self._consecutive_faults} scheduling passes failed in a row; the last error was {self._last_fault}"
            )
        silent_s = self._monotonic() - self._ended_s
        return f"the scheduling pass has not ended for {silent_s:.0f} s" if silent_s > STUCK_AFTER_S else ""
