"""Requests that show several jobs side by side."""

from collections.abc import Sequence

from regroup.api.client.connection.requests import Params, Request, to_model, url_path
from regroup.api.schemas.comparison.job_curves import JobCurves
from regroup.api.schemas.comparison.spec_differences import SpecDifferences


def curves_of_jobs(jobs: Sequence[str], project: str, metrics: Sequence[str], points: int) -> Request[JobCurves]:
    """Get short curves of many jobs."""
    params: Params = {"job": list(jobs), "metric": list(metrics), "points": points, "project": project}
    return Request("GET", url_path("curves"), to_model(JobCurves), params=params)


def diff(first: str, second: str, project: str) -> Request[SpecDifferences]:
    """Compare the specs of two jobs."""
    params: Params = {"with": second, "project": project}
    return Request("GET", url_path("jobs", first, "diff"), to_model(SpecDifferences), params=params)
