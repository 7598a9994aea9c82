"""/v1/plans: which layout suits a model on a cluster, before it runs."""

import asyncio

from fastapi import APIRouter

from regroup.api.schemas.plans import PlanReport
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import TheServices
from regroup.service.operations.plans import PlanRequest, plan

router = APIRouter(prefix="/v1/plans", tags=["plans"], responses=responses("malformed_json", "body_too_large"))


@router.post("")
async def create(request: PlanRequest, services: TheServices) -> PlanReport:
    """The fastest layouts of a model on so many devices, with time and memory taken apart. Nothing is stored or run.

    What a probe has measured of such devices counts in place of the hardware table; `measured_values` lists them."""
    probes = await services.probes.newest()
    return PlanReport.model_validate(await asyncio.to_thread(plan, request, probes))
