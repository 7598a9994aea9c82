"""Curves of many jobs."""

from regroup.api.schemas.wire import Wire


class JobCurve(Wire):
    """Metrics of one job at a few of its committed steps. All lists have one entry for each of these steps."""

    job: str
    """Id of the job."""
    name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    steps: list[int]
    """The steps, in order; empty if the job has none."""
    times_s: list[float]
    """Time of the commit of each."""
    values: dict[str, list[float | None]]
    """Metric → its values. Null: the step has no such value."""


class JobCurves(Wire):
    """Curves of many jobs."""

    jobs: list[JobCurve]
    """The jobs, in the order of the request."""
