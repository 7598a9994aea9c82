"""/v1/jobs/{job}/starts: the predicted starts of a queued job at other sizes."""

from fastapi import APIRouter

from regroup.api.schemas.capacity.size_starts import SizeStart, SizeStarts
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, TheServices
from regroup.service.operations.capacity.size_starts import find_size_starts

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs", tags=["queue"], responses=responses("conflict"))


@router.get("/{job}/starts")
async def starts(job: JobToRead, services: TheServices) -> SizeStarts:
    """Predict when a queued job starts with its requested size, and with smaller ones.

    The simulator decides as the scheduler does, once for each size. It answers 409 for a job that does not wait.
    """
    found = await find_size_starts(services.simulations, job)
    return SizeStarts(starts=[SizeStart.model_validate(each) for each in found])
