"""The predictions of live jobs, retained between scrapes: those of a generation are stored once."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.store.predictions import NewestPrediction
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store


class JobPredictions:
    """The newest predictions of jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: Mapping[str, NewestPrediction] = {}

    async def newest(self, jobs: Sequence[JobRow]) -> Mapping[str, Mapping[str, Any]]:
        """Return the newest predictions of these jobs by id. Those of their present generations are read once."""
        cached = {job.id: self._cached[job.id] for job in jobs if job.id in self._cached}
        unread = [job.id for job in jobs if job.id not in cached or cached[job.id].generation < job.generation]
        self._cached = cached | await self._store.predictions.newest(unread)
        return {job_id: each.data for job_id, each in self._cached.items()}
