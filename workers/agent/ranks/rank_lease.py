"""The lease of a node's ranks: the time for which they run without contact to a supervisor.

The zygote enforces it, because a stuck agent cannot: it sends SIGTERM when the lease ends, and SIGKILL after the grace
time. A lease that has ended is never renewed, so agent and zygote agree on whether ranks got SIGTERM.
"""

import contextlib
import math

from regroup.workers.os import procfs
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink


class RankLease:
    """The agent's part of the lease."""

    def __init__(self, orphan_s: float, grace_s: float) -> None:
        """Initialize a lease without an end.

        Args:
            orphan_s: time without contact to a supervisor after which the ranks get SIGTERM.
            grace_s: time from SIGTERM to SIGKILL.
        """
        self.orphan_s = orphan_s
        self._grace_s = grace_s
        self._until_s = math.inf

    @property
    def is_over(self) -> bool:
        """True if the ranks have got SIGTERM, or get it now."""
        return procfs.boottime_s() > self._until_s

    def renew(self, zygote: ZygoteLink | None, last_contact_s: float) -> None:
        """Let the ranks live until `orphan_s` after the last contact to a supervisor (CLOCK_BOOTTIME seconds)."""
        if self.is_over or zygote is None:
            return
        self._until_s = last_contact_s + self.orphan_s
        with contextlib.suppress(ZygoteDied):
            zygote.lease(self._until_s, self._grace_s)

    def restart(self) -> None:
        """Begin the lease of the next generation, which a supervisor has requested."""
        self._until_s = math.inf
