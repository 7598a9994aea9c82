"""/v1/plans: which layout suits a model on a cluster, before it runs."""

import asyncio

from fastapi import APIRouter

from regroup.api.plans import PlanReport
from regroup.api.problems import responses
from regroup.service.plans import PlanRequest, plan

router = APIRouter(prefix="/v1/plans", tags=["plans"], responses=responses("malformed_json", "body_too_large"))


@router.post("")
async def create(request: PlanRequest) -> PlanReport:
    """The fastest layouts of a model on so many devices, with time and memory taken apart. Nothing is stored or run."""
    return PlanReport.model_validate(await asyncio.to_thread(plan, request))
