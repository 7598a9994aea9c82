"""Dependencies of the routes: the services of this app, the job in a path, the actor."""

from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request, Security
from fastapi.security import HTTPBearer

from regroup.api.web.http import PageTokens
from regroup.service.operations.jobs import Jobs
from regroup.service.operations.services import Services
from regroup.service.spec.types import Name
from regroup.service.store.records import JobRow

ACTOR = "local"
"""Actor of all requests that have the token, since there are no users yet."""
TOKEN = Security(HTTPBearer(scheme_name="token", description="The content of the token file.", auto_error=False))
"""Describes the token in the OpenAPI document. The middleware `Guard` checks it, for every path."""


def get_services(request: Request) -> Services:
    """Return the services that this app was created with."""
    return cast(Services, request.app.state.services)


def get_jobs(request: Request) -> Jobs:
    """Return the operations on jobs."""
    return get_services(request).jobs


def get_page_tokens(request: Request) -> PageTokens:
    """Return the page tokens of this app."""
    return cast(PageTokens, request.app.state.page_tokens)


async def get_named_job(
    jobs: Annotated[Jobs, Depends(get_jobs)],
    job: Annotated[str, Path(description="Id, or name: the live job of that name, else the newest one", max_length=64)],
    project: Annotated[Name, Query(description="Project in which the name is looked up")] = "default",
) -> JobRow:
    """Return the job that the path names."""
    return await jobs.get(job, project)


TheServices = Annotated[Services, Depends(get_services)]
TheJobs = Annotated[Jobs, Depends(get_jobs)]
TheTokens = Annotated[PageTokens, Depends(get_page_tokens)]
NamedJob = Annotated[JobRow, Depends(get_named_job)]
After = Annotated[int, Query(ge=0, lt=2**53, description="Position after which the answer begins")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries in the answer")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Requests with the same key and body take effect once",
    ),
]
