"""The positions of jobs in the queue. One computation serves all requests of the next second."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from regroup.service.cluster_state.queue import Specs, held, quotas_of, waiting
from regroup.service.domain.states import JobState
from regroup.service.policy.scheduling.decide import SchedulingPolicy, queue_positions
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.store.rows.records import Allocation, JobRow, ProjectRow
from regroup.service.store.store import Store

_VALID_S = 1.0


class QueuePositions:
    """The positions of all queued jobs of one server."""

    def __init__(self, store: Store, clock: Callable[[], float], ageing_s: float) -> None:
        self._store, self._clock, self._rule = store, clock, SchedulingPolicy(ageing_s)
        self._specs = Specs()
        self._positions: Mapping[str, int] = {}
        self._computed_s = -float("inf")
        self._one_at_a_time = asyncio.Lock()

    async def jobs_ahead(self, job: JobRow) -> int | None:
        """Return the number of jobs ahead of this one; None if it is not queued, or its spec is not valid.

        Raises:
            UnavailableError: the database does not answer.
        """
        if job.state is not JobState.QUEUED or job.damaged:
            return None
        return (await self.all(job.id)).get(job.id)

    async def all(self, required: str | None = None) -> Mapping[str, int]:
        """Return job id → number of jobs ahead of it, for each queued job whose spec is valid.

        Args:
            required: id of a job that the result must contain if it is queued.

        Raises:
            UnavailableError: the database does not answer.
        """
        async with self._one_at_a_time:
            is_missing = required is not None and required not in self._positions
            if is_missing or time.monotonic() - self._computed_s > _VALID_S:
                queue, live = await self._store.queue.jobs(), await self._store.live_jobs()
                rows, projects = await self._store.live_allocations(), await self._store.queue.projects()
                # In a thread: the work grows with the queue.
                self._positions = await asyncio.to_thread(self._compute, queue, live, rows, projects, self._clock())
                self._computed_s = time.monotonic()
            return self._positions

    def _compute(
        self,
        queue: Sequence[JobRow],
        live: Sequence[JobRow],
        rows: Sequence[Allocation],
        projects: Sequence[ProjectRow],
        now: float,
    ) -> dict[str, int]:
        self._specs.retain([*queue, *live])
        entries = list[WaitingJob]()
        for job in queue:
            with contextlib.suppress(Exception):  # the controller reports a job that cannot be read
                entries.append(waiting(job, self._specs, after=(), now=now, start_s=0.0))
        there = held(live, rows, self._specs, now=now)
        return queue_positions(entries, there, quotas_of(projects), now_s=now, rule=self._rule)
