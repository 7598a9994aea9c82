"""/v1/jobs/{job}/plan: the planner's choice for a job, and the error of its predictions."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError

from regroup.api.schemas.job_plan import JobPlan
from regroup.api.schemas.plans import PlanReport
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, TheJobs

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["plans"], responses=responses())


@router.get("/{job}/plan")
async def plan(job: JobToRead, jobs: TheJobs) -> JobPlan:
    """Get the plan of a job: the chosen layout with the reasons, and predictions with the measured values.

    The choice exists only for a job whose spec did not set its layout. Predictions of step time, memory and bubble
    exist for every generation that the planner can model.
    """
    found = await jobs.plan(job)
    return JobPlan.model_validate({**vars(found), "report": _report(found.report)})


def _report(stored: Mapping[str, Any] | None) -> PlanReport | None:
    """Return the planner's report; None if the record is damaged, or of another version."""
    try:
        return None if stored is None else PlanReport.model_validate(stored)
    except ValidationError:
        return None
