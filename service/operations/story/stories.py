"""Use cases of stories: the course of a job, and one incident of it with the findings of its evidence."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from regroup.service.domain.errors import NotFoundError
from regroup.service.operations.story.incident_account import IncidentAccount
from regroup.service.operations.story.placements import NodeRanks, ranks_by_node
from regroup.service.operations.story.story import Story, build_story
from regroup.service.store.rows.records import JobRow
from regroup.service.store.rows.story import StoryRecords
from regroup.service.store.store import Store

_RETAINED_JOBS = 20
_MAX_RANKS = 400_000
"""Ranks of all generations whose places are read: those of older generations are left out."""


class Stories:
    """Use cases of stories.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._placements: dict[str, dict[int, Collection[NodeRanks]]] = {}
        """Job → generation → nodes. The places of a generation never change. The job that was read last is last."""

    async def read(self, job: JobRow, points: int) -> Story:
        """Return the course of a job, with at most `points` steps."""
        records = await self._store.stories.read(job.id, points)
        return build_story(records, await self._placements_of(records), self._clock())

    async def account(self, job: JobRow, number: int) -> IncidentAccount:
        """Return the account of an incident by its number; raise NotFoundError if the job has none with it."""
        story = await self.read(job, points=1)
        found = next((each for each in story.incidents if each.number == number), None)
        if found is None:
            raise NotFoundError(f"the story of job {job.id} has no incident {number}; it has the newest ones")
        return found

    async def _placements_of(self, records: StoryRecords) -> Mapping[int, Collection[NodeRanks]]:
        job_id, ranks, shown = records.job.id, 0, list[int]()
        for head in reversed(records.generations):
            ranks += head.world_size
            if ranks > _MAX_RANKS:
                break
            shown.append(head.number)
        cached = self._placements.pop(job_id, {})
        missing = [number for number in shown if number not in cached]
        if missing:
            places_by_number = await self._store.stories.ranks(job_id, missing)
            cached = cached | await asyncio.to_thread(
                lambda: {number: frozenset(ranks_by_node(places)) for number, places in places_by_number.items()}
            )
        self._placements[job_id] = cached
        if len(self._placements) > _RETAINED_JOBS:
            del self._placements[next(iter(self._placements))]
        return {number: cached[number] for number in shown if number in cached}
