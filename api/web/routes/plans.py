"""/v1/plans: find layouts for a model on a cluster before it runs."""

from typing import Annotated

from fastapi import APIRouter, Depends

from regroup.api.schemas.plans import PlanReport
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForCluster, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.operations.plans import PlanRequest, plan
from regroup.service.policy.access.roles import ClusterPermission

router = APIRouter(
    route_class=OperationRoute,
    prefix="/v1/plans",
    tags=["plans"],
    responses=responses("malformed_json", "body_too_large"),
)
Planner = Annotated[Sender, Depends(ForCluster(ClusterPermission.PLANS))]


@router.post("")
@unconditional("calculates")
async def create(request: PlanRequest, services: TheServices, sender: Planner) -> PlanReport:
    """Find the fastest layouts of a model on a number of devices, with breakdowns of time and memory.

    Stores and runs nothing. Values that a probe measured on such devices replace those of the hardware table;
    `measured_values` lists them.
    """
    probes = await services.probes.newest()
    return PlanReport.model_validate(await CALCULATIONS.run(plan, request, probes))
