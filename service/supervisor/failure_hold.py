"""What a failed job leaves is kept for a while, so that people can look at it: `hold_on_failure`.

The ranks are ended with proof as ever; nodes, agents, zygotes, scratch folders, code and rank logs stay. A hold is
written down before anything else of the end, so that a supervisor that restarts goes on with it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from regroup.service.domain.job_events import JobHeld, decoded
from regroup.service.domain.states import TERMINAL_BY_REASON, JobState, Reason
from regroup.service.ports.cluster import SupervisorEvent
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.recovery import Finished

_KEY = "held"
_STACK_CHARACTERS = 6_000
_STACKS_OF_RANKS = 16


class FailureHold:
    """At most one hold in a job's life."""

    def __init__(
        self, hold_s: float | None, gang: Gang, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        """`hold_s` None: nothing is held."""
        self._hold_s, self._gang, self._journal, self._clock = hold_s, gang, journal, clock
        self._let_go = asyncio.Event()
        self._until_s: float | None = None
        self.stacks: dict[str, Any] = {}
        """Rank → where it was before it was ended."""

    def recall(self, past: Sequence[SupervisorEvent]) -> Finished | None:
        """Take up a hold that an earlier life of this supervisor began; returns the end that it delays."""
        held = next(iter(decoded(past, JobHeld)), None)
        if held is None:
            return None
        self._until_s, self.stacks = held.until_s, dict(held.stacks)
        return Finished(held.reason, held.message, held.error)

    def let_go(self) -> None:
        """Hold no longer; nothing will be held from now on."""
        self._let_go.set()

    def keep(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        """Ranks are killed for good: note where they were, as evidence."""
        if self._hold_s is None:
            return
        for rank, place in sorted(places.items())[:_STACKS_OF_RANKS]:
            shown = {key: place[key] for key in ("node", "pid", "place")}
            self.stacks[str(rank)] = {**shown, "text": place["text"][:_STACK_CHARACTERS]}

    async def begin(self, end: Finished, generation: int) -> str:
        """Write down that the job is held, if it is to be; returns until when, for people, or nothing."""
        if self._let_go.is_set() or not self._is_worth_a_look(end, generation):
            return ""
        assert self._hold_s is not None
        if self._until_s is None:
            self._until_s = self._clock() + self._hold_s
            error = dict(end.error) if end.error else None
            event = JobHeld(self._until_s, end.reason, end.message, error, self.stacks)
            await self._journal.record(_KEY, event, generation)
        return f"{datetime.fromtimestamp(self._until_s, UTC):%Y-%m-%d %H:%M:%S} UTC"

    async def wait(self) -> None:
        """Until the hold's time has passed or somebody lets go."""
        if self._until_s is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._until_s - self._clock())):
                    await self._let_go.wait()

    def _is_worth_a_look(self, end: Finished, generation: int) -> bool:
        """A job that never formed ranks has nothing to look at, and one that ran out of time did not go wrong."""
        is_failure = TERMINAL_BY_REASON[end.reason] is JobState.FAILED and end.reason is not Reason.MAX_DURATION
        return self._hold_s is not None and generation > 0 and is_failure
