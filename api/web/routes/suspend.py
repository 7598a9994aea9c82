"""/v1/jobs/{job}/suspend and /resume: a job that holds nothing for as long as people want."""

from fastapi import APIRouter

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.suspend import SuspendRequest
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ACTOR, NamedJob, TheJobs, TheServices

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("/{job}/suspend", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def suspend(job: NamedJob, jobs: TheJobs, services: TheServices, request: SuspendRequest | None = None) -> Job:
    """Have a job hold nothing until it is resumed. One that queues is suspended at once; any other ends after a step
    that its ranks agree on, saves that step to durable storage and gives all up. No step is lost, and nothing of it
    counts as a failure."""
    why = (request or SuspendRequest()).reason
    suspended = await services.store.queue.suspend(job.id, why, now=services.clock(), actor=ACTOR)
    return job_detail(await jobs.detail(suspended))


@router.post("/{job}/resume", status_code=202, responses=responses("conflict"))
async def resume(job: NamedJob, jobs: TheJobs, services: TheServices) -> Job:
    """Have a suspended job queue again; when it has its turn it goes on from its newest checkpoint. One that has not
    let go yet stays where it is."""
    resumed = await services.store.queue.resume(job.id, now=services.clock(), actor=ACTOR)
    return job_detail(await jobs.detail(resumed))
