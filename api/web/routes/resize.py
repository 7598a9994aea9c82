"""/v1/jobs/{job}/resize: resize a queued or running job."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.resize import ResizeRequest
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToChange, TheJobs, TheSender, TheServices
from regroup.service.operations import resize as resize_operations

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["jobs"])


@router.post("/{job}/resize", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def resize(
    job: JobToChange, request: ResizeRequest, jobs: TheJobs, services: TheServices, sender: TheSender
) -> Job:
    """Resize a queued or running job.

    Its ranks stop after an agreed step, and the new ranks continue from the state that the old ones left in memory. No
    step is lost, and a resize does not count as a failure. If there is no capacity, the request remains pending and the
    condition `Resized` shows the reason.
    """
    spec, now = job.parsed_spec(), services.clock()
    if request.dp is not None:
        layout = resize_operations.layout_for(spec, resize_operations.Size(request.dp, request.tp, request.pp))
    else:
        layout = await services.planner.split(spec, request.ranks or 0)
    resized = await resize_operations.resize(
        services.store, job, layout, why=request.reason, now=now, author=sender.author
    )
    return job_detail(await jobs.detail(resized))
