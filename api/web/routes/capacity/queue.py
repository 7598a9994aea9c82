"""/v1/queue: the queue in scheduling order."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from regroup.api.schemas.capacity.queue import ProjectQueue, Queue, QueuedJob
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, Limit, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.capacity.queue import devices_of, list_queue
from regroup.service.spec.types import Name

Reader = Annotated[Sender, Depends(ForEveryone("lists the jobs of the projects that the sender sees"))]
Project = Annotated[Name | None, Query(description="Only jobs of this project")]
Offset = Annotated[int, Query(ge=0, lt=2**31, description="Number of jobs to skip")]
router = APIRouter(route_class=OperationRoute, prefix="/v1/queue", tags=["queue"], responses=responses())


@router.get("")
async def get(
    services: TheServices, sender: Reader, project: Project = None, offset: Offset = 0, limit: Limit = 200
) -> Queue:
    """Get the queue in scheduling order: why each job waits, and its predicted start.

    Jobs of projects that you do not see are left out; positions count them.
    """
    seen = [job for job in await list_queue(services.store, services.positions) if sender.sees(job.project)]
    by_project = {name: [job for job in seen if job.project == name] for name in sorted({job.project for job in seen})}
    matching = seen if project is None else by_project.get(project, [])
    return Queue(
        jobs=[QueuedJob.model_validate(job) for job in matching[offset : offset + limit]],
        total=len(matching),
        projects=[
            ProjectQueue(project=name, jobs=len(jobs), devices=devices_of(jobs)) for name, jobs in by_project.items()
        ],
    )
