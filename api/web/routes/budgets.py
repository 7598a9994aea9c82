"""/v1/jobs/{job}/budget: the device-hours or the money that a job may use."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToChange, TheJobs, TheSender, TheServices
from regroup.service.operations import budgets
from regroup.service.spec.budget import UsageBudget

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["jobs"])


@router.put("/{job}/budget", responses=responses("conflict", "body_too_large", "malformed_json"))
async def set_budget(
    job: JobToChange, budget: UsageBudget, jobs: TheJobs, services: TheServices, sender: TheSender
) -> Job:
    """Set the budget of a job that has not ended.

    It replaces the budget of the spec. A job that was suspended because its budget was used up queues again by itself.
    """
    changed = await budgets.set_budget(
        services.store, job, budget, services.prices, now=services.clock(), author=sender.author
    )
    return job_detail(await jobs.detail(changed))
