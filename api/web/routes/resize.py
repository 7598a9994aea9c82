"""/v1/jobs/{job}/resize: resize a queued or running job; /v1/jobs/{job}/sizes: the sizes that it can have."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.resize import JobSize, JobSizes, ResizeRequest
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToChange, JobToRead, TheJobs, TheSender, TheServices
from regroup.service.operations import resize as resize_operations
from regroup.service.operations.layouts.sizes import find_sizes

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


@router.get("/{job}/sizes", responses=responses())
async def sizes(job: JobToRead, services: TheServices) -> JobSizes:
    """List the sizes that a job can have, with the expected speed of each.

    Each size also has its memory and its traffic. The expected step time of a size is measured if the job had that
    size. Otherwise the planner predicts it, or it is estimated from the sizes that the job had. The gap of a resize is
    as of the job's earlier resizes, if it had any.
    """
    found = await find_sizes(services.store, services.planner, job)
    listed = [JobSize.model_validate({**vars(each), "ranks": each.layout.world_size}) for each in found.sizes]
    return JobSizes.model_validate({**vars(found), "sizes": listed})
