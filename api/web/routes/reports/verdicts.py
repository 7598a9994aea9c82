"""/v1/chaos/verdicts: verdicts of chaos rehearsals, which run on services of their own."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from regroup.api.schemas.reports.verdicts import ChaosVerdict, ScenarioVerdict, VerdictList
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForAnyProject, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import Permission
from regroup.service.spec.types import Name
from regroup.service.store.rows.verdicts import Verdict, VerdictRow
from regroup.service.store.verdicts import MAX_VERDICTS

Reader = Annotated[Sender, Depends(ForAnyProject(Permission.JOBS_READ))]
Writer = Annotated[Sender, Depends(ForAnyProject(Permission.FAULTS))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/chaos/verdicts", tags=["reports"], responses=responses())


@router.get("")
async def verdicts(
    services: TheServices,
    sender: Reader,
    scenario: Annotated[Name | None, Query(description="Only verdicts of this scenario")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_VERDICTS, description="Maximum number of verdicts")] = 100,
) -> VerdictList:
    """List the verdicts of chaos rehearsals, newest first."""
    found = await services.verdicts.newest(scenario, limit)
    return VerdictList(verdicts=[_shown(row) for row in found])


@router.post("", status_code=201, responses=responses("conflict", "body_too_large", "malformed_json"))
async def record_verdict(verdict: ScenarioVerdict, services: TheServices, sender: Writer) -> ChaosVerdict:
    """Record the verdict of a chaos rehearsal.

    It needs the permission `faults` in a project. The server keeps the newest 1000 verdicts.
    """
    return _shown(await services.verdicts.record(sender, Verdict(**verdict.model_dump())))


def _shown(row: VerdictRow) -> ChaosVerdict:
    verdict = ScenarioVerdict.model_construct(**vars(row.verdict))
    return ChaosVerdict(id=row.id, time_s=row.time_s, recorded_by=row.recorded_by, verdict=verdict)
