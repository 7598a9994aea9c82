"""Methods of the asynchronous client for the story of a job and its incidents."""

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import job_queries
from regroup.api.schemas.story.incident import EvidencePart, IncidentDetail
from regroup.api.schemas.story.story import Story


class AsyncStoryMethods:
    """The part of the client for the course of a job over time."""

    _transport: AsyncTransport

    async def story(self, job: str, *, points: int = 400, project: str = "default") -> Story:
        """Return the course of a job over time, with at most `points` steps."""
        return await self._transport.run(job_queries.story(job, project, points))

    async def incident(self, job: str, number: int, *, project: str = "default") -> IncidentDetail:
        """Return incident `number` (the oldest is 1): its course in words, its cost, and what its evidence shows."""
        return await self._transport.run(job_queries.incident(job, number, project))

    async def evidence_file(
        self, job: str, number: int, name: str, *, offset: int = 0, limit: int | None = None, project: str = "default"
    ) -> EvidencePart:
        """Return a part of one file of the evidence of an incident."""
        request = job_queries.evidence_file(job, number, name, project, offset=offset, limit=limit)
        return await self._transport.run(request)
