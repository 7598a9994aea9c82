"""The positions of jobs in the queue. One computation serves all requests of the next second."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from regroup.service.cluster_state.queue import Specs, held, quotas_of
from regroup.service.cluster_state.queued_jobs import QueueEntry, queue_entry
from regroup.service.domain.states import JobState
from regroup.service.policy.scheduling.decide import SchedulingPolicy, queue_positions
from regroup.service.store.rows.records import Allocation, JobRow, ProjectRow
from regroup.service.store.store import Store

_VALID_S = 1.0


class QueuePositions:
    """The positions of all queued jobs of one server."""

    def __init__(self, store: Store, clock: Callable[[], float], ageing_s: float) -> None:
        self._store, self._clock, self._rule = store, clock, SchedulingPolicy(ageing_s)
        self._queue = store.queue.observe(queue_entry)
        self._specs = Specs()
        self._positions: Mapping[str, int] = {}
        self._computed_s = -float("inf")
        self._one_at_a_time = asyncio.Lock()

    async def queue(self) -> tuple[Sequence[QueueEntry], Mapping[str, int]]:
        """Return the queued jobs, the oldest first, and their positions as of now: those that `all` returns.

        Raises:
            UnavailableError: the database does not answer.
        """
        async with self._one_at_a_time:
            return await self._renew(), self._positions

    async def jobs_ahead(self, job: JobRow) -> int | None:
        """Return the number of jobs ahead of this one; None if it is not queued, or its spec is not valid.

        Raises:
            UnavailableError: the database does not answer.
        """
        if job.state is not JobState.QUEUED or job.damaged:
            return None
        return (await self.all(job.id)).get(job.id)

    async def all(self, required: str | None = None) -> Mapping[str, int]:
        """Return job id → number of jobs ahead of it, for each queued job whose spec is valid, in this order.

        Args:
            required: id of a job that the result must contain if it is queued.

        Raises:
            UnavailableError: the database does not answer.
        """
        async with self._one_at_a_time:
            is_missing = required is not None and required not in self._positions
            if is_missing or time.monotonic() - self._computed_s > _VALID_S:
                await self._renew()
            return self._positions

    async def _renew(self) -> Sequence[QueueEntry]:
        """Compute the positions; return the queue. Only jobs are read that have changed since the last call."""
        queue, live = await self._queue.read(), await self._store.live_jobs()
        rows, projects = await self._store.live_allocations(), await self._store.queue.projects()
        # In a thread: the work grows with the queue.
        self._positions = await asyncio.to_thread(self._compute, queue, live, rows, projects, self._clock())
        self._computed_s = time.monotonic()
        return queue

    def _compute(
        self,
        queue: Sequence[QueueEntry],
        live: Sequence[JobRow],
        rows: Sequence[Allocation],
        projects: Sequence[ProjectRow],
        now: float,
    ) -> dict[str, int]:
        self._specs.retain(live)
        entries = [entry.waiting for entry in queue if entry.waiting is not None]
        there = held(live, rows, self._specs, now=now)
        return queue_positions(entries, there, quotas_of(projects), now_s=now, rule=self._rule)
