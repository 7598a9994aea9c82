"""Intervals at which a controller checks running jobs: the more jobs are live, the longer they are."""

from dataclasses import dataclass

_SYNCS_PER_S = 80
"""Syncs per second that bring only steps."""
_CHECKS_PER_S = 250
"""Checks per second of the intents of jobs whose rows have not changed."""
_PROMPT = 100
"""Number of live jobs up to which each step arrives at once."""
_ACCOUNTS_PER_S = 20
"""Calculations of goodput per second that no event causes."""
_SEARCHES_PER_S = 100
"""Searches per second of elastic jobs for capacity to grow."""
_LEAST_SEARCH_S = 5.0
_DELAY_S = 0.25
"""Time for which progress waits to be stored together with that of other jobs, if steps are gathered anyway."""
_MOST_S = 60.0
_LEAST_ACCOUNT_S, _MOST_ACCOUNT_S = 30.0, 300.0


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
    def delay_s(self) -> float:
        """Seconds for which progress may wait for that of other jobs before it is stored."""
        return 0.0 if self.live <= _PROMPT else _DELAY_S

    @property
    def account_s(self) -> float:
        """Seconds between two calculations of a job's goodput that no event causes."""
        return min(_MOST_ACCOUNT_S, max(_LEAST_ACCOUNT_S, self.live / _ACCOUNTS_PER_S))

    @property
    def recheck_s(self) -> float:
        """Seconds between two checks of a job whose row does not change: limits of time may pass."""
        return min(_MOST_S, max(1.0, self.live / _CHECKS_PER_S))

    @property
    def search_s(self) -> float:
        """Seconds between two searches of an elastic job for capacity to grow."""
        return min(_MOST_S, max(_LEAST_SEARCH_S, self.live / _SEARCHES_PER_S))
