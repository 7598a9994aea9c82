"""/v1/jobs/{job}/plan: what the planner chose for a job, and how far off it was."""

from fastapi import APIRouter

from regroup.api.schemas.job_plan import JobPlan
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NamedJob, TheJobs

router = APIRouter(prefix="/v1/jobs", tags=["plans"], responses=responses())


@router.get("/{job}/plan")
async def plan(job: NamedJob, jobs: TheJobs) -> JobPlan:
    """What was planned of a job whose layout was left open, and why; and of every generation of a job that the planner
    can describe, predicted step time, memory and bubble beside the measured ones."""
    return JobPlan.model_validate(await jobs.plan(job))
