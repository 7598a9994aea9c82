"""Requests about plans and probes."""

from collections.abc import Mapping
from typing import Any

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.schemas.job_plan import JobPlan
from regroup.api.schemas.jobs import Job
from regroup.api.schemas.plans import PlanReport
from regroup.api.schemas.probes import Probe, ProbeList


def plan(question: Mapping[str, Any]) -> Request[PlanReport]:
    """Find the fastest layouts for a model."""
    return Request("POST", url_path("plans"), to_model(PlanReport), body=dict(question), is_conditional=False)


def job_plan(job: str, project: str) -> Request[JobPlan]:
    """Get the plan of a job."""
    return Request("GET", url_path("jobs", job, "plan"), to_model(JobPlan), params={"project": project})


def probe(request: Mapping[str, Any]) -> Request[Job]:
    """Submit a job that measures the cluster."""
    return Request("POST", url_path("probes"), to_model(Job), body=dict(request))


def probes() -> Request[list[Probe]]:
    """List the newest results."""
    return Request("GET", url_path("probes"), lambda response: to_model(ProbeList)(response).probes)
