"""Use cases of chaos rehearsals: record a verdict, and list the newest."""

from collections.abc import Callable

from regroup.service.operations.access.authorization import Sender
from regroup.service.store.rows.verdicts import Verdict, VerdictRow
from regroup.service.store.store import Store


class ChaosVerdicts:
    """Use cases of chaos rehearsals. They run elsewhere: their verdicts are reports about a version of the service."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    async def record(self, sender: Sender, verdict: Verdict) -> VerdictRow:
        """Store a verdict."""
        return await self._store.verdicts.record(verdict, now=self._clock(), author=sender.author)

    async def newest(self, scenario: str | None, limit: int) -> list[VerdictRow]:
        """Return up to `limit` verdicts, newest first; only those of one scenario if it is given."""
        return await self._store.verdicts.newest(scenario, limit)
