"""/v1/jobs/{job}/diff: the fields in which the specs of two jobs differ."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from regroup.api.schemas.comparison.spec_differences import SpecDifferences
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, TheJobs, TheSender
from regroup.service.domain.errors import SpecError
from regroup.service.policy.access.roles import Permission
from regroup.service.spec.differences import find_differences
from regroup.service.spec.types import Name
from regroup.service.store.rows.records import JobRow

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}", tags=["jobs"], responses=responses())


@router.get("/diff")
async def diff(
    job: JobToRead,
    jobs: TheJobs,
    sender: TheSender,
    other: Annotated[str, Query(alias="with", min_length=1, max_length=64, description="Id or name of the other job")],
    project: Annotated[Name, Query(description="Project in which names are looked up")] = "default",
) -> SpecDifferences:
    """Compare the specs of two jobs: the fields that differ, with both values."""
    second = await jobs.get(other, project, sender)
    sender.require(Permission.JOBS_READ, second.project)
    found = find_differences(_document(job), _document(second))
    return SpecDifferences.model_validate({"first": job.id, "second": second.id, "differences": found})


def _document(job: JobRow) -> Mapping[str, Any]:
    """Return the spec with the defaults of this version; as it is stored if it is no longer valid."""
    try:
        return job.parsed_spec().model_dump(mode="json")
    except SpecError:
        return job.spec
