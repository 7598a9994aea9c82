"""The hold of a failed job, so that people can inspect its nodes (`hold_on_failure`).

The ranks are killed with proof as usual. Nodes, agents, zygotes, scratch folders, code and rank logs stay. A hold is
recorded before anything else of the end, so that a restarted supervisor continues it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from regroup.service.domain.job_events import JobHeld, decoded
from regroup.service.domain.states import TERMINAL_BY_REASON, JobState, Reason
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Finished

_KEY = "held"
_STACK_CHARACTERS = 6_000
_STACKS_OF_RANKS = 16


class FailureHold:
    """At most one hold in a job's life."""

    def __init__(
        self, duration_s: float | None, gang: Gang, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        """Initialize the hold. `duration_s` None disables it."""
        self._duration_s, self._gang, self._journal, self._clock = duration_s, gang, journal, clock
        self._released = asyncio.Event()
        self._until_s: float | None = None
        self.stacks: dict[str, Any] = {}
        """Rank → its place before it was killed."""

    def replay(self, past: Sequence[SupervisorEvent]) -> Finished | None:
        """Restore a hold of an earlier incarnation of this supervisor. Return the end that it delays."""
        held = next(iter(decoded(past, JobHeld)), None)
        if held is None:
            return None
        self._until_s, self.stacks = held.until_s, dict(held.stacks)
        return Finished(held.reason, held.message, held.error)

    def release(self) -> None:
        """Release the hold, and start none from now on."""
        self._released.set()

    def record_stacks(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        """Record the stacks of the ranks before they are killed for the last time."""
        if self._duration_s is None:
            return
        for rank, place in sorted(places.items())[:_STACKS_OF_RANKS]:
            shown = {key: place[key] for key in ("node", "pid", "place")}
            self.stacks[str(rank)] = {**shown, "text": place["text"][:_STACK_CHARACTERS]}

    async def start(self, end: Finished, generation: int) -> str:
        """Record a hold if the job must be held. Return its end as text, or empty text."""
        if self._released.is_set() or not self._is_needed(end, generation):
            return ""
        assert self._duration_s is not None
        if self._until_s is None:
            self._until_s = self._clock() + self._duration_s
            error = dict(end.error) if end.error else None
            event = JobHeld(self._until_s, end.reason, end.message, error, self.stacks)
            await self._journal.record(_KEY, event, generation)
        return f"{datetime.fromtimestamp(self._until_s, UTC):%Y-%m-%d %H:%M:%S} UTC"

    async def wait(self) -> None:
        """Wait until the hold expires or is released."""
        if self._until_s is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._until_s - self._clock())):
                    await self._released.wait()

    def _is_needed(self, end: Finished, generation: int) -> bool:
        """Return whether to hold the job: not if it had no ranks or only exceeded its duration."""
        is_failure = TERMINAL_BY_REASON[end.reason] is JobState.FAILED and end.reason is not Reason.MAX_DURATION
        return self._duration_s is not None and generation > 0 and is_failure
