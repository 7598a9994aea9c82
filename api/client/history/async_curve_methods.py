"""Methods of the asynchronous client that show jobs as curves, or side by side."""

from collections.abc import Sequence

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import comparison, job_queries
from regroup.api.schemas import history
from regroup.api.schemas.comparison.job_curves import JobCurves
from regroup.api.schemas.comparison.spec_differences import SpecDifferences


class AsyncCurveMethods:
    """The part of the client for curves and comparisons."""

    _transport: AsyncTransport

    async def curves(
        self,
        job: str,
        *,
        metrics: Sequence[str] = (),
        points: int = 400,
        from_step: int = 1,
        to_step: int | None = None,
        project: str = "default",
    ) -> history.Curves:
        """Return curves of metrics in at most `points` points each; the usual metrics by default."""
        request = job_queries.curves(job, project, metrics, points, from_step, to_step)
        return await self._transport.run(request)

    async def curves_of_jobs(
        self, jobs: Sequence[str], *, metrics: Sequence[str] = (), points: int = 30, project: str = "default"
    ) -> JobCurves:
        """Return short curves of up to 100 jobs: `points` committed steps of each; loss and step time by default."""
        return await self._transport.run(comparison.curves_of_jobs(jobs, project, metrics, points))

    async def diff(self, first: str, second: str, *, project: str = "default") -> SpecDifferences:
        """Return the fields in which the specs of two jobs differ."""
        return await self._transport.run(comparison.diff(first, second, project))
