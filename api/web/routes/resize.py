"""/v1/jobs/{job}/resize: another size for a job that waits or runs."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.resize import ResizeRequest
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ACTOR, NamedJob, TheJobs, TheServices
from regroup.service.operations import resize as resize_operations

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("/{job}/resize", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def resize(job: NamedJob, request: ResizeRequest, jobs: TheJobs, services: TheServices) -> Job:
    """Have a job go on at another size: its ranks end after a step that they agree on, and others go on from the state
    that those left in memory. No step is lost, and nothing of it counts as a failure. Where there is no room the wish
    stays, and the condition `Resized` says what it waits for."""
    spec, now = job.parsed_spec(), services.clock()
    if request.dp is not None:
        layout = resize_operations.layout_for(spec, resize_operations.Size(request.dp, request.tp, request.pp))
    else:
        layout = await services.planner.split(spec, request.ranks or 0)
    resized = await resize_operations.resize(services.store, job, layout, why=request.reason, now=now, actor=ACTOR)
    return job_detail(await jobs.detail(resized))
