"""/v1/probes: measure the cluster, and list the measured values."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from regroup.api.schemas.jobs import Job
from regroup.api.schemas.probes import Probe, ProbeList
from regroup.api.web.operation import REPLAYED_HEADER, IdempotencyKey, OperationRoute
from regroup.api.web.presenters import job_detail
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NodeOperator, NodeReader, TheServices
from regroup.service.operations.probes import ProbeRequest

router = APIRouter(route_class=OperationRoute, prefix="/v1/probes", tags=["probes"], responses=responses())


@router.post("", status_code=201, responses=responses("conflict", "body_too_large", "malformed_json"))
async def create(
    response: Response,
    services: TheServices,
    sender: NodeOperator,
    request: Annotated[ProbeRequest, Body()] = ProbeRequest(),  # noqa: B008
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Submit a job that measures its nodes. Its result is listed here when it has SUCCEEDED."""
    submitted = await services.probes.submit(request, sender, key=idempotency_key)
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    if submitted.replayed:
        response.headers[REPLAYED_HEADER] = "true"
    return job_detail(await services.jobs.detail(submitted.job))


@router.get("")
async def list_(services: TheServices, sender: NodeReader) -> ProbeList:
    """List the newest result of each device type.

    A result contains nodes, topology levels, collectives, matrix products and anomalies.
    """
    return ProbeList(probes=[Probe.model_validate(each) for each in await services.probes.newest()])
