"""/v1/jobs/{job}/suspend and /resume: release the nodes of a job until it is resumed."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.suspend import SuspendRequest
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToChange, TheJobs, TheSender, TheServices

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["jobs"])


@router.post("/{job}/suspend", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def suspend(
    job: JobToChange,
    jobs: TheJobs,
    services: TheServices,
    sender: TheSender,
    request: SuspendRequest | None = None,
) -> Job:
    """Suspend a job: it uses no nodes until it is resumed.

    A queued job is suspended immediately. Any other job stops after an agreed step, saves that step to durable storage
    and releases its nodes. No step is lost, and a suspension does not count as a failure. The ranks of a script get
    SIGTERM and `termination_grace` to save their own state.
    """
    why = (request or SuspendRequest()).reason
    suspended = await services.store.queue.suspend(job.id, why, now=services.clock(), author=sender.author)
    return job_detail(await jobs.detail(suspended))


@router.post("/{job}/resume", status_code=202, responses=responses("conflict"))
async def resume(job: JobToChange, jobs: TheJobs, services: TheServices, sender: TheSender) -> Job:
    """Queue a suspended job again. When it is admitted, it continues from its newest checkpoint.

    A job that has not released its nodes yet keeps them.
    """
    resumed = await services.store.queue.resume(job.id, now=services.clock(), author=sender.author)
    return job_detail(await jobs.detail(resumed))
