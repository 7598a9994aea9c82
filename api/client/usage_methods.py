"""Methods of the blocking client for the use of devices, and budgets."""

from collections.abc import Iterator, Sequence

from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import job_control, usage
from regroup.api.client.operations.usage import GroupName
from regroup.api.schemas.jobs import Job
from regroup.api.schemas.usage import UsageRow


class UsageMethods:
    """The part of the client for the use of devices."""

    _transport: SyncTransport

    def usage(
        self,
        group_by: Sequence[GroupName] = ("project",),
        *,
        from_s: float | None = None,
        to_s: float | None = None,
        project: str | None = None,
    ) -> Iterator[UsageRow]:
        """List the device-hours that jobs held, and their cost.

        Args:
            group_by: Groups of the report: `project`, `user`, `class` (accelerator class), `job`.
            from_s: Start of the window, in Unix seconds. Default: the beginning.
            to_s: End of the window, in Unix seconds. Default: now.
            project: Use of this project. Default: of all that you see.
        """
        return self._transport.pages(usage.usage(usage.filters_of(group_by, from_s, to_s, project)))

    def usage_csv(
        self,
        group_by: Sequence[GroupName] = ("project",),
        *,
        from_s: float | None = None,
        to_s: float | None = None,
        project: str | None = None,
    ) -> str:
        """Get the report as CSV, with all its rows. For the arguments see `usage`."""
        return self._transport.run(usage.usage_csv(usage.filters_of(group_by, from_s, to_s, project)))

    def set_budget(
        self, job: str, *, device_hours: float | None = None, cost: float | None = None, project: str = "default"
    ) -> Job:
        """Set the budget of a job that has not ended: either device-hours, or cost.

        A job that was suspended because its budget was used up queues again by itself.
        """
        return self._transport.run(job_control.set_budget(job, project, device_hours=device_hours, cost=cost))
