"""Methods of the asynchronous client for reports over all jobs and over the server."""

from collections.abc import Mapping
from typing import Any

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import reports, verdicts
from regroup.api.schemas.reports.reliability import Reliability
from regroup.api.schemas.reports.server_settings import ServerSetting
from regroup.api.schemas.reports.verdicts import ChaosVerdict


class AsyncReportMethods:
    """The part of the client for reports."""

    _transport: AsyncTransport

    async def reliability(
        self, *, from_s: float | None = None, to_s: float | None = None, project: str | None = None
    ) -> Reliability:
        """Report how often jobs were interrupted in a window of time, for how long, why, and what it cost.

        Args:
            from_s: Start of the window, in Unix seconds. Default: 30 days before its end.
            to_s: End of the window, in Unix seconds. Default: now.
            project: Jobs of this project. Default: all that you see.
        """
        return await self._transport.run(reports.reliability(from_s, to_s, project))

    async def chaos_verdicts(self, *, scenario: str | None = None, limit: int = 100) -> list[ChaosVerdict]:
        """List the verdicts of chaos rehearsals that were recorded at the server, newest first.

        Args:
            scenario: Only verdicts of this scenario. Default: all.
            limit: Maximum number of verdicts, up to 1000.
        """
        return await self._transport.run(verdicts.verdicts(scenario, limit))

    async def record_chaos_verdict(self, verdict: Mapping[str, Any]) -> ChaosVerdict:
        """Record the verdict of a chaos rehearsal. It needs the permission `faults` in a project.

        Args:
            verdict: Fields of `ScenarioVerdict`.
        """
        return await self._transport.run(verdicts.record_verdict(verdict))

    async def server_settings(self) -> list[ServerSetting]:
        """List the effective settings of the server that answers, without secrets. Only operators may do so."""
        return await self._transport.run(reports.server_settings())
