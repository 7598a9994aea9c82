"""Dependencies of the routes: the services of this app, the sender of a request, and the objects that a path names.

Each route declares the permission that it needs, with exactly one of `ForJob`, `ForProject`, `ForAnyProject`,
`ForCluster` and `ForEveryone`. An object in a project that the sender does not see answers 404, as one that does not
exist.
"""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import HTTPBearer

from regroup.api.web.encoded_answers import EncodedAnswers
from regroup.api.web.http import PageTokens
from regroup.api.web.stream_access import ProjectPermission
from regroup.service.domain.identity import Identity
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.access.sessions import Sessions
from regroup.service.operations.assembly.services import Services
from regroup.service.operations.jobs import Jobs
from regroup.service.operations.submissions import Submissions
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.spec.types import Name
from regroup.service.store.rows.records import JobRow

TOKEN = Security(
    HTTPBearer(scheme_name="token", description="A token of `regroup token create`, or the owner's.", auto_error=False)
)
"""Describes the token in the OpenAPI document. The middleware `Guard` checks it, for every path."""


def services_of(request: Request) -> Services:
    """Return the services that this app was created with."""
    return cast(Services, request.app.state.services)


# All dependencies are coroutines: the framework runs any other function in a thread, which costs 0.1 ms. There are few
# of them, because each costs 20 µs.
async def get_services(request: Request) -> Services:
    """Return the services that this app was created with."""
    return services_of(request)


async def get_jobs(request: Request) -> Jobs:
    """Return the operations on jobs."""
    return services_of(request).jobs


async def get_submissions(request: Request) -> Submissions:
    """Return the operations that check and queue specs."""
    return services_of(request).submissions


async def get_page_tokens(request: Request) -> PageTokens:
    """Return the page tokens of this app."""
    return cast(PageTokens, request.app.state.page_tokens)


async def get_answers(request: Request) -> EncodedAnswers:
    """Return the encoded answers of this app."""
    return cast(EncodedAnswers, request.app.state.answers)


async def get_sessions(request: Request) -> Sessions:
    """Return the operations on sessions of browsers."""
    return cast(Sessions, request.app.state.sessions)


def get_address(request: Request) -> str:
    """Return the address of the client. A request through a Unix socket has none."""
    return "local" if request.client is None else request.client.host


def sender_of(request: Request) -> Sender:
    """Return the identity that the middleware `Guard` found."""
    return Sender(cast(Identity, request.state.identity), get_address(request))


async def get_sender(request: Request) -> Sender:
    """Return the identity that the middleware `Guard` found."""
    return sender_of(request)


TheServices = Annotated[Services, Depends(get_services)]
TheJobs = Annotated[Jobs, Depends(get_jobs)]
TheSubmissions = Annotated[Submissions, Depends(get_submissions)]
TheTokens = Annotated[PageTokens, Depends(get_page_tokens)]
TheAnswers = Annotated[EncodedAnswers, Depends(get_answers)]
TheSender = Annotated[Sender, Depends(get_sender)]
TheSessions = Annotated[Sessions, Depends(get_sessions)]

# ------------------------------------------------------------ permissions


@dataclass(frozen=True)
class ForJob:
    """Requires a permission in the project of the job that the path names; returns the job."""

    permission: Permission

    async def __call__(
        self,
        request: Request,
        job: Annotated[
            str, Path(description="Id, or name: the live job of that name, else the newest one", max_length=64)
        ],
        project: Annotated[Name, Query(description="Project in which the name is looked up")] = "default",
    ) -> JobRow:
        """Return the job.

        Raises:
            NotFoundError: there is no such job, or the sender does not see its project.
            ForbiddenError: the sender sees the job, but does not have the permission.
        """
        sender = sender_of(request)
        found = await services_of(request).jobs.get(job, project, sender)
        sender.require(self.permission, found.project)
        request.state.requirement = ProjectPermission(self.permission, found.project)
        return found


@dataclass(frozen=True)
class ForProject:
    """Requires a permission in the project that the path names; returns its name."""

    permission: Permission

    async def __call__(self, request: Request, name: Annotated[Name, Path(description="Name of the project")]) -> str:
        """Return the name of the project. Raises the errors of `Sender.require`."""
        sender_of(request).require(self.permission, name)
        return name


@dataclass(frozen=True)
class ForAnyProject:
    """Requires a permission in at least one project; returns the sender."""

    permission: Permission

    async def __call__(self, request: Request) -> Sender:
        """Return the sender; raises ForbiddenError."""
        sender = sender_of(request)
        sender.require_somewhere(self.permission)
        return sender


@dataclass(frozen=True)
class ForCluster:
    """Requires a permission for what belongs to no project; returns the sender."""

    permission: ClusterPermission

    async def __call__(self, request: Request) -> Sender:
        """Return the sender; raises ForbiddenError."""
        sender = sender_of(request)
        sender.require_in_cluster(self.permission)
        return sender


@dataclass(frozen=True)
class ForEveryone:
    """Requires an identity; returns the sender. The route itself limits what it does and shows."""

    limit: str
    """Limit that the route itself applies."""

    async def __call__(self, request: Request) -> Sender:
        """Return the sender."""
        return sender_of(request)


JobToRead = Annotated[JobRow, Depends(ForJob(Permission.JOBS_READ))]
JobToChange = Annotated[JobRow, Depends(ForJob(Permission.JOBS_WRITE))]
JobWithOutput = Annotated[JobRow, Depends(ForJob(Permission.LOGS))]
JobForCommands = Annotated[JobRow, Depends(ForJob(Permission.EXEC))]
NodeReader = Annotated[Sender, Depends(ForCluster(ClusterPermission.NODES_READ))]
NodeOperator = Annotated[Sender, Depends(ForCluster(ClusterPermission.NODES_WRITE))]

# ------------------------------------------------------------ parameters

After = Annotated[int, Query(ge=0, lt=2**53, description="Position after which the answer begins")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries in the answer")]
