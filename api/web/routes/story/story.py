"""/v1/jobs/{job}/story and /v1/jobs/{job}/incidents/{number}: the course of a job, and what its incidents show."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from regroup.api.schemas.story.incident import EvidencePart, Findings, IncidentAccount, IncidentDetail
from regroup.api.schemas.story.story import Story
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, JobWithOutput, TheServices
from regroup.service.operations.evidence import find_incident
from regroup.service.operations.story.findings import find_findings, read_file

IncidentNumber = Annotated[int, Path(ge=1, lt=2**31, description="Number of the incident")]
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}", tags=["jobs"], responses=responses())


@router.get("/story")
async def story(
    job: JobToRead,
    services: TheServices,
    points: Annotated[int, Query(ge=2, le=1000, description="Largest number of steps in the answer")] = 400,
) -> Story:
    """Get the course of a job over time: states, generations, nodes, incidents, checkpoints and progress.

    The answer is bounded: it has the newest entries, and some steps.
    """
    return Story.model_validate(await services.stories.read(job, points))


@router.get("/incidents/{number}")
async def incident(job: JobWithOutput, number: IncidentNumber, services: TheServices) -> IncidentDetail:
    """Get an incident: its course in words, its cost, and what its evidence shows; the oldest incident is number 1."""
    records = await find_incident(services.store, job, number)
    account = IncidentAccount.model_validate(await services.stories.account(job, number))
    return IncidentDetail(account=account, findings=Findings.model_validate(await find_findings(records)))


@router.get("/incidents/{number}/file")
async def file(
    job: JobWithOutput,
    number: IncidentNumber,
    services: TheServices,
    name: Annotated[
        str,
        Query(min_length=1, max_length=300, description="A file of the evidence, as `GET …/incidents/{number}` lists"),
    ],
    offset: Annotated[int, Query(ge=0, lt=2**53, description="Number of bytes to skip at the beginning")] = 0,
    limit: Annotated[int, Query(ge=1, le=2**20, description="Largest number of bytes")] = 64 * 1024,
) -> EvidencePart:
    """Get a part of one file of the evidence of an incident."""
    records = await find_incident(services.store, job, number)
    return EvidencePart.model_validate(await read_file(records, name, offset, limit))
