"""/v1/what-if: the queue of now, simulated with other nodes, quotas or jobs."""

from typing import Annotated

from fastapi import APIRouter, Depends

from regroup.api.schemas.capacity.what_if import JobForecast, WaitForecast, WhatIf
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForAnyProject, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.capacity.scenario import WhatIfRequest
from regroup.service.operations.capacity.what_if_summary import summarize
from regroup.service.policy.access.roles import Permission

Reader = Annotated[Sender, Depends(ForAnyProject(Permission.JOBS_READ))]
router = APIRouter(
    route_class=OperationRoute,
    prefix="/v1/what-if",
    tags=["queue"],
    responses=responses("malformed_json", "body_too_large"),
)


@router.post("")
@unconditional("calculates")
async def simulate(request: WhatIfRequest, services: TheServices, sender: Reader) -> WhatIf:
    """Simulate the queue of now with and without a change: added nodes, drained nodes, quotas, jobs.

    Stores and changes nothing. The simulator decides as the scheduler does. It assumes that the speed of a job is
    proportional to its devices, and that no node fails; `basis` shows how the remaining time of each job is estimated.
    """
    result = await services.simulations.run(request, sender.sees)
    return WhatIf(
        summary=summarize(request, result),
        now_s=result.now_s,
        horizon_s=result.horizon_s,
        jobs=[JobForecast.model_validate(job) for job in result.jobs],
        waits=WaitForecast.model_validate(result.waits),
        projects={name: WaitForecast.model_validate(waits) for name, waits in result.projects.items()},
        hidden_jobs=result.hidden_jobs,
        utilisation_before=result.utilisation_before,
        utilisation_after=result.utilisation_after,
    )
