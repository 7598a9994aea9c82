"""/v1/reliability: incidents, recoveries, faults of nodes and goodput of all jobs in a window."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from regroup.api.schemas.reports import reliability as schemas
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForAnyProject, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.reports.reliability import ReliabilityReport
from regroup.service.policy.access.roles import Permission
from regroup.service.policy.reliability import Interruption
from regroup.service.spec.types import Name

Reader = Annotated[Sender, Depends(ForAnyProject(Permission.JOBS_READ))]
Time = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
router = APIRouter(route_class=OperationRoute, prefix="/v1/reliability", tags=["reports"], responses=responses())


@router.get("")
async def get(
    services: TheServices,
    sender: Reader,
    from_s: Annotated[
        Time | None,
        Query(alias="from", description="Start of the window, Unix seconds; 30 days before its end if absent"),
    ] = None,
    to_s: Annotated[Time | None, Query(alias="to", description="End of the window; now if absent")] = None,
    project: Annotated[Name | None, Query(description="Only this project; all that you see if absent")] = None,
) -> schemas.Reliability:
    """Report how often jobs were interrupted in a window of time, for how long, why, and what it cost.

    Members see the incidents of their projects, operators all. Faults of nodes belong to no project.
    """
    return _shown(await services.reliability.report(sender, from_s, to_s, project))


def _shown(report: ReliabilityReport) -> schemas.Reliability:
    found = report.found
    return schemas.Reliability(
        from_s=report.from_s,
        to_s=report.to_s,
        incidents=report.incidents,
        failures=found.failures,
        is_partial=report.is_partial,
        recovery=None if found.recovery is None else schemas.Spread.model_validate(found.recovery),
        phases=[schemas.PhaseReport(phase=name, **vars(spread)) for name, spread in found.phases.items()],
        causes=[schemas.CauseReport.model_validate(each) for each in found.causes],
        bin_s=found.bin_s,
        bins=[schemas.ReliabilityBin.model_validate(each) for each in found.bins],
        nodes=[schemas.NodeFaults.model_validate(each) for each in report.nodes],
        newest=[_interruption(each) for each in found.newest],
        steps_lost=found.steps_lost,
        lost_device_hours=found.lost_device_hours,
        device_hours=report.device_hours,
        goodput=report.goodput,
    )


def _interruption(each: Interruption) -> schemas.Interruption:
    return schemas.Interruption(
        job=each.job_id,
        job_name=each.job_name,
        project=each.project,
        number=each.number,
        cause=each.cause,
        reason=each.reason,
        is_planned=each.is_planned,
        time_s=each.time_s,
        total_s=each.total_s,
        steps_lost=each.steps_lost,
        lost_device_hours=each.lost_device_hours,
    )
