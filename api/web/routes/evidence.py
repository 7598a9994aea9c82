"""/v1/jobs/{job}/incidents/{number}/evidence: download the evidence of an incident."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import StreamingResponse

from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobWithOutput, TheServices
from regroup.service.operations.evidence import find_incident, stream_bundle

_FILE = {"schema": {"type": "string", "format": "binary"}}
_FOUND: dict[int | str, dict[str, Any]] = {200: {"content": {"application/zip": _FILE}, "description": "A zip file"}}
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}/incidents", tags=["jobs"], responses=responses())


@router.get("/{number}/evidence", response_class=StreamingResponse, responses=_FOUND)
async def evidence(
    job: JobWithOutput,
    number: Annotated[int, Path(ge=1, lt=2**31, description="Number of the incident")],
    services: TheServices,
) -> StreamingResponse:
    """Download the evidence of an incident as a zip file; the oldest incident is number 1.

    The file contains the ranks' stacks, last collectives, output and resources as far as they could be collected, and
    the job's spec, generations and history. Its `summary.txt` lists the missing parts and the reasons.
    """
    incident = await find_incident(services.store, job, number)
    name = f"{job.name}-incident-{number}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(stream_bundle(incident), media_type="application/zip", headers=headers)
