"""/v1/jobs: submit, list, get and cancel jobs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from regroup.api.schemas.history import Checkpoint, CheckpointList, Generation, GenerationList, IncidentList, Ledger
from regroup.api.schemas.jobs import Job, JobList, Why
from regroup.api.schemas.stacks import Stacks, rank_stack
from regroup.api.web import presenters
from regroup.api.web.http import etag
from regroup.api.web.operation import REPLAYED_HEADER, IdempotencyKey, OperationRoute
from regroup.api.web.presenters import job_detail, job_summary
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import (
    ForEveryone,
    JobToChange,
    JobToRead,
    JobWithOutput,
    TheJobs,
    TheSender,
    TheServices,
    TheSubmissions,
    TheTokens,
)
from regroup.api.web.yaml_bodies import YAML_BODY
from regroup.service.domain.reserved_names import ME
from regroup.service.domain.states import JobState
from regroup.service.operations.access.authorization import Sender
from regroup.service.spec.job import JobSpec
from regroup.service.spec.types import Name
from regroup.service.store.rows.records import JobFilter

CheckpointStep = Annotated[int, Path(ge=0, lt=2**53, description="Step of the checkpoint")]
Label = Annotated[str, Field(max_length=400, json_schema_extra={"pattern": r"^[^=]+=[\s\S]*$"})]
JobId = Annotated[str, Field(min_length=1, max_length=64)]
Submitter = Annotated[Sender, Depends(ForEveryone("needs permissions in the project of the spec"))]
Lister = Annotated[Sender, Depends(ForEveryone("lists the jobs of projects that the sender sees"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["jobs"], responses=responses("conflict"))


@router.post(
    "",
    status_code=201,
    responses=responses("conflict", "body_too_large", "malformed_json"),
    openapi_extra=YAML_BODY,
)
async def create(
    spec: JobSpec,
    response: Response,
    submissions: TheSubmissions,
    sender: Submitter,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Submit a job. Requests with the same `Idempotency-Key` and spec within 24 hours return the same job."""
    submitted = await submissions.submit(spec, sender, key=idempotency_key)
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    response.headers["ETag"] = etag(submitted.job)
    if submitted.replayed:
        response.headers[REPLAYED_HEADER] = "true"
    return job_detail(await submissions.detail(submitted), submitted.spec)


@router.get("")
async def list_(
    jobs: TheJobs,
    tokens: TheTokens,
    sender: Lister,
    state: Annotated[list[JobState] | None, Query(description="Jobs in any of these states", max_length=20)] = None,
    project: Annotated[Name | None, Query(description="Jobs of this project; of all that you see if absent")] = None,
    name: Annotated[Name | None, Query(description="Jobs of this name")] = None,
    author: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="Jobs that this identity submitted; `me` for your own"),
    ] = None,
    label: Annotated[
        list[Label] | None, Query(description="KEY=VALUE; jobs with all of these labels", max_length=20)
    ] = None,
    ids: Annotated[
        list[JobId] | None, Query(alias="id", description="Jobs with any of these ids", max_length=100)
    ] = None,
    page_size: Annotated[int, Query(ge=1, le=200, description="Maximum number of jobs on a page")] = 50,
    page_token: Annotated[str, Query(max_length=500, description="`next_page_token` of the previous page")] = "",
) -> JobList:
    """List jobs, newest first. A page token is valid only with the same filters."""
    by = sender.name if author == ME else author
    job_filter = JobFilter(
        frozenset(state or ()), sender.visible(project), name, by, _labels(label or []), frozenset(ids or ())
    )
    filters = {"state": state or [], "project": [project or ""], "name": [name or ""], "label": label or []}
    if by is not None:
        filters["author"] = [by]
    if ids:
        filters["id"] = ids
    after = tokens.read(page_token, filters) if page_token else None
    page = await jobs.page(job_filter, after, page_size)
    next_page_token = "" if page.next_after is None else tokens.make(page.next_after, filters)
    return JobList(jobs=[job_summary(job) for job in page.jobs], next_page_token=next_page_token)


@router.get("/{job}", response_model=Job, responses={304: {"description": "The job matches If-None-Match"}})
async def get(
    job: JobToRead,
    response: Response,
    jobs: TheJobs,
    if_none_match: Annotated[
        str | None, Header(max_length=2000, description="ETag of the job: answer 304 if it has not changed since")
    ] = None,
) -> Job | Response:
    """Get a job with all its fields."""
    if if_none_match is not None and etag(job) in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers={"ETag": etag(job)})
    return job_detail(await jobs.detail(job))


@router.post("/{job}/cancel", status_code=202, responses=responses("conflict"))
async def cancel(job: JobToChange, response: Response, jobs: TheJobs, sender: TheSender) -> Job:
    """Cancel a job. A queued job ends immediately; any other job ends when all its ranks have exited."""
    cancelled = await jobs.cancel(job, author=sender.author)
    response.headers["Location"] = f"/v1/jobs/{cancelled.id}"
    return job_detail(await jobs.detail(cancelled))


@router.post("/{job}/release", status_code=202, responses=responses("conflict"))
async def release(job: JobToChange, jobs: TheJobs, sender: TheSender) -> Job:
    """Release the nodes of a failed job that holds them (`hold_on_failure`)."""
    return job_detail(await jobs.detail(await jobs.release(job, author=sender.author)))


@router.get("/{job}/why")
async def why(job: JobToRead, jobs: TheJobs) -> Why:
    """Explain why a job waits, failed or is slow, and what to do."""
    found = await jobs.why(job)
    same = {name: getattr(job, name) for name in ("id", "state", "reason", "phase", "save", "error")}
    return Why.model_validate({**vars(found), **same, "incidents": presenters.incidents(found.incidents)})


@router.get("/{job}/stacks")
async def stacks(job: JobWithOutput, services: TheServices) -> Stacks:
    """Get the current stack of every thread of every rank, even if a rank hangs. 404 if the job has no ranks."""
    found = await services.cluster.stacks(job.id)
    return Stacks(ranks=[rank_stack(rank, found[rank]) for rank in sorted(found)])


@router.get("/{job}/incidents")
async def incidents(job: JobToRead, jobs: TheJobs) -> IncidentList:
    """List incidents, oldest first."""
    return IncidentList(incidents=presenters.incidents(await jobs.incidents(job)))


@router.get("/{job}/generations")
async def generations(job: JobToRead, jobs: TheJobs) -> GenerationList:
    """List generations, oldest first."""
    return GenerationList(generations=[Generation.model_validate(item) for item in await jobs.generations(job)])


@router.get("/{job}/ledger")
async def ledger(job: JobToRead, jobs: TheJobs) -> Ledger:
    """Get the ledger of the job's samples."""
    found = await jobs.ledger(job)
    return Ledger.model_validate({**vars(found), "samples_hash": f"{found.samples_hash:016x}"})


@router.get("/{job}/checkpoints")
async def checkpoints(
    job: JobToRead,
    jobs: TheJobs,
    removed: Annotated[bool, Query(description="Include checkpoints that are no longer in storage")] = False,
) -> CheckpointList:
    """List checkpoints by step. Those that are no longer in storage are included only with `removed`."""
    found = await jobs.checkpoints(job, removed)
    return CheckpointList(checkpoints=[Checkpoint.model_validate(item) for item in found])


@router.put("/{job}/checkpoints/{step}/pin")
async def pin(job: JobToChange, step: CheckpointStep, jobs: TheJobs, sender: TheSender) -> Checkpoint:
    """Pin a checkpoint, so that retention does not remove it."""
    return Checkpoint.model_validate(await jobs.pin(job, step, True, author=sender.author))


@router.delete("/{job}/checkpoints/{step}/pin")
async def unpin(job: JobToChange, step: CheckpointStep, jobs: TheJobs, sender: TheSender) -> Checkpoint:
    """Unpin a checkpoint, so that retention may remove it."""
    return Checkpoint.model_validate(await jobs.pin(job, step, False, author=sender.author))


def _labels(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise HTTPException(400, f"label {pair!r} is not KEY=VALUE")
        found[key] = value
    return found
