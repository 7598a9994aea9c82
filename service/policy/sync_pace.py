"""Intervals at which a controller checks running jobs: the more jobs are live, the longer they are."""

from dataclasses import dataclass

_SYNCS_PER_S = 200
"""Syncs per second that bring only steps. One costs about 2 ms of a core."""
_CHECKS_PER_S = 500
"""Checks per second of the intents of jobs whose rows have not changed."""
_PROMPT = 100
"""Number of live jobs up to which each step arrives at once."""
_MOST_S = 60.0


@dataclass
class SyncPace:
    """The pace of one leading controller. Every other event, such as a failure, arrives at once."""

    live: int = 0
    """Number of live jobs at the last pass."""

    @property
    def gather_s(self) -> float:
        """Seconds for which a supervisor may gather steps."""
        return 0.0 if self.live <= _PROMPT else min(_MOST_S, self.live / _SYNCS_PER_S)

    @property
    def recheck_s(self) -> float:
        """Seconds between two checks of a job whose row does not change: limits of time may pass."""
        return min(_MOST_S, max(1.0, self.live / _CHECKS_PER_S))
