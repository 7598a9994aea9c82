"""/v1/audit: who changed what."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from regroup.api.schemas.audit import AuditChain, AuditPage, AuditRecord
from regroup.api.schemas.identities import Subject
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForAnyProject, ForCluster, TheServices, TheTokens
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.spec.types import Name
from regroup.service.store.access.audit import AuditFilter

Reader = Annotated[Sender, Depends(ForAnyProject(Permission.AUDIT_READ))]
Verifier = Annotated[Sender, Depends(ForCluster(ClusterPermission.AUDIT_VERIFY))]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Time = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        "description": "One record on each line, as JSON",
    }
}
router = APIRouter(route_class=OperationRoute, prefix="/v1/audit", tags=["audit"], responses=responses())


async def read_filter(
    actor: Annotated[Subject | None, Query(description="Records of this identity")] = None,
    action: Annotated[Text | None, Query(description="Records of this action, for example `jobs.cancel`")] = None,
    object: Annotated[Text | None, Query(description="Records of the object with this id or name")] = None,
    since: Annotated[Time | None, Query(description="Records from this time on, Unix seconds")] = None,
    until: Annotated[Time | None, Query(description="Records before this time, Unix seconds")] = None,
) -> AuditFilter:
    """Return the filter of a request."""
    return AuditFilter(actor=actor, action=action, object=object, since_s=since, until_s=until)


Filter = Annotated[AuditFilter, Depends(read_filter)]
OfProject = Annotated[Name | None, Query(description="Records of this project; of all that you administer if absent")]


@router.get("")
async def list_(
    services: TheServices,
    tokens: TheTokens,
    sender: Reader,
    selection: Filter,
    project: OfProject = None,
    page_size: Annotated[int, Query(ge=1, le=500, description="Maximum number of records on a page")] = 100,
    page_token: Annotated[str, Query(max_length=500, description="`next_page_token` of the previous page")] = "",
) -> AuditPage:
    """List changes, newest first. A page token is valid only with the same filters.

    Admins see the changes in their projects, operators all. Decisions of the server itself are events of jobs.
    """
    filters = {name: [repr(value)] for name, value in {**vars(selection), "project": project}.items()}
    before = int(tokens.read(page_token, filters)) if page_token else None
    found = await services.audit.page(sender, selection, project, before, page_size)
    token = tokens.make(str(found[-1].id), filters) if len(found) == page_size else ""
    return AuditPage(records=[AuditRecord.model_validate(row) for row in found], next_page_token=token)


@router.get("/export", response_class=StreamingResponse, responses=_LINES)
async def export(
    services: TheServices,
    sender: Reader,
    selection: Filter,
    project: OfProject = None,
    after: Annotated[int, Query(ge=0, lt=2**53, description="Records above this position in the chain")] = 0,
    limit: Annotated[int | None, Query(ge=1, le=10_000, description="Maximum number of records; all if absent")] = None,
) -> StreamingResponse:
    """Export sealed records as JSON lines, the oldest first. A record is sealed about a second after its change."""
    batches = services.audit.export(sender, selection, project, after)
    return StreamingResponse(_lines(batches, limit), media_type="application/x-ndjson")


@router.get("/chain")
async def chain(services: TheServices, sender: Verifier) -> AuditChain:
    """Get the ends of the chain of records.

    Each record has a digest over its content and the digest before it. Note the digest of the end in another place:
    then a later verification finds every record that was changed or removed before that point.
    """
    return AuditChain.model_validate(await services.audit.chain(), from_attributes=True)


async def _lines(batches: AsyncGenerator[list[Any]], limit: int | None) -> AsyncGenerator[bytes]:
    left = limit
    async for batch in batches:
        rows = batch if left is None else batch[:left]
        yield b"".join(AuditRecord.model_validate(row).model_dump_json().encode() + b"\n" for row in rows)
        if left is not None and (left := left - len(rows)) <= 0:
            await batches.aclose()
            return
